"""The brokers of a case: which is primary, which hang, which were killed; and what they hold."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pika
from pika.adapters.blocking_connection import BlockingChannel

from broker_plugin.cli.asking import node_status
from broker_plugin.cli.layout import read_cluster
from python_tests.harness.cluster import LocalCluster
from python_tests.harness.waiting import wait_until
from recovery.dtx.conversation import Deadline
from recovery.dtx.errors import Error, RolledBack
from recovery.dtx.lost import LOST
from recovery.dtx.with_pika import DtxConnection, TxConnection
from recovery.reader.node_admin import AdminError, ask
from txobserver.outcomes import BranchOutcome
from txobserver.xid import Xid

SETTINGS = ("--set", "timing.lease_ttl=5", "--set", "timing.prepare_timeout=20")
HEARD = 5.0
"""Seconds in which a broker that is not hindered has heard a request that was sent to it."""
T = TypeVar("T")

WELL = 90.0
"""Seconds in which three nodes become ready that are not hindered."""


class Client:
    """What is asked of the brokers at these addresses, and sent to them, whichever is primary."""

    def __init__(self, urls: list[str]) -> None:
        self._urls = urls

    @contextlib.contextmanager
    def channel(self) -> Iterator[BlockingChannel]:
        """To the node that is primary, as soon as one is."""
        with DtxConnection(*self._urls, patience=WELL) as found:
            yield found.connection.channel()

    def insist(self, what: Callable[[BlockingChannel], T]) -> T:
        """The answer; asked again on another channel when one is lost, as busy nodes lose some by themselves."""
        patience = Deadline(WELL)
        while True:
            try:
                with self.channel() as channel:
                    return what(channel)
            except (Error, *LOST):
                if patience.over:
                    raise

    def publish(self, queue: str, bodies: list[str]) -> None:
        """Each once."""
        properties = pika.BasicProperties(delivery_mode=2)
        with TxConnection(*self._urls, patience=WELL) as broker:
            while True:
                try:
                    for body in bodies:
                        broker.channel.basic_publish("", queue, body.encode(), properties)
                    broker.commit()
                    return
                except RolledBack:
                    broker.rollback()
                except LOST:
                    broker.reconnect()


class Brokers:
    """Three nodes, and their ``client``. A context manager."""

    def __init__(self, directory: Path) -> None:
        self._cluster = LocalCluster(directory / "cluster", 3, *SETTINGS)
        self.client = Client(self._cluster.urls)
        self._hung: dict[str, int] = {}
        self._down: list[str] = []

    def __enter__(self) -> Brokers:
        self._cluster.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.resume()
        self._cluster.stop()

    @property
    def urls(self) -> list[str]:
        """Of all nodes."""
        return self._cluster.urls

    def url(self, name: str) -> str:
        """Of one node."""
        return self._cluster.url(name)

    @property
    def hinders(self) -> bool:
        """Whether one hangs."""
        return bool(self._hung)

    # -- which they are

    def states(self) -> dict[str, dict[str, Any]]:
        """What each node says of itself that does not hang."""
        entries = read_cluster(self._cluster.directory)
        return {entry.name: node_status(entry) for entry in entries if entry.name not in self._hung}

    def primary(self) -> str | None:
        """Its name, if there is one that does not hang."""
        active = [(state["generation"], name) for name, state in self.states().items() if state["state"] == "active"]
        return max(active)[1] if active else None

    def ready(self) -> list[str]:
        """The backups that are."""
        return [name for name, state in self.states().items() if state["state"] == "ready"]

    def settled_down(self) -> None:
        """Wait until one is primary and the others are ready, but those that stay down. Raises TimeoutError."""
        wanted = sorted(["active"] + ["ready"] * (2 - len(self._down)) + ["down"] * len(self._down))
        wait_until(
            lambda: sorted(each["state"] for each in self.states().values()) == wanted, WELL, "a cluster that is well",
            every=0.05,
        )

    # -- what is done to them

    def kill(self, name: str) -> None:
        """SIGKILL, and start it again."""
        self._hung.pop(name, None)
        self._cluster.kill(name)
        self._cluster.start_node(name)

    def kill_primary(self) -> bool:
        """As soon as there is one, if there will be; whether there was."""
        self._expect(lambda: self.primary() is not None)
        name = self.primary()
        if name is not None:
            self.kill(name)
        return name is not None

    def kill_all(self) -> bool:
        """All at once."""
        names = [entry.name for entry in read_cluster(self._cluster.directory)]
        self._hung.clear()
        for pid in [self._cluster.pid(name) for name in names if self._cluster.processes.runs(name)]:
            os.kill(pid, signal.SIGKILL)
        for name in names:
            self._cluster.start_node(name)
        return True

    def hang(self, *names: str) -> bool:
        """SIGSTOP; whether there was a process."""
        for name in names:
            self._hung[name] = self._cluster.pid(name)
            os.kill(self._hung[name], signal.SIGSTOP)
        return bool(names)

    def resume(self) -> bool:
        """SIGCONT of those that hang; whether there were any."""
        found = bool(self._hung)
        while self._hung:
            _, pid = self._hung.popitem()
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        return found

    def promote(self) -> bool:
        """As ``txha promote`` does, of the first backup that is ready; whether one was. The end is not waited for."""
        self._expect(lambda: bool(self.ready()))
        for name in self.ready():
            entry = next(each for each in read_cluster(self._cluster.directory) if each.name == name)
            with contextlib.suppress(AdminError):
                ask(entry.directory, "promote", {"accept_data_loss": False})
                return True
        return False

    def leave_behind(self) -> None:
        """SIGKILL of a backup, which stays down; the others go on without it. Raises TimeoutError."""
        self.settled_down()
        self._down = self.ready()[:1]
        self._cluster.kill(self._down[0])
        self.settled_down()
        wait_until(lambda: len(self.states()[self.primary() or ""]["ready_set"]) == 2, WELL, "two members", every=0.05)

    def accept_loss(self) -> None:
        """What the others went on with is given up. As ``txha promote --accept-data-loss``; raises TimeoutError."""
        (chosen,), others = self._down, [name for name in self.states() if name not in self._down]
        for name in others:
            self._cluster.kill(name)
        self._cluster.start_node(chosen)
        wait_until(lambda: self._forced(chosen), WELL, "the end of the lease", every=0.2)
        wait_until(lambda: self.states()[chosen]["state"] == "active", WELL, "a primary", every=0.05)
        for name in others:
            self._cluster.start_node(name)
        self._down = []
        self.settled_down()

    def _forced(self, name: str) -> bool:
        said = self.states()[name]
        if not said.get("record_version"):
            return False
        entry = next(each for each in read_cluster(self._cluster.directory) if each.name == name)
        with contextlib.suppress(AdminError):
            ask(entry.directory, "promote", {"accept_data_loss": True, "version": said["record_version"]})
            return True
        return False

    def _expect(self, what: Callable[[], bool]) -> None:
        """It comes about by itself where no node hangs."""
        if not self._hung:
            with contextlib.suppress(TimeoutError):
                wait_until(what, WELL, "what was expected", every=0.05)


def heard(brokers: Brokers, xid: Xid, waits: tuple[BranchOutcome, ...]) -> None:
    """Return when the primary does not say any of ``waits`` of a request that was sent; or when it never will."""
    name = brokers.primary()
    if name is None:
        return
    with contextlib.suppress(Error, *LOST, TimeoutError), DtxConnection(brokers.url(name), patience=1) as of:
        wait_until(lambda: of.outcome(xid) not in waits, HEARD, "an outcome", every=0.01)


def length(channel: BlockingChannel, queue: str) -> int | None:
    """How many messages a queue has that no client holds; None if there is no such queue."""
    aside = channel.connection.channel()
    try:
        return int(aside.queue_declare(queue, passive=True).method.message_count)
    except pika.exceptions.ChannelClosedByBroker:
        return None
    finally:
        if aside.is_open:
            aside.close()

