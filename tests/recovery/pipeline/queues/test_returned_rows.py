"""A row that no queue takes fails its batch, whichever answer of the broker is lost with the connection."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from python_tests.harness.cluster import LocalCluster
from python_tests.suites.dtx.cut import CuttingDoor
from recovery.dtx.errors import Error
from recovery.dtx.lost import LOST
from recovery.pipeline.errors import PipelineError
from recovery.pipeline.queues.names import Batch
from recovery.pipeline.queues.sink import Written, write
from tests.recovery.pipeline.queues.conftest import Query, drained

BASIC, DTX = 60 << 16, 100 << 16
ANSWERS = {
    "a returned row": BASIC | 50,
    "what was asked behind the rows": BASIC | 11,
    "end-ok": DTX | 31,
    "prepare-ok": DTX | 71,
}


@pytest.fixture
def door(cluster: LocalCluster) -> Iterator[CuttingDoor]:
    with CuttingDoor(cluster.ports[0]) as cutting:
        yield cutting


def written(cluster: LocalCluster, door: CuttingDoor, *keys: str) -> Written:
    """One attempt, through the door first."""
    query = Query(cluster, "", url=",".join([door.url, *cluster.urls]))
    rows = pa.record_batch({"body": [f"{number}" for number in range(len(keys))], "routing_key": list(keys)})
    return write(iter([rows]), Batch(query.id, 0), 0, 0, query.options)


@pytest.mark.parametrize("lost", ANSWERS)
def test_a_returned_row_whose_connection_is_lost(
    cluster: LocalCluster, channel: BlockingChannel, queue: str, door: CuttingDoor, lost: str
) -> None:
    door.cut(ANSWERS[lost])
    with pytest.raises((PipelineError, Error, *LOST)):
        written(cluster, door, queue, "nowhere", queue)
    assert door.has_cut or lost not in ("a returned row", "what was asked behind the rows")
    assert drained(channel, queue) == []


def test_a_lost_answer_to_prepare_fails_no_batch(
    cluster: LocalCluster, channel: BlockingChannel, queue: str, door: CuttingDoor
) -> None:
    """Where every row was taken."""
    query = Query(cluster, queue)
    door.cut(ANSWERS["prepare-ok"])
    found = written(cluster, door, queue, queue)
    assert door.has_cut and len(found.branches) == 1
    query.id = found.query
    query.commit(found)
    assert drained(channel, queue) == ["0", "1"]
