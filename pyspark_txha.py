"""Where PySpark finds the data source ``txha`` by itself: a module at the top whose name begins with ``pyspark_``.

It holds one ``DefaultSource``, so each format needs a module of its own, and none can be in the package ``txha``.
"""

from recovery.pipeline.source.data_source import TxhaSource as DefaultSource

__all__ = ["DefaultSource"]
