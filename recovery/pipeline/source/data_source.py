"""``spark.read.format("txha")`` and ``readStream``."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import replace

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from recovery.pipeline.errors import PipelineError
from recovery.pipeline.schema import ARROW, columns_of
from recovery.pipeline.source.batch import BatchReader
from recovery.pipeline.source.options import LogSourceOptions, parse_options
from recovery.pipeline.source.stream import StreamReader


class TxhaSource(DataSource):
    """Transaction logs as rows of ``schema.ARROW``."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._parsed = parse_options(dict(options.items()))

    @classmethod
    def name(cls) -> str:
        return "txha"

    def schema(self) -> StructType:
        return from_arrow_schema(columns_of(self._parsed.selection.columns))

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(self._with(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(self._with(schema))

    def _with(self, schema: StructType) -> LogSourceOptions:
        """The options, with the columns that the query has given a schema of. Raises PipelineError."""
        for field, kind in zip(schema.fields, to_arrow_schema(schema, timezone="UTC"), strict=True):
            if field.name not in ARROW.names or ARROW.field(field.name).type != kind.type:
                raise PipelineError(f"the rows of txha have no column {field.name} {field.dataType.simpleString()}")
        columns = tuple(schema.names)
        return replace(self._parsed, selection=replace(self._parsed.selection, columns=columns))
