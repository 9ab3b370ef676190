"""Feeder and workers on pika, each a thread with a connection of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from python_tests.harness.history import FAILED, OK, ROLLED_BACK, Attempt, History
from python_tests.harness.last_words import raised_not_done
from python_tests.harness.load import RETRY_SECONDS, Load, Plan, Planner, body_of, message_of, place_of
from recovery.dtx.lost import LOST, connected

PERSISTENT = pika.BasicProperties(delivery_mode=2)


def parameters(url: str) -> pika.URLParameters:
    """How the clients connect: a client that does not hear anything for long goes to the next node."""
    found = pika.URLParameters(url)
    found.heartbeat = 10
    found.socket_timeout = 2
    found.stack_timeout = 6
    found.blocked_connection_timeout = 10
    return found


class Client(threading.Thread):
    """Connects to any of ``urls``, and to the next one when the connection is lost, until it is stopped."""

    def __init__(self, name: str, urls: Sequence[str], first: int = 0) -> None:
        super().__init__(name=name, daemon=True)
        self.stopping = threading.Event()
        self.lives = 0
        self.url = ""
        self.failure: Exception | None = None
        self._urls = list(urls)
        self._first = first

    def run(self) -> None:
        """Work, whatever happens to connections."""
        while not self.stopping.is_set():
            try:
                self.connect_and_work()
            except LOST:
                self.stopping.wait(RETRY_SECONDS)
            except Exception as error:
                self.failure = error
                return

    def connect_and_work(self) -> None:
        """Work on one connection. Raises ``LOST`` when that is lost."""
        self.lives += 1
        self.url = self._urls[(self._first + self.lives) % len(self._urls)]
        connection = connected(parameters(self.url))
        try:
            self.work(connection)
        finally:
            if connection.is_open:
                connection.close()

    def work(self, connection: pika.BlockingConnection) -> None:
        """The client's work on one connection."""
        raise AssertionError("a client has work to do")

    def stop(self) -> None:
        """Let it finish. Raises TimeoutError if it does not end, and what ended it early if anything did."""
        self.stopping.set()
        if self.ident is None:
            return  # never started: what came before it failed, and that is what is told
        self.join(20)
        if self.is_alive():
            raise TimeoutError(f"{self.name} did not end within 20 s")
        if self.failure is not None:
            raise self.failure


class Worker(Client):
    """Takes an input, publishes to the three outputs, acknowledges the input, all in one transaction.

    Every other worker consumes, the rest get; a worker whose channel was closed opens another one.
    """

    def __init__(self, number: int, urls: Sequence[str], history: History, load: Load) -> None:
        super().__init__(f"pika{number}", urls, number)
        self._history = history
        self._input = load.queues.input
        self._plans = Planner(load, self.name, number)
        self._consumes = number % 2 == 0
        self._until_empty = False
        self._channels = 0

    def work(self, connection: pika.BlockingConnection) -> None:
        """One transaction after the other."""
        while not self.stopping.is_set():
            channel = connection.channel()
            try:
                self._work(connection, channel)
            except ChannelClosedByBroker:
                connection.sleep(RETRY_SECONDS)
                continue
            channel.close()

    def work_off(self) -> None:
        """Work until the queue says that it is empty. Raises ``LOST``."""
        self._consumes, self._until_empty = False, True
        self.connect_and_work()

    def _work(self, connection: pika.BlockingConnection, channel: BlockingChannel) -> None:
        self._channels += 1
        name = f"{self.name}#{self._channels}"
        self._history.connected(name, place_of(self.url))
        channel.tx_select()
        session = self._history.watching(self._input, name, 1)
        try:
            for tag, redelivered, body in self._inputs(connection, channel):
                source = message_of(body)
                self._history.saw(session, source, redelivered)
                self._take(connection, channel, name, tag, source)
                if self.stopping.is_set():
                    return
        finally:
            self._history.watched(session, clean=False)

    def _inputs(
        self, connection: pika.BlockingConnection, channel: BlockingChannel
    ) -> Iterator[tuple[int, bool, bytes]]:
        if self._consumes:
            channel.basic_qos(prefetch_count=1)
            for method, _, body in channel.consume(self._input, inactivity_timeout=0.1):
                if method is not None:
                    yield method.delivery_tag, method.redelivered, body
                elif self.stopping.is_set():
                    return
        while not self.stopping.is_set():
            method, _, body = channel.basic_get(self._input)
            if method is not None:
                yield method.delivery_tag, method.redelivered, body
            elif self._until_empty:
                self.stopping.set()
            else:
                connection.sleep(0.05)

    def _take(self, connection: pika.BlockingConnection, channel: Any, name: str, tag: int, source: str) -> None:
        """One input: a transaction that commits or gives it back, or one that rolls back and then one that commits."""
        plan = self._plans.plan()
        self._transact(connection, channel, name, tag, source, plan)
        if plan.roll_back and plan.again:
            self._transact(connection, channel, name, tag, source, self._plans.plan_again())
        elif plan.roll_back:
            channel.basic_nack(tag, requeue=True)
            channel.tx_commit()

    def _transact(
        self, connection: pika.BlockingConnection, channel: Any, name: str, tag: int, source: str, plan: Plan
    ) -> None:
        attempt = self._history.begin(name, [source], on_purpose=plan.roll_back)
        try:
            self._publish(connection, channel, attempt, plan)
            channel.basic_ack(tag)
            if plan.roll_back:
                channel.tx_rollback()
                self._history.answer(attempt, ROLLED_BACK)
            else:
                self._history.committing(attempt)
                channel.tx_commit()
                self._history.answer(attempt, OK)
        except ChannelClosedByBroker as error:
            if error.reply_code == 406:
                self._history.answer(attempt, FAILED)
            raise
        finally:
            self._history.interrupted(attempt, raised_not_done(channel.channel_number))

    def _publish(self, connection: pika.BlockingConnection, channel: Any, attempt: Attempt, plan: Plan) -> None:
        for part in plan.parts():
            for queue in part:
                channel.basic_publish("", queue, body_of(self._history.publishing(attempt, queue)), PERSISTENT)
            connection.sleep(plan.pause / 3)


class Feeder(Client):
    """Publishes inputs with confirms, until as many wait as the load allows. An unconfirmed one is given up."""

    def __init__(self, number: int, urls: Sequence[str], history: History, load: Load) -> None:
        super().__init__(f"feeder{number}", urls, number)
        self._history = history
        self._input = load.queues.input
        self._load = load

    def work(self, connection: pika.BlockingConnection) -> None:
        """One input after the other."""
        name = f"{self.name}#{self.lives}"
        self._history.connected(name, place_of(self.url))
        channel = connection.channel()
        channel.confirm_delivery()
        while not self.stopping.is_set():
            history, load = self._history, self._load
            if history.fed() - history.committed() > load.ahead or history.backlog() > load.backlog:
                connection.sleep(0.02)
                continue
            attempt = self._history.begin(name, plain=True)
            try:
                message = self._history.publishing(attempt, self._input)
                self._history.committing(attempt)
                channel.basic_publish("", self._input, body_of(message), PERSISTENT)
                self._history.answer(attempt, OK)
            finally:
                self._history.interrupted(attempt, raised_not_done(channel.channel_number))
