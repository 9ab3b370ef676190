"""Transactions and branches: publishes and acknowledgements that take effect together, or not."""
