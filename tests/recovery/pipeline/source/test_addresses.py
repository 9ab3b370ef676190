"""Nodes that are read by address, and move: which node answers is looked at, and a node is found where it is now."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from pyspark.sql.streaming.datasource import ReadAllAvailable

from broker_plugin.node.links import Links, PeerAddress
from recovery.pipeline.errors import PipelineError
from recovery.pipeline.source.batch import BatchReader
from recovery.pipeline.source.log_sites import RunningNode
from recovery.pipeline.source.options import parse_options
from recovery.pipeline.source.stream import StreamReader
from recovery.reader.node_connection import READ_SECRET
from tests.broker_plugin.node.test_log_server import OURS, Node
from tests.recovery.pipeline.events import write_node
from tests.support.far_end import CREDENTIALS, SECRET
from tests.support.guards import strict_guard
from txobserver.events import Delivered
from txobserver.ports.store import StoreError

END = 10
Row = tuple[str, int, int]


class Named(Node):
    """A node of that name at that port."""

    def __init__(self, directory: Path, name: str, port: int, commit: int) -> None:
        super().__init__(directory / name, port)
        self.commit = commit
        self.links = Links(
            strict_guard(),
            replace(OURS, node=name),
            CREDENTIALS,
            [PeerAddress("n9", "127.0.0.1", 1)],
            lambda peer, up: None,
            lambda peer, message: None,
            self.server.accept,
        )

    async def stop(self) -> None:
        self.server.stop()
        await self.links.stop()


class Site:
    """Nodes below a directory, which are started at one address or another."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.running: dict[str, Named] = {}
        for name, base in (("n1", 1000), ("n2", 2000)):
            write_node(directory / name, [[Delivered(1, base + at)] for at in range(1, END + 1)], name)

    async def start(self, name: str, port: int, commit: int = END) -> Named:
        node = self.running[name] = Named(self.directory, name, port, commit)
        await node.links.start("127.0.0.1", port)
        return node

    async def stop(self, *names: str) -> None:
        for name in names or list(self.running):
            await self.running.pop(name).stop()


@pytest.fixture(autouse=True)
def of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The readers' secret."""
    monkeypatch.setenv(READ_SECRET, SECRET.decode())


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    found = Site(tmp_path)
    yield found
    await found.stop()


@pytest.fixture
def ports() -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    found = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return found


def at(*ports: int, **options: str) -> Any:
    return parse_options({"nodes": ",".join(f"127.0.0.1:{port}" for port in ports), "cluster": "c", **options})


def rows(name: str, first: int, last: int = END) -> list[Row]:
    base = {"n1": 1000, "n2": 2000}[name]
    return [(name, each, base + each) for each in range(first, last + 1)]


def read(reader: Any, parts: Any) -> list[Row]:
    found = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    return sorted((row["node"], row["position"], row["place"]) for row in found)


def batch(stream: StreamReader, start: Any) -> tuple[list[Row], Any]:
    end = stream.latestOffset(start, ReadAllAvailable())
    return read(stream, stream.partitions(start, end)), end


async def within(call: Callable[..., Any], *given: Any) -> Any:
    return await asyncio.wait_for(asyncio.to_thread(call, *given), 20)


async def test_another_node_at_the_address_where_a_part_is_read(site: Site, ports: list[int]) -> None:
    """Where it is read, that address is another node's: the executor's own loopback, or the node has gone since."""
    await site.start("n1", ports[0])
    reader = BatchReader(at(ports[0]))
    parts = await within(reader.partitions)
    await site.stop("n1")
    await site.start("n2", ports[0])
    with pytest.raises(StoreError, match="it is node n2, and node n1 was found there before"):
        await within(read, reader, parts)
    assert await within(read, reader, await within(reader.partitions)) == rows("n2", 1)


async def test_two_nodes_take_each_others_address(site: Site, ports: list[int]) -> None:
    """A stream goes by the node that answers, and not by what answered there before."""
    one, two, _ = ports
    await site.start("n1", one, 5)
    await site.start("n2", two, 5)
    stream = StreamReader(at(one, two))
    start = await within(stream.initialOffset)
    found, start = await within(batch, stream, start)
    assert found == [*rows("n1", 1, 5), *rows("n2", 1, 5)]
    await site.stop()
    await site.start("n1", two)
    await site.start("n2", one)
    assert (await within(batch, stream, start))[0] == [*rows("n1", 6), *rows("n2", 6)]


async def test_a_node_that_moves_is_found_where_it_is(
    site: Site, ports: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    one, two, three = ports
    await site.start("n1", one, 5)
    node = await site.start("n2", two, 5)
    stream = StreamReader(at(*ports))
    found, start = await within(batch, stream, await within(stream.initialOffset))
    assert found == [*rows("n1", 1, 5), *rows("n2", 1, 5)]
    await site.stop("n1")
    node.commit = 7
    found, start = await within(batch, stream, start)
    assert found == rows("n2", 6, 7) and f"127.0.0.1:{one} cannot be reached" in caplog.text
    await site.start("n1", three)
    found, start = await within(batch, stream, start)
    assert found == rows("n1", 6)
    assert (await within(batch, stream, start))[0] == []


async def test_a_reader_says_which_node_it_wants(site: Site, ports: list[int]) -> None:
    node = await site.start("n1", ports[0])
    assert (await within(RunningNode("n1", node.address, "c").extent, "commit")).last == END
    other = RunningNode("n2", node.address, "c")
    for ask in (lambda: other.extent("commit"), lambda: other.position(1), lambda: list(other.log().frames(1, END))):
        with pytest.raises(StoreError, match="it is node n1, and node n2 was found there before"):
            await within(ask)


@pytest.mark.parametrize("starting", ["earliest", "latest"])
async def test_a_node_that_dies_while_an_offset_is_made(
    site: Site, ports: list[int], starting: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It said how far its log goes, and is gone when it is asked which generation that is. The others go on."""
    one, two, _ = ports
    await site.start("n1", one, 5)
    node = await site.start("n2", two, 5)
    stream = StreamReader(at(one, two, startingOffsets=starting))
    loop, look = asyncio.get_running_loop(), StreamReader._extents

    def dies_then(stream: StreamReader) -> Any:
        found = look(stream)
        if "n1" in site.running:
            asyncio.run_coroutine_threadsafe(site.stop("n1"), loop).result()
        return found

    if starting == "earliest":
        _, start = await within(batch, stream, await within(stream.initialOffset))
        node.commit = 7
        monkeypatch.setattr(StreamReader, "_extents", dies_then)
        found, end = await within(batch, stream, start)
        assert found == rows("n2", 6, 7) and end["n1"] == start["n1"]
        assert set(stream.reportLatestOffset() or ()) == {"n2"}
    else:
        monkeypatch.setattr(StreamReader, "_extents", dies_then)
        assert set(await within(stream.initialOffset)) == {"n2"}
        await site.stop("n2")
        with pytest.raises(PipelineError, match="none of the nodes can be read"):
            await within(stream.initialOffset)
    assert f"127.0.0.1:{one} cannot be reached" in caplog.text
