"""What one connection can make a turn of the loop do, in counted steps; and that the others have their share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pamqp import commands, frame, heartbeat
from pamqp.commands import Basic, Channel, Queue, Tx

from broker_plugin.amqp.protocol.channel import MAKING_STEPS, OCTETS_A_STEP
from broker_plugin.amqp.protocol.reading import SHARE, Reading
from broker_plugin.embedded.queues.turn import STEPS
from tests.broker_plugin.amqp.peer import Peer, publish
from tests.broker_plugin.embedded.harness import Harness

pytestmark = pytest.mark.plain


class Turns:
    """Turns of an event loop: what a reading schedules is called in the next one."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.reading = Reading(harness.broker.turn, self._schedule)
        self._next: list[Callable[[], None]] = []

    def _schedule(self, call: Callable[[], None]) -> None:
        self._next.append(call)

    def turn(self) -> None:
        """The next one."""
        calls, self._next = self._next, []
        for call in calls:
            call()


class Socket:
    """A client of a reading; ``reads`` says whether its socket is read."""

    def __init__(self, turns: Turns) -> None:
        self.peer = Peer(turns.harness).open()
        self.peer.send(1, Queue.Declare(queue="q"))
        self.peer.settle()
        self.peer.frames()
        self.reads = True
        self._reading = turns.reading

    def sends(self, *values: object) -> None:
        self.arrives(b"".join(frame.marshal(value, 1) for value in values))  # type: ignore[arg-type]

    def arrives(self, data: bytes) -> None:
        assert self.reads
        self.reads = not self._reading.arrived(self, data)

    def take(self, data: bytes, most: int) -> bool:
        self.peer.connection.receive(data, most)
        return self.peer.connection.behind

    def taken(self) -> None:
        self.reads = True

    @property
    def answers(self) -> int:
        """Frames that were sent to it since this was asked."""
        return len(self.peer.frames())


@pytest.fixture
def turns() -> Turns:
    return Turns(Harness())


def test_a_turn_carries_out_so_many_frames_of_one_client(turns: Turns) -> None:
    client = Socket(turns)
    client.sends(*[Basic.Qos(prefetch_count=1)] * (3 * STEPS))
    counts = [client.answers]
    assert not client.reads
    while not client.reads:
        turns.turn()
        counts.append(client.answers)
    assert sum(counts) == 3 * STEPS and max(counts) <= STEPS
    client.sends(Basic.Qos(prefetch_count=1))
    turns.turn()
    assert client.answers == 1


def test_a_client_that_sends_little_does_not_wait_for_one_that_sends_much(turns: Turns) -> None:
    """``a_client_that_sends_much``: its frames are carried out when each of the others has had its share."""
    greedy, modest = Socket(turns), [Socket(turns) for _ in range(3)]
    greedy.sends(*[Basic.Qos(prefetch_count=1)] * (10 * STEPS))
    for each in modest:
        each.sends(Basic.Qos(prefetch_count=1))
    turns.turn()
    assert [each.answers for each in modest] == [1, 1, 1] and all(each.reads for each in modest)
    assert not greedy.reads and greedy.answers <= 2 * STEPS


def test_who_comes_while_another_waits_comes_behind_it(turns: Turns) -> None:
    """Also where the work at the end of a turn has made room, before who waits has had its share."""
    first, second = Socket(turns), Socket(turns)
    first.sends(*[Basic.Qos(prefetch_count=1)] * (2 * STEPS))
    turns.harness.broker.turn.begin()
    second.sends(*[Basic.Qos(prefetch_count=1)] * STEPS)
    assert second.answers == 0 and not second.reads
    while not (first.reads and second.reads):
        turns.turn()
    assert first.answers == 2 * STEPS and second.answers == STEPS


def test_clients_that_send_much_take_turns(turns: Turns) -> None:
    clients = [Socket(turns) for _ in range(4)]
    for each in clients:
        each.sends(*[Basic.Qos(prefetch_count=1)] * (10 * STEPS))
    for each in clients:
        assert each.answers <= STEPS
    for _ in range(8):
        turns.turn()
        counts = [each.answers for each in clients]
        assert max(counts) <= 2 * SHARE and sum(counts) <= STEPS
    turns.turn()
    assert all(each.answers for each in clients)


def test_publishes_are_counted_too(turns: Turns) -> None:
    client = Socket(turns)
    client.arrives(publish("q", b"m") * (2 * STEPS))
    queue = turns.harness.broker.topology.queues["q"]
    assert queue.ready <= STEPS
    turns.turn()
    turns.turn()
    assert queue.ready == 2 * STEPS and client.reads


def test_a_frame_in_two_pieces_behind_a_share(turns: Turns) -> None:
    """What waits may end in the middle of a frame; the rest of it comes when the socket is read again."""
    client = Socket(turns)
    data = publish("q", b"m") * (2 * STEPS)
    client.arrives(data[:-5])
    while not client.reads:
        turns.turn()
    client.arrives(data[-5:])
    assert turns.harness.broker.topology.queues["q"].ready == 2 * STEPS


def test_what_comes_behind_the_end_is_forgotten(turns: Turns) -> None:
    client = Socket(turns)
    client.sends(*[Basic.Qos(prefetch_count=1)] * (2 * STEPS))
    client.peer.connection.end()
    turns.turn()
    assert client.reads and client.peer.connection.ended


def table(octets: int) -> bytes:
    """A table of one array of so many voids."""
    array = b"\1aA" + octets.to_bytes(4, "big") + b"V" * octets
    return len(array).to_bytes(4, "big") + array


@pytest.mark.parametrize(
    "pair",
    [
        (Channel.Open(), Channel.Close(200, "", 0, 0)),
        (Basic.Consume(queue="q", consumer_tag="t", nowait=True), Basic.Cancel("t", nowait=True)),
        (Queue.Declare(queue="mine", exclusive=True), Queue.Delete(queue="mine")),
    ],
    ids=lambda pair: pair[0].name,
)
def test_what_makes_something_counts_as_some_frames(turns: Turns, pair: tuple[frame.base.Frame, ...]) -> None:
    """``a_flood_of_channels``: 500 channels were opened and closed in a turn, which took 60 ms on a busy machine."""
    client, channel = Socket(turns), 5 if isinstance(pair[0], Channel.Open) else 1
    client.arrives(b"".join(frame.marshal(value, channel) for value in pair) * STEPS)
    count, work = 0, client.peer.connection.broker.turn
    while not client.reads:
        turns.turn()
        count += 1
        assert work.spent <= STEPS + SHARE
    assert count >= 2 * STEPS * (MAKING_STEPS + 1) // (STEPS + SHARE) - 1


def test_what_waited_behind_many_closes_is_carried_out_in_turns() -> None:
    """``a_flood_of_channels``: while its client does not read, all of it waits on one channel, which is the next one
    and the next one. It was carried out in one turn."""
    harness = Harness()
    peer, work = Peer(harness).open(), harness.broker.turn
    pair = frame.marshal(Channel.Close(200, "", 0, 0), 1) + frame.marshal(Channel.Open(), 1)
    peer.connection.set_writable(False)
    peer.connection.receive(pair * STEPS)
    assert not peer.frames()
    work.begin()
    peer.connection.set_writable(True)
    answers, count = len(peer.frames()), 1
    while answers < 2 * STEPS:
        assert work.spent <= STEPS + 2 * (MAKING_STEPS + 1)
        work.run()
        answers += len(peer.frames())
        count += 1
    assert count >= 2 * (MAKING_STEPS + 1) - 1 and not peer.connection.waiting_bytes
    peer.send(1, Basic.Qos(prefetch_count=1))
    assert len(peer.frames()) == 1


def test_a_long_table_counts_as_many_frames(turns: Turns) -> None:
    """``an_array_of_voids``: a frame may hold a hundred thousand values, and be one of thousands."""
    client = Socket(turns)
    declare = b"\0\x32\0\x0a\0\0\1q\0" + table(4000)
    one = b"\1\0\1" + len(declare).to_bytes(4, "big") + declare + b"\xce"
    client.arrives(one * 100)
    carried_out = client.answers
    assert carried_out <= STEPS * OCTETS_A_STEP // 4000 + 1
    while not client.reads:
        turns.turn()
    assert carried_out + client.answers == 100


def test_what_waited_behind_a_request_is_carried_out_in_turns() -> None:
    """A declaration waits for the stream; a client may have sent 40,000 frames behind it."""
    peer = Peer().open()
    peer.send(1, Queue.Declare(queue="d", durable=True), *[Basic.Qos(prefetch_count=1)] * (3 * STEPS))
    assert not peer.frames()
    harness, counts = peer.harness, []
    harness.broker.turn.longest = 0
    while sum(counts) < 3 * STEPS + 1:
        harness.turn()
        harness.ledger.commit()
        counts.append(len(peer.frames()))
    assert max(counts) <= 2 * STEPS and peer.connection.waiting_bytes == 0


def many_held(tx: bool = False) -> Peer:
    """A client that holds more than a turn gives back."""
    peer = Peer(output_bytes=1 << 30).open()
    peer.send(1, Queue.Declare(queue="q", durable=True))
    peer.settle()
    for _ in range(6):
        peer.connection.receive(publish("q", b"m") * (STEPS // 2))
        peer.settle()
    if tx:
        peer.send(1, Tx.Select())
    peer.send(1, Basic.Consume(queue="q", consumer_tag="c"))
    peer.settle()
    assert len(peer.connection.channels.by_number[1].inner.unacked) == 3 * STEPS
    peer.frames()
    peer.send(1, Basic.Cancel("c"))
    peer.settle()
    peer.frames()
    return peer


@pytest.mark.parametrize(
    ("request_frame", "answer"),
    [
        (Basic.Recover(True), "Basic.RecoverOk"),
        (Basic.Nack(0, True, True), None),
        (Basic.Reject(1, True), None),
        (Basic.Ack(0, True), None),
        (Tx.Rollback(), "Tx.RollbackOk"),
    ],
)
def test_a_request_of_many_pieces_is_answered_in_order(request_frame: frame.base.Frame, answer: str | None) -> None:
    tx = isinstance(request_frame, Tx.Rollback)
    peer = many_held(tx)
    if tx:
        peer.send(1, Basic.Ack(0, True))
        peer.settle()
    peer.send(1, request_frame, Basic.Qos(prefetch_count=1), Queue.Declare(queue="q", passive=True))
    peer.settle()
    answers = peer.frames()
    names = [each.split(" ")[1] if " " in each else each for each in answers]
    wanted = [answer, "Basic.QosOk", "Queue.DeclareOk"] if answer else ["Basic.QosOk", "Queue.DeclareOk"]
    assert len(names) == len(wanted), answers
    for name, want in zip(names, wanted, strict=True):
        assert want.partition(".")[2] in name or want in name, answers


def test_a_channel_is_closed_when_what_it_held_is_back_and_the_next_one_of_its_number_opens_then() -> None:
    peer = many_held()
    peer.send(1, Channel.Close(200, "", 0, 0), Channel.Open(), Queue.Declare(queue="q", passive=True))
    assert not peer.frames()
    peer.settle()
    answers = peer.frames()
    assert len(answers) == 3 and "CloseOk" in answers[0] and "OpenOk" in answers[1], answers
    assert str(3 * STEPS) in answers[2]


def test_a_channel_that_fails_is_closed_when_what_it_held_is_back() -> None:
    peer = many_held()
    peer.send(1, Basic.Ack(99_999, False))
    assert not peer.frames()
    peer.settle()
    (answer,) = peer.frames()
    assert "Channel.Close" in answer and "406" in answer
    peer.send(1, Channel.CloseOk(), Channel.Open(), Queue.Declare(queue="q", passive=True))
    peer.settle()
    assert str(3 * STEPS) in peer.frames()[-1]


@pytest.mark.parametrize("behind", [False, True])
def test_a_connection_is_closed_in_the_middle_of_a_request(behind: bool) -> None:
    """The client closes the connection behind a request of many pieces, or in the middle of a channel's end."""
    peer = many_held()
    peer.send(1, Channel.Close(200, "", 0, 0) if behind else Basic.Recover(True))
    peer.send(0, commands.Connection.Close(200, "", 0, 0))
    peer.settle()
    answers = peer.frames()
    assert "Connection.CloseOk" in answers[-1] and peer.connection.ended, answers
    other = Peer(peer.harness).open()
    other.send(1, Queue.Declare(queue="q", passive=True))
    other.settle()
    assert str(3 * STEPS) in other.frames()[-1]


def test_heartbeats_between_frames_are_frames(turns: Turns) -> None:
    client = Socket(turns)
    client.arrives(frame.marshal(heartbeat.Heartbeat(), 0) * (2 * STEPS) + frame.marshal(Basic.Qos(), 1))
    assert client.answers == 0
    while not client.reads:
        turns.turn()
    assert client.answers == 1
