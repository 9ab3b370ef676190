"""A real server on loopback in a thread of its own: over a ledger that commits at each turn, or over the real core."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

import pytest

from broker_plugin.amqp.loop_broker import embedded_broker
from broker_plugin.amqp.protocol.settings import AmqpSettings
from broker_plugin.amqp.server import AmqpServer
from broker_plugin.embedded.broker import EmbeddedBroker
from broker_plugin.embedded.unsupported import Unsupported, Warned
from broker_plugin.guard import Guard
from tests.broker_plugin.amqp.dtx_client import DtxChannel
from tests.broker_plugin.embedded.local_ledger import LocalLedger, commit_each_turn
from tests.support.guards import strict_guard
from tests.support.memory_cluster import MemoryCluster, MemoryNode

T = TypeVar("T")


def unheard(kind: str, name: str, what: str) -> None:
    """For comparisons with RabbitMQ, where what has no effect here is accepted and nothing is made of the warning."""


class Served:
    """``call`` runs something in the server's event loop and returns what it returned.

    ``warned`` is called with what RabbitMQ acts on and this broker does not; without one, that is refused.
    """

    def __init__(self, settings: AmqpSettings, warned: Warned | None = None) -> None:
        self.settings = settings
        self.loop = asyncio.new_event_loop()
        self.ledger = LocalLedger()
        self.guard = self.make_guard()
        self.broker: EmbeddedBroker = embedded_broker(self.guard, unsupported=Unsupported(warned))
        self.server = AmqpServer(self.guard, self.broker, settings)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def make_guard(self) -> Guard:
        """One for which everything that comes up is the test's failure."""
        return strict_guard()

    def start(self) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self.loop).result(10)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self.server.stop(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()
        assert not getattr(self.guard, "errors", [])

    @property
    def port(self) -> int:
        return self.server.port

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        answer: Future[T] = Future()

        def run() -> None:
            try:
                answer.set_result(function(*arguments))
            except BaseException as error:
                answer.set_exception(error)

        self.loop.call_soon_threadsafe(run)
        return answer.result(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def serve(self, ledger: LocalLedger) -> None:
        """In the server's loop: be the primary with this ledger."""
        self.ledger = ledger
        commit_each_turn(ledger, self.loop.call_soon)
        ledger.serve(self.broker)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Until it holds in the server's loop, looking once per turn."""
        asyncio.run_coroutine_threadsafe(self._until(condition), self.loop).result(10)

    @staticmethod
    async def _until(condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(0)

    async def _start(self) -> None:
        self.serve(self.ledger)
        await self.server.start()


class OneNode(MemoryCluster):
    """A cluster of one node, with this broker."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._broker = broker
        super().__init__(1)

    def make_host(self, node: MemoryNode) -> EmbeddedBroker:
        return self._broker


class ServedByCore(Served):
    """The core of one node, with a disk in memory that writes and reads in the turn in which it was asked to.

    ``hold`` keeps what is asked from then on from passing the commit point, until ``release``.
    """

    def hold(self) -> None:
        self.node.disk_held = True

    def release(self) -> None:
        self.node.disk_held = False
        self.call(self._due)

    def pass_time(self, seconds: float) -> None:
        """The broker sees its clock now, and again so many seconds later."""
        for now in (0.0, seconds):
            self.call(lambda now=now: self.broker.tick(self.loop.time() + now))

    def _due(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        self.node.report(lambda: None)
        node = self.node
        while (node.writes and not node.disk_held) or node.queue_reads or node.pages:
            if not node.disk_held:
                node.do_writes()
            node.do_queue_reads()

    async def _start(self) -> None:
        self._scheduled = False
        self.node = OneNode(self.broker).settled().primary
        self.node.core.wake = self.node.core.leading.primary.writer.wake = self._due  # type: ignore[union-attr]
        self.server.on_activity = self._due
        await self.server.start()


@pytest.fixture
def core() -> Iterator[ServedByCore]:
    core = ServedByCore(AmqpSettings(port=0))
    core.start()
    yield core
    core.stop()


@pytest.fixture
def channel(core: ServedByCore) -> Iterator[DtxChannel]:
    """A channel in dtx mode; two jobs wait in one queue, the other is empty."""
    channel = DtxChannel(core.port)
    channel.declare("in")
    channel.declare("out")
    channel.publish("in", b"job 1", b"job 2")
    yield channel
    channel.client.close()


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served(AmqpSettings(port=0))
    served.start()
    yield served
    served.stop()
