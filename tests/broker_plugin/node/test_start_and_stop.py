"""A node's parts are closed in the reverse order of their start, whatever fails in the middle."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import SecretStr

from broker_plugin.cli.layout import free_ports
from broker_plugin.coordination.record_thread import RecordThread
from broker_plugin.node import clients, main
from broker_plugin.node.config import Address, Amqp, NodeConfig
from broker_plugin.node.log_server import LogServer
from broker_plugin.node.main import NodeProcess
from ha.membership.record import MemoryCoordination, Served
from recovery.store.identity import lock_directory
from recovery.store.store import Store, StoreHung

CLOSED = ("shell", "admin", "door", "links", "amqp", "readers", "records", "store")
"""Everything that a node closes, in this order; ``door`` is where clients connect."""


class Failed(Exception):
    """What a start fails with here."""


class Quiet(MemoryCoordination):
    """A coordination store without a record, which counts how often it is closed."""

    def __init__(self, *words: Any) -> None:
        super().__init__()
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


class Watched:
    """A node on ports of its own, whose parts tell here that they are closed."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.closed: list[str] = []
        self.ports = free_ports(2, set())
        config = NodeConfig(
            name="a",
            cluster="c",
            dir=directory / "a",
            coordination=directory / "r",
            amqp=Amqp(port=self.ports[0], users={"a": SecretStr("s3cr3t")}),
            peer=Address(port=self.ports[1], secret=SecretStr("s" * 32)),
        )
        self.node = NodeProcess(config)
        self.directory = config.dir
        self._patch = monkeypatch

        async def identity(*words: Any) -> str:
            return "identity"

        monkeypatch.setattr(main, "cluster_identity", identity)
        watchdog: Any = SimpleNamespace(rest=lambda: None)
        monkeypatch.setattr(type(config.coordination), "serve", lambda *words: Served(Quiet(*words), watchdog))
        monkeypatch.setattr(main.Collector, "start", lambda collector: None)
        for kind, name, part in (
            (main.Shell, "stop", "shell"),
            (main.AdminServer, "stop", "admin"),
            (asyncio.base_events.Server, "close", "door"),
            (main.Links, "stop", "links"),
            (clients.AmqpServer, "stop", "amqp"),
            (LogServer, "stop", "readers"),
            (RecordThread, "stop", "records"),
            (Store, "close", "store"),
        ):
            self._watch(kind, name, part)

    def _watch(self, kind: type, name: str, part: str) -> None:
        real: Callable[..., Any] = getattr(kind, name)

        def closing(me: Any, *words: Any) -> Any:
            if part not in self.closed and (part != "door" or self._is_door(me)):
                self.closed.append(part)
            return real(me, *words)

        self._patch.setattr(kind, name, closing)

    def end_when_started(self) -> None:
        """The node is told to end after the last step of its start."""
        real = main.Shell.start

        def starting(shell: main.Shell) -> None:
            real(shell)
            self.node._ended.set()

        self._patch.setattr(main.Shell, "start", starting)

    def _is_door(self, server: asyncio.Server) -> bool:
        """Not the server that only tries the port, before there is a store."""
        ports = [each.getsockname()[1] for each in server.sockets]
        return ports == self.ports[:1] and hasattr(self.node, "store")

    async def is_gone(self) -> None:
        """Nothing of the node is left."""
        for _ in range(3):
            await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        for port in self.ports:
            with socket.socket() as probe:
                assert probe.connect_ex(("127.0.0.1", port)) != 0, "a process listens"
        assert not (self.directory / "admin.json").exists()
        assert self.node._coordination.closed == 1  # type: ignore[attr-defined]
        assert not [each for each in threading.enumerate() if each.name.startswith("log-reader")]
        lock_directory(self.directory)


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(tmp_path, monkeypatch)


async def test_everything_is_closed_in_the_reverse_order(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    watched.end_when_started()
    with caplog.at_level("DEBUG"):
        assert await watched.node.run() == 0
    assert "started with a" in caplog.text and "s3cr3t" not in caplog.text
    assert tuple(watched.closed) == CLOSED
    await watched.is_gone()


@pytest.mark.parametrize(
    ("where", "name", "closed"),
    [
        (main, "restored", CLOSED[6:]),
        (main, "LogServer", CLOSED[6:]),
        (main, "wire", CLOSED[5:]),
        (clients, "amqp_server", ("shell", *CLOSED[5:])),
        (main.Links, "start", ("links", "amqp", "shell", *CLOSED[5:])),
        (main, "AdminServer", ("door", "links", "amqp", "shell", *CLOSED[5:])),
        (main.AdminServer, "start", ("admin", "door", "links", "amqp", "shell", *CLOSED[5:])),
        (main.Shell, "start", CLOSED),
    ],
)
async def test_what_was_started_is_closed_when_the_next_part_fails(
    where: Any, name: str, closed: tuple[str, ...], watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*words: Any, **named: Any) -> None:
        raise Failed

    monkeypatch.setattr(where, name, failing)
    with pytest.raises(Failed):
        await watched.node.run()
    assert tuple(watched.closed) == closed
    await watched.is_gone()


async def test_a_part_that_fails_after_it_listens(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk may be full when the administration writes where it listens."""
    real = main.AdminServer.start

    async def failing(admin: main.AdminServer) -> None:
        await real(admin)
        raise OSError("no space left")

    monkeypatch.setattr(main.AdminServer, "start", failing)
    with pytest.raises(OSError, match="no space left"):
        await watched.node.run()
    assert watched.closed[0] == "admin"
    await watched.is_gone()


@pytest.mark.parametrize("part", ["links", "amqp", "admin"])
async def test_a_part_that_cannot_be_closed_keeps_no_other_open(
    part: str, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that is not the system's own comes out at the end, when all the others have been closed."""
    kind: Any = {"links": main.Links, "amqp": clients.AmqpServer, "admin": main.AdminServer}[part]
    real = kind.stop

    async def failing(me: Any) -> None:
        await real(me)
        raise Failed

    monkeypatch.setattr(kind, "stop", failing)
    watched.end_when_started()
    with pytest.raises(Failed):
        await watched.node.run()
    assert tuple(watched.closed) == CLOSED
    await watched.is_gone()


async def test_a_store_that_hangs_at_the_end_ends_the_node_at_once(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Store.close

    def hanging(store: Store) -> None:
        real(store)
        raise StoreHung("the disk hangs")

    said: list[tuple[str | None, str | None]] = []
    monkeypatch.setattr(Store, "close", hanging)
    monkeypatch.setattr(main, "ended", lambda failure, hung: said.append((failure, hung)) or 1)
    watched.end_when_started()
    assert await watched.node.run() == 1 and said == [(None, "the disk hangs")]
