"""The data pipeline on Spark: brokers' logs as tables, what they prove, and queues as streams.

Everything here needs ``pip install 'txha[spark]'`` and Java 17 or later.
"""
