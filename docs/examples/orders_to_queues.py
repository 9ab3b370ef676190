"""Send orders from PostgreSQL to queues, exactly once.

    python docs/examples/orders_to_queues.py --dsn "host=127.0.0.1 dbname=bank" \
        --broker amqp://guest:guest@127.0.0.1:5701/ --checkpoint /tmp/orders-checkpoint [--follow]

Programs insert rows into the table ``orders``; each becomes one message, in the queue ``orders.<country>``. Kill this
script, Spark, the broker's primary or all of them whenever you like, and start it again: no order is missing, and none
is there twice. Without ``--follow`` the script ends when it has sent what is there. The queues must exist, and be
durable.

A number from a sequence does not say when a row was committed: a row with a lower number can appear after one with a
higher number, and a query for "greater than the last" never sees it. So each row carries the transaction that wrote it,
and a batch is what the transactions of a range have written, all of which have ended. Read again, it is the same.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import psycopg
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from txha.spark import spark_session

TABLE = """
CREATE TABLE IF NOT EXISTS orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    country text NOT NULL,
    amount numeric NOT NULL,
    written_by xid8 NOT NULL DEFAULT pg_current_xact_id()
);
CREATE INDEX IF NOT EXISTS orders_written_by ON orders (written_by, id);
"""
ENDED = "SELECT pg_snapshot_xmin(pg_current_snapshot())"
"""Every transaction below this number has ended, and all that it wrote can be seen."""

NEXT = (
    "SELECT written_by FROM orders WHERE written_by >= %s AND written_by < %s ORDER BY written_by, id OFFSET %s LIMIT 1"
)
ROWS = """
SELECT 'orders.' || country AS routing_key, 'order-' || id AS message_id,
       json_build_object('id', id, 'country', country, 'amount', amount)::text AS body
FROM orders WHERE written_by >= %s AND written_by < %s AND id %% %s = %s
"""
PER_BATCH = 1000
PARTITIONS = 2


class OrdersReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the table in batches. An offset is a number of a transaction: a batch has the rows from its start to below
    its end."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._until: int | None = None

    def _ask(self, question: str, *values: object) -> int | None:
        with psycopg.connect(self._dsn) as connection:
            row = connection.execute(question, [str(value) for value in values[:2]] + list(values[2:])).fetchone()
        return None if row is None else int(row[0])

    def initialOffset(self) -> dict[str, int]:
        return {"transaction": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(PER_BATCH)

    def prepareForTriggerAvailableNow(self) -> None:
        self._until = self._ask(ENDED)

    def latestOffset(self, start: Mapping[str, int], limit: ReadLimit) -> dict[str, int]:
        begin, until = start["transaction"], self._until or self._ask(ENDED)
        first = self._ask(NEXT, begin, until, 0)
        if first is None or until is None:
            return dict(start)
        beyond = self._ask(NEXT, begin, until, PER_BATCH)
        return {"transaction": until if beyond is None else max(beyond, first + 1)}

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> Sequence[InputPartition]:
        return [InputPartition((start["transaction"], end["transaction"], part)) for part in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        begin, end, part = partition.value
        with psycopg.connect(self._dsn) as connection, connection.cursor("orders") as cursor:
            yield from cursor.execute(ROWS, [str(begin), str(end), PARTITIONS, part])


class Orders(DataSource):
    """The table ``orders`` as a stream."""

    @classmethod
    def name(cls) -> str:
        return "orders"

    def schema(self) -> str:
        return "routing_key string, message_id string, body string"

    def streamReader(self, schema: StructType) -> OrdersReader:
        return OrdersReader(self.options["dsn"])


def main() -> None:
    """Send until all is sent, or for ever."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name in ("--dsn", "--broker", "--checkpoint"):
        parser.add_argument(name, required=True)
    parser.add_argument("--follow", action="store_true", help="go on for ever")
    given = parser.parse_args()

    with psycopg.connect(given.dsn) as connection:
        connection.execute(TABLE)
    spark = spark_session("orders to queues")
    spark.dataSource.register(Orders)
    orders = spark.readStream.format("orders").option("dsn", given.dsn).load()
    sink = orders.writeStream.format("txha-queue").option("url", given.broker)
    sink = sink.option("checkpointLocation", given.checkpoint)
    query = (sink if given.follow else sink.trigger(availableNow=True)).start()
    query.awaitTermination()


if __name__ == "__main__":
    main()
