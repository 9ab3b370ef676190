"""The archive: rows of all nodes' logs in a lake of Parquet files, by node and day, beyond the logs' own retention.

``docs/decisions/archive-layout.md`` says why it looks so.
"""
