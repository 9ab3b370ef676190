"""A cluster for each module, queues of each test's own, and batches to write."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pika
import pyarrow as pa
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from python_tests.harness.cluster import LocalCluster
from recovery.pipeline.queues.names import Batch
from recovery.pipeline.queues.options import SinkOptions
from recovery.pipeline.queues.sink import Written, abort, commit, write

SETTINGS = ("--set", "timing.lease_ttl=5", "--set", "timing.prepare_timeout=20")
"""A lease that a busy machine does not end by itself, and patience with a backup that holds a vote up"""


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three nodes that are well, for tests that leave them so."""
    with LocalCluster(tmp_path_factory.mktemp("queues") / "cluster", 3, *SETTINGS) as running:
        yield running


@pytest.fixture
def channel(cluster: LocalCluster) -> Iterator[BlockingChannel]:
    """A client that looks at queues from outside."""
    connection = pika.BlockingConnection(pika.URLParameters(cluster.urls[0]))
    yield connection.channel()
    connection.close()


@pytest.fixture
def queue(channel: BlockingChannel) -> Iterator[str]:
    """A durable queue of this test's own."""
    name = f"queue-{uuid.uuid4().hex[:8]}"
    channel.queue_declare(name, durable=True)
    yield name
    channel.queue_delete(name)


def drained(channel: BlockingChannel, queue: str) -> list[str]:
    """Everything that is ready, taken out."""
    found = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append(got[2].decode())
    return found


class Query:
    """A streaming query as its sink sees it, without Spark: attempts of partitions, commits, aborts."""

    def __init__(self, cluster: LocalCluster, queue: str, **options: object) -> None:
        self.id = str(uuid.uuid4())
        given = {"url": ",".join(cluster.urls), "queue": queue, "patience": 20, **options}
        self.options = SinkOptions.model_validate(given)

    def write(self, batch: int, *bodies: str, partition: int = 0, attempt: int = 0) -> Written:
        """One attempt of a partition."""
        rows = iter([pa.record_batch({"body": list(bodies)})])
        return write(rows, Batch(self.id, batch), partition, attempt, self.options)

    def commit(self, *written: Written | None) -> None:
        """By the driver of a first start, as far as the first batch goes."""
        first = any(each is not None and each.batch == 0 for each in written)
        commit(written, self.options, first or self.options.new_record, last=False)

    def abort(self, batch: int, *written: Written | None, checkpoint: Path | None = None) -> None:
        """With the checkpoint that Spark would have made, if there is one."""
        options = self.options
        if checkpoint is not None:
            (checkpoint / "metadata").write_text(json.dumps({"id": self.id}))
            options = options.model_copy(update={"checkpoint_location": checkpoint.as_uri()})
        abort(written, options, batch)


@pytest.fixture
def query(cluster: LocalCluster, queue: str) -> Query:
    """One that has written nothing yet."""
    return Query(cluster, queue)
