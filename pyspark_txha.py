"""Where PySpark finds the data source ``txha`` by itself: a module whose name begins so, with a ``DefaultSource``."""

from recovery.pipeline.source.data_source import TxhaSource as DefaultSource

__all__ = ["DefaultSource"]
