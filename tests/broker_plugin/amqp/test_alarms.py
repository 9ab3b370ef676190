"""While memory or the disk is short publishers wait, consumers and commits go on, and who takes too much is closed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from pamqp import body, commands, frame, header
from pamqp.commands import Basic, Channel, Queue, Tx

from broker_plugin.amqp.alarms import LOW_ON_DISK
from broker_plugin.amqp.protocol.settings import AmqpSettings
from broker_plugin.embedded.memory_budget import MemoryMarks
from tests.broker_plugin.amqp.conftest import Served, ServedByCore
from tests.broker_plugin.amqp.dtx_client import DtxChannel, xid
from tests.broker_plugin.amqp.raw_client import RawClient

MIB = 1 << 20
MARKS = MemoryMarks(low=3 * MIB, high=4 * MIB, hard=24 * MIB, connection=12 * MIB)
BODY = 100_000


@pytest.fixture
def short() -> Iterator[Served]:
    """A server of which clients may make use of little memory."""
    served = Served(AmqpSettings(port=0))
    served.broker.memory.marks = MARKS
    served.start()
    yield served
    served.stop()


def opened(served: Served, *wanted: Any, can_block: bool = True) -> RawClient:
    """A client with a channel, on which it has asked for this."""
    client = RawClient(served.port, capabilities={"connection.blocked": can_block})
    ask(client, Channel.Open(), *wanted)
    return client


def ask(client: RawClient, *wanted: Any) -> list[Any]:
    """Each is answered before the next one is asked. What else comes meanwhile comes first."""
    answers = []
    for each in wanted:
        client.send(1, each)
        answers.append(answer(client, *each.valid_responses))
    return answers


def answer(client: RawClient, *names: str) -> Any:
    """The next method of one of these names; the connection must not be closed before it comes."""
    while True:
        got = client.next()
        assert got is not None, "the connection is closed"
        if got[1].name in names:
            return got[1]
        assert not isinstance(got[1], commands.Connection.Close), got[1].reply_text


def message(queue: str, size: int = BODY) -> bytes:
    parts = (
        Basic.Publish(0, "", queue),
        header.ContentHeader(0, size, Basic.Properties()),
        body.ContentBody(b"x" * size),
    )
    return b"".join(frame.marshal(each, 1) for each in parts)


def fill(served: Served, client: RawClient, queue: str = "q") -> None:
    """More than the high mark stays in a queue of the node's memory."""
    client.send_bytes(message(queue) * (5 * MIB // BODY))
    served.wait_for(lambda: served.server.alarms.on == {"low on memory": None})


def blocked(client: RawClient) -> str:
    return str(answer(client, "Connection.Blocked").reason)


def is_read(served: Served, client: RawClient) -> bool:
    """Whether the server reads from this client now."""
    port = client._socket.getsockname()[1]
    (found,) = [
        each for each in served.server._protocols if each.connection and each.connection.peer.endswith(f":{port}")
    ]
    return found._reading


def test_publishers_are_blocked_above_the_high_mark_and_consumers_free_them(
    short: Served, caplog: pytest.LogCaptureFixture
) -> None:
    consumer, publisher = opened(short, Queue.Declare(queue="q")), opened(short)
    ask(consumer, Basic.Qos(0, 10))
    fill(short, publisher)
    assert blocked(publisher) == blocked(consumer) == "low on memory"
    publisher.send_bytes(message("q"))
    short.wait_for(lambda: not is_read(short, publisher))
    assert "publishers are blocked until it is less" in caplog.text and "queues 4" in caplog.text
    assert is_read(short, consumer)
    ask(consumer, Basic.Consume(queue="q", consumer_tag="c"))
    taken = 0
    while taken * BODY < 3 * MIB:
        got = answer(consumer, "Basic.Deliver")
        consumer.send(1, Basic.Ack(got.delivery_tag))
        taken += 1
    assert isinstance(answer(publisher, "Connection.Unblocked"), commands.Connection.Unblocked)
    ask(publisher, Queue.Declare(queue="q", passive=True))
    assert "publishers go on" in caplog.text
    consumer.close()
    publisher.close()


def test_only_a_client_that_understands_it_is_told(short: Served) -> None:
    publisher, mute = opened(short, Queue.Declare(queue="q")), opened(short, can_block=False)
    fill(short, publisher)
    mute.send(1, Basic.Qos(0, 1))
    got = mute.next()
    assert got is not None and isinstance(got[1], Basic.QosOk), "and nothing before it"
    mute.close()
    publisher.close()


def test_who_published_before_the_alarm_may_still_acknowledge(short: Served) -> None:
    """Most consumers publish, too; one is blocked that publishes during the alarm."""
    both = opened(short, Queue.Declare(queue="q"), Queue.Declare(queue="r"), Basic.Consume(queue="r"))
    both.send_bytes(message("r"))
    got = answer(both, "Basic.Deliver")
    publisher = opened(short)
    fill(short, publisher)
    assert blocked(both)
    both.send(1, Basic.Ack(got.delivery_tag))
    ask(both, Queue.Declare(queue="r", passive=True))
    both.send_bytes(message("r"))
    short.wait_for(lambda: not is_read(short, both))
    both.close()
    publisher.close()


def test_who_connects_during_an_alarm_is_told_when_its_connection_is_open(short: Served) -> None:
    publisher = opened(short, Queue.Declare(queue="q"))
    fill(short, publisher)
    late = RawClient(short.port)
    assert blocked(late) == "low on memory"
    ask(late, Channel.Open())
    late.send_bytes(message("q"))
    short.wait_for(lambda: not is_read(short, late))
    late.close()
    publisher.close()


def test_a_transaction_that_is_open_is_read_until_its_commit(short: Served) -> None:
    working = opened(short, Queue.Declare(queue="d", durable=True), Tx.Select())
    working.send_bytes(message("d"))
    publisher = opened(short, Queue.Declare(queue="q"))
    fill(short, publisher)
    assert blocked(working)
    for _ in range(5):
        working.send_bytes(message("d") * 5)
    ask(working, Tx.Commit())
    working.send_bytes(message("d"))
    short.wait_for(lambda: not is_read(short, working))
    working.close()
    publisher.close()


def test_what_is_sent_behind_a_commit_waits_though_it_begins_a_transaction(short: Served) -> None:
    """A client that waits for no answer would otherwise always have a transaction open."""
    working = opened(short, Queue.Declare(queue="d", durable=True), Tx.Select())
    working.send_bytes(message("d"))
    publisher = opened(short, Queue.Declare(queue="q"))
    fill(short, publisher)
    working.send_bytes(message("d") + frame.marshal(Tx.Commit(), 1) + message("d"))
    short.wait_for(lambda: not is_read(short, working))
    answer(working, "Tx.CommitOk")
    opened(short).close()
    assert not is_read(short, working), "nor when the commit is answered"
    ask_drain(short, publisher)
    answer(working, "Connection.Unblocked")
    ask(working, Tx.Commit())
    working.close()
    publisher.close()


def test_so_does_that_of_a_client_that_has_come_during_the_alarm(short: Served) -> None:
    publisher = opened(short, Queue.Declare(queue="q"), Queue.Declare(queue="d", durable=True))
    fill(short, publisher)
    late = opened(short, Tx.Select())
    late.send_bytes(message("d", 9) + frame.marshal(Tx.Commit(), 1) + message("d", 9))
    answer(late, "Tx.CommitOk")
    short.wait_for(lambda: not is_read(short, late))
    late.close()
    publisher.close()


def test_a_transaction_that_began_during_an_earlier_alarm_is_read_in_the_next_one(short: Served) -> None:
    """It holds memory by now, which is free only with its end."""
    working = opened(short, Queue.Declare(queue="d", durable=True), Tx.Select())
    working.send_bytes(message("d"))
    publisher = opened(short, Queue.Declare(queue="q"))
    fill(short, publisher)
    ask(working, Tx.Commit())
    ask_drain(short, publisher)
    working.send_bytes(message("d"))
    ask(working, Basic.Qos(0, 1))
    fill(short, publisher)
    working.send_bytes(message("d") * 5)
    ask(working, Tx.Commit())
    working.close()
    publisher.close()


def ask_drain(served: Served, publisher: RawClient) -> None:
    """The queue that brought the alarm about is empty again."""
    other = opened(served, Queue.Purge(queue="q"))
    served.wait_for(lambda: not served.server.alarms.on)
    other.close()


def test_a_transaction_that_grows_beyond_its_share_is_rolled_back_with_its_connection(short: Served) -> None:
    working = opened(short, Queue.Declare(queue="d", durable=True), Tx.Select())
    working.send_bytes(message("d") * (5 * MIB // BODY))
    assert blocked(working) == "low on memory"
    try:
        for _ in range(20):
            working.send_bytes(message("d") * (MIB // BODY))
    except OSError:
        pass
    closed = answer_of_close(working)
    assert closed.reply_code == 406 and "more than the 12582912 that one may" in closed.reply_text
    short.wait_for(lambda: not short.server.alarms.on and short.broker.held_bytes < MIB)
    assert short.server.alarms.closed == 1


def answer_of_close(client: RawClient) -> commands.Connection.Close:
    while True:
        got = client.next()
        assert got is not None
        if isinstance(got[1], commands.Connection.Close):
            return got[1]


def test_when_the_alarm_begins_each_client_is_kept_to_its_share(short: Served) -> None:
    """Also one that sends nothing just then: it was another one that brought the alarm about."""
    short.broker.memory.marks = MARKS._replace(connection=2 * MIB)
    idle = opened(short, Queue.Declare(queue="q"), Tx.Select())
    idle.send_bytes(message("q") * (3 * MIB // BODY))
    ask(idle, Basic.Qos(0, 1))
    publisher = opened(short)
    publisher.send_bytes(message("q") * (2 * MIB // BODY))
    closed = answer_of_close(idle)
    assert closed.reply_code == 406 and "memory.connection_bytes" in closed.reply_text
    publisher.close()
    idle.close()


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [type(each.msg.event).__name__ for each in caplog.records if hasattr(each.msg, "event")]


def test_clients_that_are_closed_one_after_the_other_leave_one_line(
    short: Served, caplog: pytest.LogCaptureFixture
) -> None:
    short.broker.memory.marks = MARKS._replace(connection=2 * MIB)
    greedy = [opened(short, Queue.Declare(queue="q"), Tx.Select()) for _ in range(3)]
    for client in greedy:
        client.send_bytes(message("q"))
        ask(client, Basic.Qos(0, 1))
    publisher = opened(short)
    fill(short, publisher)
    for client in greedy:
        client.send_bytes(message("q") * (3 * MIB // BODY))
        assert answer_of_close(client).reply_code == 406
        client.close()
    publisher.close()
    assert short.server.alarms.closed == 3
    assert lines(caplog) == ["MemoryShort", "GreedyClientClosed"]


def test_an_alarm_that_comes_and_goes_is_told_once(short: Served, caplog: pytest.LogCaptureFixture) -> None:
    publisher = opened(short, Queue.Declare(queue="q"))
    for _ in range(3):
        publisher.send_bytes(message("q") * (5 * MIB // BODY))
        answer(publisher, "Connection.Blocked")
        other = opened(short, Queue.Purge(queue="q"))
        answer(publisher, "Connection.Unblocked")
        other.close()
        ask(publisher, Queue.Purge(queue="q"))
    assert lines(caplog) == ["MemoryShort", "MemoryEnough"]


def test_beyond_the_hard_mark_the_greediest_is_closed(short: Served) -> None:
    """Both hold less than their share; it is the larger one that goes, and the other can commit."""
    short.broker.memory.marks = MARKS._replace(hard=6 * MIB)
    small = opened(short, Queue.Declare(queue="d", durable=True), Tx.Select())
    large = opened(short, Tx.Select())
    small.send_bytes(message("d") * (MIB // BODY))
    large.send_bytes(message("d") * (4 * MIB // BODY))
    assert blocked(large) == blocked(small)
    small.send_bytes(message("d") * (2 * MIB // BODY))
    closed = answer_of_close(large)
    assert closed.reply_code == 406 and "this one the most" in closed.reply_text
    ask(small, Tx.Commit())
    small.close()
    large.close()


def test_messages_of_no_client_close_no_client(short: Served) -> None:
    """A queue that is full of what was published by clients that have gone is none's fault that are here."""
    short.broker.memory.marks = MARKS._replace(hard=4 * MIB + 1)
    publisher = opened(short, Queue.Declare(queue="q"))
    fill(short, publisher)
    other = opened(short)
    assert short.broker.held_bytes > short.broker.memory.marks.hard and short.server.alarms.closed == 0
    other.close()
    publisher.close()


def test_a_client_that_does_not_read_is_dropped_without_the_sentence(short: Served) -> None:
    """What it holds is what it does not read; no word would reach it behind that."""
    short.broker.memory.marks = MARKS._replace(hard=4 * MIB + 1, high=4 * MIB, low=2 * MIB)
    publisher = opened(short, Queue.Declare(queue="q", durable=True))
    publisher.send_bytes(message("q") * (20 * MIB // BODY))
    deaf = opened(short)
    deaf.send(1, Basic.Consume(queue="q", consumer_tag="c", no_ack=True))
    short.wait_for(lambda: short.server.alarms.closed == 1)
    short.wait_for(lambda: short.server.connections == 1 and not short.broker.memory.kinds[1])
    publisher.close()
    deaf.close()


def test_the_disk_blocks_as_memory_does_and_both_must_be_over(served: Served) -> None:
    publisher = opened(served, Queue.Declare(queue="q"))
    served.call(served.server.alarms.set, LOW_ON_DISK, True)
    assert blocked(publisher) == "low on disk"
    served.call(served.server.alarms.set, "low on memory", True)
    publisher.send_bytes(message("q"))
    served.wait_for(lambda: not is_read(served, publisher))
    served.call(served.server.alarms.set, LOW_ON_DISK, False)
    assert not is_read(served, publisher)
    served.call(served.server.alarms.set, "low on memory", False)
    answer(publisher, "Connection.Unblocked")
    assert is_read(served, publisher)
    publisher.close()


def test_a_branch_is_read_until_its_end(core: ServedByCore, channel: DtxChannel) -> None:
    """From its start to its decision, also while no channel works on it."""
    branch = xid("g")
    channel.start(branch)
    channel.publish("out", b"1")
    core.call(core.server.alarms.set, LOW_ON_DISK, True)
    assert blocked(channel.client)
    channel.publish("out", b"2")
    channel.end(branch)
    assert channel.prepare(branch) == channel.commit(branch) == 0
    channel.client.send_bytes(message("out"))
    core.wait_for(lambda: not is_read(core, channel.client))


def test_a_branch_that_another_client_has_begun_is_read_while_it_is_suspended(
    core: ServedByCore, channel: DtxChannel
) -> None:
    branch, other = xid("g"), channel.another()
    other.start(branch)
    channel.start(branch, join=True)
    core.call(core.server.alarms.set, LOW_ON_DISK, True)
    assert blocked(channel.client) and blocked(other.client)
    channel.publish("out", b"1")
    channel.end(branch, suspend=True)
    channel.start(branch, resume=True)
    channel.end(branch)
    other.end(branch)
    assert other.prepare(branch) == other.commit(branch) == 0


def test_what_is_remembered_of_connections_is_forgotten_in_an_alarm(short: Served) -> None:
    idle = opened(short, Queue.Declare(queue="q"))
    idle.send_bytes(b"".join(message("q", 10) for _ in range(3)))
    ask(idle, Queue.Declare(queue="q", passive=True))
    before = short.broker.memory.kinds[2]
    publisher = opened(short)
    fill(short, publisher)
    assert before > 300 and short.broker.memory.kinds[2] < before + 300
    idle.close()
    publisher.close()


@pytest.fixture(autouse=True)
def every_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
