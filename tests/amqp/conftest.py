"""A real server on loopback over a ledger that commits at each turn of the event loop, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

import pytest

from broker_plugin.amqp.server import AmqpServer, embedded_broker
from broker_plugin.amqp.settings import AmqpSettings
from broker_plugin.embedded.broker import Broker
from tests.embedded.local_ledger import LocalLedger, commit_each_turn

T = TypeVar("T")


class Served:
    """``call`` runs something in the server's event loop and returns what it returned."""

    def __init__(self, settings: AmqpSettings) -> None:
        self.settings = settings
        self.loop = asyncio.new_event_loop()
        self.ledger = LocalLedger()
        self.broker: Broker = embedded_broker()
        self.server = AmqpServer(self.broker, settings)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self.loop).result(10)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self.server.stop(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()

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


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served(AmqpSettings(port=0))
    served.start()
    yield served
    served.stop()
