"""``stale_answers_of_a_primary_that_woke_up``: a process that was stopped for longer than its lease tells nothing from
its former reign: no get, no count, no delivery, no outcome, no list. The real shell, over a clock that is put on.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pamqp import commands, frame
from pamqp.commands import Basic, Queue

import recovery.store.store as store_module
from broker_plugin.admin.server import AdminServer, Handler
from broker_plugin.amqp.protocol.settings import AmqpSettings
from broker_plugin.coordination.record_thread import RecordThread
from broker_plugin.node.branch_admin import BranchAdmin
from broker_plugin.node.operator_branches import EmbeddedBranches
from broker_plugin.node.shell import Clocks, wall_ms
from broker_plugin.node.wiring import amqp_server, restored, wire
from ha.membership.record import MemoryCoordination, first_record
from ha.messages.greeting import WIRE_VERSION, Hello
from ha.settings import Settings
from recovery.store.store import StoreSettings
from tests.broker_plugin.amqp.conftest import Served
from tests.broker_plugin.amqp.dtx_client import DtxChannel, xid
from tests.support.far_end import CREDENTIALS
from txobserver import dtx_wire as dtx

X = xid("x")
Asked = tuple[Any, ...]


class ServedByShell(Served):
    """One node as the process wires it, but for its clock, which goes on by hand only: no stall of ours is a sleep."""

    def __init__(self, directory: Path) -> None:
        super().__init__(AmqpSettings(port=0))
        self.directory = directory
        self.now = 1000.0
        self.clocks = Clocks(now=lambda: self.now)
        self.coordination = MemoryCoordination()
        self.surroundings: Any = None
        self.local_calls: Any = None
        self.stopped: list[str] = []

    async def _start(self) -> None:
        self.guard.watch()
        cluster_id = "0" * 32
        self.store = store_module.open_store(
            self.directory,
            cluster="test",
            node="a",
            settings=StoreSettings(),
            post=self.guard.call_soon_threadsafe,
            new_incarnation=lambda: "1",
            now_ms=wall_ms,
            cluster_id=cluster_id,
        )
        if self.coordination.record is None:
            self.coordination.record = first_record("test", cluster_id, self.store.member)
        self.parts = wire(
            self.guard,
            self.store,
            restored(self.store),
            self.broker,
            Settings(),
            Hello(WIRE_VERSION, "test", "a", "127.0.0.1", 1, cluster_id),
            CREDENTIALS,
            [],
            RecordThread(self.coordination, self.guard),
            self.stopped.append,
            clocks=self.clocks,
            local_calls=self.local_calls,
            surroundings=self.surroundings,
        )
        shell = self.parts.shell
        self.server = amqp_server(self.parts, self.guard, self.broker, self.settings)
        self.admin = AdminServer(self.guard, self.directory, self.handlers())
        shell.start()
        await self._until(lambda: self.broker.active)
        await self.server.start()

    def handlers(self) -> dict[str, Handler]:
        return BranchAdmin(self.parts.core, EmbeddedBranches(self.broker), self.parts.shell).handlers

    def stop(self) -> None:
        self.call(self.parts.shell.stop)
        super().stop()
        self.parts.records.stop()
        self.store.close()

    def sleep(self) -> None:
        """The process is stopped, and goes on when its lease is another's."""
        self.now += 60.0

    def administer(self, command: str, **arguments: Any) -> dict[str, Any]:
        line = json.dumps({"token": self.admin._token, "command": command, "arguments": arguments}).encode()
        return asyncio.run_coroutine_threadsafe(self.admin._answer(line), self.loop).result(10)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ServedByShell]:
    node = ServedByShell(tmp_path / "a")
    node.start()
    yield node
    node.stop()


@pytest.fixture
def client(node: ServedByShell) -> DtxChannel:
    """With a queue that holds a message, and a prepared branch."""
    channel = DtxChannel(node.port)
    channel.ask(Queue.Declare(queue="q", durable=True))
    channel.publish("q", b"m")
    channel.prepared(X, "q", b"t")
    return channel


def received(channel: DtxChannel) -> list[Any]:
    """Everything until the connection is lost; connection.close is answered."""
    found = []
    while (each := channel.client.next()) is not None:
        found.append(each[1])
        if isinstance(each[1], commands.Connection.Close):
            channel.client.send(0, commands.Connection.CloseOk())
    return found


ASKED: list[Asked] = [
    (Basic.Get(queue="q"),),
    (Queue.Declare(queue="q", passive=True),),
    (Basic.Consume(queue="q", consumer_tag="c"),),
    (dtx.Outcome(0, X),),
    (dtx.Outcome(1, dtx.XidFields(0, b"token", b"")),),
    (dtx.Recover(),),
    (dtx.Global(1, b"x"),),
    (dtx.Commit(X),),
]


def only_closed(found: list[Any]) -> None:
    """The client is told that this node serves no more, and nothing else."""
    assert [type(each) for each in found] == [commands.Connection.Close], found
    assert found[0].reply_code == 320


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: asked[0].name)
def test_asked_while_it_was_stopped(node: ServedByShell, client: DtxChannel, asked: Asked) -> None:
    """The request waits in the socket, and is the first thing that the process finds."""
    node.call(node.sleep)
    client.send(*asked)
    only_closed(received(client))


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: asked[0].name)
def test_stopped_before_the_answer_has_left(node: ServedByShell, client: DtxChannel, asked: Asked) -> None:
    """The request was taken; its answer is made, or sent, when the process goes on."""
    (protocol,) = node.server._protocols
    data = b"".join(frame.marshal(each, client.number) for each in asked)

    def taken_and_stopped() -> None:
        protocol.data_received(data)
        node.sleep()

    node.call(taken_and_stopped)
    only_closed(received(client))


def taken(node: ServedByShell, channel: DtxChannel) -> None:
    """A request is taken; its answer waits to be sent when the turn ends."""
    (protocol,) = node.server._protocols
    protocol.data_received(frame.marshal(Queue.Declare(queue="q", passive=True), channel.number))
    assert protocol.connection is not None and protocol.connection._output


def given_up(node: ServedByShell) -> None:
    """The lease is given up, which is stored, and the loop has not come to the answer; then the process is stopped."""
    shell = node.parts.shell
    shell.report(lambda: node.parts.core.resign("the node is stopping"))
    shell._turn()
    shell._records._calls.wait(list(shell._records._changes), 5.0)
    node.sleep()


@pytest.mark.parametrize("first", ["the part that looks at the clock", "the loop"])
def test_given_up_and_stopped_before_the_answer_has_left(node: ServedByShell, client: DtxChannel, first: str) -> None:
    """Whichever is told first that the lease has been given up: it is over by then."""

    def taken_and_stopped() -> None:
        taken(node, client)
        given_up(node)
        if first == "the loop":
            node.parts.records._tell()
            assert node.parts.core.leading is None

    node.call(taken_and_stopped)
    only_closed(received(client))


def test_failed_and_stopped_before_the_answer_has_left(node: ServedByShell, client: DtxChannel) -> None:
    def taken_and_stopped() -> None:
        taken(node, client)
        node.parts.shell.store_failed("the disk is full")
        node.sleep()

    node.call(taken_and_stopped)
    only_closed(received(client))


def test_stopped_for_long_before_its_store_failed(node: ServedByShell, client: DtxChannel) -> None:
    def taken_and_stopped() -> None:
        taken(node, client)
        node.sleep()
        node.parts.shell.store_failed("the disk is full")

    node.call(taken_and_stopped)
    only_closed(received(client))


def test_one_report_goes_by_one_reading_of_the_clock(node: ServedByShell, client: DtxChannel) -> None:
    """The process may be stopped between two, of which the second says that it has overslept."""
    shell, readings = node.parts.shell, list[float]()

    def reported() -> None:
        now = shell._now
        shell._now = lambda: readings.append(now()) or readings[-1]  # type: ignore[func-returns-value]
        shell.report(lambda: None)
        shell._now = now

    node.call(reported)
    assert len(readings) == 1


def test_a_delivery_that_has_not_left(node: ServedByShell, client: DtxChannel) -> None:
    """A consumer that waits: a message passes the commit point, and the process is stopped before the turn ends."""
    client.ask(Queue.Declare(queue="other", durable=True))
    client.ask(Basic.Consume(queue="other", consumer_tag="c"))
    publisher = DtxChannel(node.port)
    enqueued = node.broker.on_enqueued

    def stopped(*arguments: Any) -> None:
        enqueued(*arguments)
        node.sleep()

    node.call(lambda: setattr(node.broker, "on_enqueued", stopped))
    publisher.publish("other", b"m")
    only_closed(received(client))


@pytest.mark.parametrize(("command", "arguments"), [("dtx.list", {}), ("dtx.show", {"xid": "1:x:b"})])
def test_an_operator_who_asks(node: ServedByShell, client: DtxChannel, command: str, arguments: dict[str, str]) -> None:
    assert node.administer(command, **arguments)["ok"]
    node.call(node.sleep)
    answer = node.administer(command, **arguments)
    assert not answer["ok"] and "not the active primary" in answer["error"]


def test_who_was_stopped_for_less_goes_on(node: ServedByShell, client: DtxChannel) -> None:
    """Also if an answer waits: nothing is lost."""
    (protocol,) = node.server._protocols

    def hiccup() -> None:
        protocol.data_received(frame.marshal(Basic.Get(queue="q"), client.number))
        node.now += 0.1

    node.call(hiccup)
    assert isinstance(client.answer(), Basic.GetOk)
