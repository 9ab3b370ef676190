"""``spark.read.format("txha")`` and ``readStream``."""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from recovery.pipeline.schema import ARROW
from recovery.pipeline.source.batch import BatchReader
from recovery.pipeline.source.options import parse_options
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
        return from_arrow_schema(ARROW)

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(self._parsed)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(self._parsed)
