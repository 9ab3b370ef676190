"""Where PySpark finds the data source ``txha-queue`` by itself, as ``pyspark_txha`` is found."""

from recovery.pipeline.queues.data_source import QueueSource as DefaultSource

__all__ = ["DefaultSource"]
