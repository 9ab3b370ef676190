"""``txha-queue`` as Spark knows it."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from recovery.pipeline.queues.options import QueueSourceOptions, SinkOptions, check_batch, options_of
from recovery.pipeline.queues.rows import check_columns
from recovery.pipeline.queues.sink import BatchSink, StreamSink, check_append
from recovery.pipeline.queues.source import SCHEMA, QueueReader


class QueueSource(DataSource):
    """Queues of a broker as streams, in and out; and batch jobs that append to queues."""

    @classmethod
    def name(cls) -> str:
        """As in ``format``."""
        return "txha-queue"

    def schema(self) -> str:
        """Of what is read. Raises PipelineError for options that cannot be: ``load`` does, and people see why.

        PySpark 4.3 hides what ``streamReader`` raises behind an error of its own.
        """
        options_of(QueueSourceOptions, self.options)
        return SCHEMA

    def streamReader(self, schema: StructType) -> QueueReader:
        """Raises PipelineError for options that cannot be."""
        return QueueReader(options_of(QueueSourceOptions, self.options))

    def _sink(self, schema: StructType, overwrite: bool) -> SinkOptions:
        options = options_of(SinkOptions, self.options)
        check_append(overwrite)
        check_columns(schema.names, options)
        return options

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:
        """Raises PipelineError for options and columns that cannot be."""
        return StreamSink(self._sink(schema, overwrite))

    def writer(self, schema: StructType, overwrite: bool) -> BatchSink:
        """The same."""
        options = self._sink(schema, overwrite)
        check_batch(options)
        return BatchSink(options)
