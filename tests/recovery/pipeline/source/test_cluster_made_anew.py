"""A cluster is founded anew under the name of the one before: its events are another history, and that is said."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from pyspark.sql.streaming.datasource import ReadAllAvailable

from broker_plugin.node.links import Links, PeerAddress
from recovery.pipeline.archive.job import ArchiveJob
from recovery.pipeline.archive.lake import Lake, Manifest
from recovery.pipeline.errors import PipelineError
from recovery.pipeline.source.batch import BatchReader
from recovery.pipeline.source.offsets import Cluster
from recovery.pipeline.source.options import parse_options
from recovery.pipeline.source.stream import StreamReader
from recovery.store.identity import FORMAT_VERSION, Identity, create_identity
from tests.broker_plugin.node.test_log_server import OURS, Node
from tests.recovery.pipeline.events import apply_up_to, write_node
from tests.support.far_end import CREDENTIALS
from tests.support.guards import strict_guard
from txobserver.events import Delivered
from txobserver.ids import Position
from txobserver.ports.store import StoreError

LAST, LONGER = 10, 15
OLD, NEW = "a1", "b2"


def found(directory: Path, identity: str, base: int, last: int) -> None:
    """``rm -rf``, and the same node of a cluster of the same name, which begins with generation 1 as every cluster."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    create_identity(directory, Identity(FORMAT_VERSION, "c", "n1", "i", cluster_id=identity))
    write_node(directory, [[Delivered(1, base + at)] for at in range(1, last + 1)])
    apply_up_to(directory, last)


def stream(directory: Path, **options: str) -> StreamReader:
    return StreamReader(parse_options({"path": str(directory), **options}))


def drain(reader: StreamReader, start: Any) -> tuple[list[int], Any]:
    """The places of all that comes, and the offset then."""
    places = []
    while (end := reader.latestOffset(start, ReadAllAvailable())) != start:
        places += read(reader, start, end)
        start = end
    return places, start


def read(reader: StreamReader, start: Any, end: Any) -> list[int]:
    parts = reader.partitions(start, end)
    return [row["place"] for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


def offset(position: str, identity: str = "") -> dict[str, dict[str, str]]:
    return {"n1": {"cluster": "c", **({"cluster_id": identity} if identity else {}), "position": position}}


@pytest.fixture
def node(tmp_path: Path) -> Path:
    found(tmp_path / "n1", OLD, 1000, LAST)
    return tmp_path / "n1"


def test_a_cluster_founded_anew_under_the_same_name(node: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its log goes further than what was read of the one before, and has the same generation there."""
    places, end = drain(reader := stream(node), reader.initialOffset())
    assert (len(places), end) == (LAST, offset(f"1.{LAST}", OLD))
    found(node, NEW, 2000, LONGER)
    with pytest.raises(PipelineError, match=rf"to cluster c \(identity {NEW}\) now, not to c \(identity {OLD}\)"):
        drain(stream(node), end)
    places, end = drain(stream(node, failOnDataLoss="false"), end)
    assert places == [2000 + at for at in range(1, LONGER + 1)] and end == offset(f"1.{LONGER}", NEW)
    assert f"(identity {NEW}) now" in caplog.text


def test_a_batch_of_the_cluster_before_is_repeated(node: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It was begun when the query was ended, and what it was begun with is gone."""
    start, end = offset("1.3", OLD), offset(f"1.{LAST}", OLD)
    found(node, NEW, 2000, LONGER)
    with pytest.raises(PipelineError, match=rf"belongs to cluster c \(identity {NEW}\) now"):
        read(stream(node), start, end)
    reader = stream(node, failOnDataLoss="false")
    assert read(reader, start, end) == []
    assert drain(reader, end)[0] == [2000 + at for at in range(1, LONGER + 1)]
    assert f"events 4 to {LAST}" in caplog.text


@pytest.mark.parametrize("identity", [OLD, ""])
def test_offsets_without_the_identity_go_on_by_name(node: Path, identity: str) -> None:
    """Of a checkpoint of an earlier version, and of a store that has not met its cluster's record yet."""
    found(node, identity, 1000, LAST)
    places, end = drain(stream(node), offset("1.4"))
    assert places == [1000 + at for at in range(5, LAST + 1)] and end == offset(f"1.{LAST}", identity)
    found(node, identity, 1000, LONGER)
    places, end = drain(stream(node), offset(f"1.{LAST}", OLD))
    assert len(places) == LONGER - LAST and end == offset(f"1.{LONGER}", OLD), "what was known is not forgotten"
    given = json.dumps({"n1": {"cluster": "c", "cluster_id": 7, "position": "1.4"}})
    with pytest.raises(PipelineError, match="the offset of node n1 reads"):
        stream(node, startingOffsets=given).initialOffset()


async def test_a_running_node_of_a_cluster_founded_anew(node: Path, unused_tcp_port: int) -> None:
    first = await running(node, unused_tcp_port, OLD)

    def options(**more: str) -> Any:
        given = {"nodes": first.address, "secretFile": str(first.secret_file), "cluster": "c"}
        return parse_options({**given, **more})

    reader = StreamReader(options())
    batch = BatchReader(options())
    parts = await asyncio.to_thread(batch.partitions)
    places, end = await asyncio.to_thread(lambda: drain(reader, reader.initialOffset()))
    assert (len(places), end) == (LAST, offset(f"1.{LAST}", OLD))
    await stop(first)
    found(node, NEW, 2000, LONGER)
    second = await running(node, unused_tcp_port, NEW)
    try:
        with pytest.raises(StoreError, match=rf"belongs to cluster c \(identity {NEW}\), not to c \(identity {OLD}\)"):
            await asyncio.to_thread(lambda: [list(batch.read(part)) for part in parts])
        for each in (reader, StreamReader(options())):
            with pytest.raises(PipelineError, match=rf"belongs to cluster c \(identity {NEW}\) now"):
                await asyncio.to_thread(drain, each, end)
        places, _ = await asyncio.to_thread(drain, StreamReader(options(failOnDataLoss="false")), end)
        assert places == [2000 + at for at in range(1, LONGER + 1)]
    finally:
        await stop(second)


async def running(directory: Path, port: int, identity: str) -> Node:
    node = Node(directory, port)
    node.commit = LONGER if identity == NEW else LAST
    node.links = Links(
        strict_guard(),
        structs.replace(OURS, cluster_id=identity),
        CREDENTIALS,
        [PeerAddress("n9", "127.0.0.1", 1)],
        lambda peer, up: None,
        lambda peer, message: None,
        node.server.accept,
    )
    await node.links.start("127.0.0.1", port)
    return node


async def stop(node: Node) -> None:
    node.server.stop()
    await node.links.stop()


def test_an_archive_is_of_one_founding(node: Path, tmp_path: Path) -> None:
    job = ArchiveJob(tmp_path / "archive", {"path": str(node)})
    assert job.cluster(Manifest()) == Cluster("c", OLD)
    assert job.cluster(Manifest(cluster="c")) == Cluster("c", OLD), "a manifest of an earlier version"
    assert job.cluster(Manifest(cluster="c", cluster_id=OLD)) == Cluster("c", OLD)
    with pytest.raises(PipelineError, match=f"all called c, and were founded apart, with the identities {OLD}, {NEW}"):
        job.cluster(Manifest(cluster="c", cluster_id=NEW))
    found(node, "", 1000, LAST)
    assert job.cluster(Manifest(cluster="c", cluster_id=NEW)) == Cluster("c", NEW)


def test_what_an_archive_says_of_where_it_ends(node: Path, tmp_path: Path) -> None:
    """A stream that begins there, without a checkpoint, compares the identity too."""
    job, lake = ArchiveJob(tmp_path / "archive", {"path": str(node)}), Lake(tmp_path / "archive")
    assert job.begins(Manifest(ends={"n1": Position(1, 4)}), Cluster("c", OLD)) == offset("1.4", OLD)
    lake.commit(Manifest(cluster="c", ends={"n1": Position(1, 4)}))
    path = lake.directory / "manifest" / f"{1:020d}.json"
    before = json.loads(path.read_text())
    del before["cluster_id"]
    path.write_text(json.dumps(before))
    assert lake.current().whose == Cluster("c"), "a manifest of an earlier version"
