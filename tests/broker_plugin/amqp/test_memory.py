"""What clients make a node hold is counted, whatever they do, and is what a recount finds."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from pamqp import body, commands, frame, header
from pamqp.commands import Basic, Channel, Queue, Tx

from broker_plugin.amqp.protocol.client_connection import CACHE_BYTES
from broker_plugin.embedded.memory_budget import KINDS, RECEIVED
from tests.broker_plugin.amqp.peer import Peer, publish
from tests.broker_plugin.embedded.harness import Harness
from tests.support.memory_recount import by_kind, open_in

SIZES = st.sampled_from((0, 1, 10, 3000, 9000))
PLACES = st.sampled_from(("shared", "durable", "none"))
PEER = st.integers(0, 2)
SETTLED = st.sampled_from((Basic.Ack(0, True), Basic.Nack(0, True, True), Basic.Nack(0, True, False)))


class Clients(RuleBasedStateMachine):
    """Three clients: channel 1 is plain, channel 2 in tx mode, channel 3 is where one begins a body and stops.

    Many methods: one for each thing that a client does.
    """

    def __init__(self) -> None:
        super().__init__()
        self.harness = Harness()
        self.peers = [self._peer(number) for number in range(3)]
        self.peers[0].send(1, Queue.Declare(queue="shared"), Queue.Declare(queue="durable", durable=True))
        self._settle()

    def _peer(self, number: int) -> Peer:
        peer = Peer(self.harness, waiting_bytes=10_000).open()
        peer.send(2, Channel.Open(), Tx.Select())
        peer.send(3, Channel.Open())
        peer.send(1, Queue.Declare(queue=f"mine {number}", exclusive=True))
        return peer

    def _settle(self) -> None:
        self.harness.settle()
        for peer in self.peers:
            peer.connection.weigh()

    def _on(self, peer: int, channel: int) -> bool:
        return channel in self.peers[peer].connection.channels.by_number

    @rule(peer=PEER, queue=PLACES, size=SIZES, tx=st.booleans())
    def publish(self, peer: int, queue: str, size: int, tx: bool) -> None:
        self.peers[peer].connection.receive(publish(queue, b"x" * size, channel=2 if tx else 1))

    @rule(peer=PEER, size=SIZES)
    def publish_to_its_own_queue(self, peer: int, size: int) -> None:
        self.peers[peer].connection.receive(publish(f"mine {peer}", b"x" * size))

    @rule(peer=PEER, key=st.integers(0, 3), size=st.sampled_from((0, 600, 3000)))
    def publish_with_headers(self, peer: int, key: int, size: int) -> None:
        values = Basic.Properties(headers={"x": "y" * size, "z": key})
        frames = (Basic.Publish(0, "", "shared"), header.ContentHeader(0, 3, values), body.ContentBody(b"abc"))
        self.peers[peer].send(1, *frames)

    @rule(peer=PEER)
    def publish_what_no_queue_takes(self, peer: int) -> None:
        mandatory = Basic.Publish(0, "", "none", mandatory=True)
        self.peers[peer].send(2, mandatory, header.ContentHeader(0, 2, Basic.Properties()), body.ContentBody(b"ab"))

    @rule(peer=PEER, pieces=st.integers(0, 3), size=st.sampled_from((1, 2000)))
    def begin_a_body(self, peer: int, pieces: int, size: int) -> None:
        if self._on(peer, 3) and self.peers[peer].connection.channels.by_number[3]._content.arguments is None:
            start = (Basic.Publish(0, "", "shared"), header.ContentHeader(0, 100_000, Basic.Properties()))
            self.peers[peer].send(3, *start, *[body.ContentBody(b"p" * size)] * pieces)

    @rule(peer=PEER, size=st.integers(1, 4000))
    def send_a_part_of_a_frame(self, peer: int, size: int) -> None:
        """And the rest of it, after a look."""
        data = frame.marshal(body.ContentBody(b"z" * 4000), 9)
        connection = self.peers[peer].connection
        connection.receive(data[:size])
        assert connection.holder.kinds[RECEIVED] >= size
        connection._partial = b""
        connection.weigh()

    @rule(peer=PEER)
    def wait_behind_a_request(self, peer: int) -> None:
        asked = frame.marshal(Queue.Declare(queue=f"d{peer}", durable=True), 1)
        self.peers[peer].connection.receive(asked + publish("shared", b"w" * 2000))

    @rule(peer=PEER, how=st.sampled_from((Tx.Commit, Tx.Rollback)))
    def end_a_transaction(self, peer: int, how: type) -> None:
        self.peers[peer].send(2, how())
        self._settle()

    @rule(peer=PEER)
    def fail_to_commit(self, peer: int) -> None:
        """Its channel is closed with that, and opened anew."""
        self.harness.ledger.refuse = "too few nodes are ready"
        self.peers[peer].connection.receive(publish("durable", b"d", channel=2) + publish("shared", b"s", channel=2))
        self.peers[peer].send(2, Tx.Commit())
        self._settle()
        self.harness.ledger.refuse = None
        self.peers[peer].send(2, Channel.CloseOk(), Channel.Open(), Tx.Select())

    @rule(peer=PEER, queue=PLACES, ack=st.booleans())
    def get(self, peer: int, queue: str, ack: bool) -> None:
        self.peers[peer].send(1, Basic.Get(queue=queue, no_ack=ack))
        self._settle()

    @rule(peer=PEER, answer=SETTLED)
    def settle_all(self, peer: int, answer: commands.Basic.Ack) -> None:
        self.peers[peer].send(1, answer)

    @rule(queue=PLACES)
    def purge(self, queue: str) -> None:
        self.peers[0].send(1, Queue.Purge(queue=queue))

    @rule()
    def delete_and_declare(self) -> None:
        self.peers[0].send(1, Queue.Delete(queue="shared"), Queue.Declare(queue="shared"))

    @rule(peer=PEER, unsent=st.sampled_from((0, 0, 5000)))
    def send_what_waits(self, peer: int, unsent: int) -> None:
        connection = self.peers[peer].connection
        connection.take_output()
        connection.sent(unsent)

    @rule(peer=PEER)
    def remember_nothing(self, peer: int) -> None:
        self.peers[peer].connection.forget_cache()

    @rule(peer=PEER, channel=st.sampled_from((1, 2, 3)))
    def close_and_open_a_channel(self, peer: int, channel: int) -> None:
        opened = self.peers[peer]
        opened.send(channel, Channel.Close(200, "", 0, 0), Channel.Open())
        if channel == 2:
            opened.send(2, Tx.Select())

    @rule(peer=PEER, commits=st.booleans())
    def lose_a_connection(self, peer: int, commits: bool) -> None:
        """Also one whose commit is on its way."""
        if commits:
            self.peers[peer].send(2, Tx.Commit())
        self.peers[peer].connection.vanish()
        self._settle()
        assert self.peers[peer].connection.holder.total == 0
        self.peers[peer] = self._peer(peer)

    @rule()
    def take_over(self) -> None:
        """The broker forgets all, and what its clients had."""
        self.harness.take_over()
        for peer in self.peers:
            peer.connection.vanish()
        assert self.harness.broker.held_bytes == 0
        self.peers = [self._peer(number) for number in range(3)]
        self.peers[0].send(1, Queue.Declare(queue="shared"))

    @invariant()
    def nothing_is_counted_that_is_not_held(self) -> None:
        self._settle()
        broker = self.harness.broker
        counted = dict(zip(KINDS, broker.memory.kinds, strict=True))
        assert counted == by_kind(broker, [peer.connection for peer in self.peers])
        assert broker.memory.held == sum(counted.values())
        holders = [broker.memory.shared, *(peer.connection.holder for peer in self.peers)]
        assert broker.memory.held == sum(holder.held for holder in holders)
        assert all(holder.held == sum(holder.kinds) and min(holder.kinds) >= 0 for holder in holders)
        work = broker.open_work
        assert (work.open_bytes, work.open_events) == open_in(self.harness.ledger.log)
        assert work.open_bytes == sum(peer.connection.holder.open_bytes for peer in self.peers)


TestClients = Clients.TestCase
TestClients.settings = settings(
    max_examples=30, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def test_a_publish_with_bytes_behind_it_is_refused_and_properties_are_remembered_within_a_share() -> None:
    """1,024 of 130 kB each stayed for as long as their connection was idle."""
    peer = Peer().open(frame_max=131072)
    peer.send(1, Queue.Declare(queue="q"))
    peer.send(1, Basic.Publish(0, "", "q"), header.ContentHeader(0, 0, Basic.Properties()))
    for number in range(50):
        values = Basic.Properties(headers={"x": "y" * 100_000, "n": number})
        peer.send(1, Basic.Publish(0, "", "q"), header.ContentHeader(0, 0, values))
    assert len(peer.connection.published) == 1 and len(peer.connection.passed_properties) == 1
    assert peer.connection.holder.held < 10_000
    payload = frame.marshal(Basic.Publish(0, "", "another"), 1)[7:-1] + b"\0" * 130_000
    peer.frames()
    peer.connection.receive(b"\x01\x00\x01" + len(payload).to_bytes(4, "big") + payload + b"\xce")
    (said,) = peer.frames()
    assert "Connection.Close reply_code=501" in said and len(peer.connection.published) == 1


def test_what_is_remembered_of_one_connection_is_bounded_by_bytes() -> None:
    peer = Peer().open()
    peer.send(1, Queue.Declare(queue="q"))
    most = 0
    for number in range(3000):
        peer.send(1, Basic.Publish(0, "", f"{number:0250}"), header.ContentHeader(0, 0, Basic.Properties()))
        most = max(most, peer.connection.cached_bytes)
    assert CACHE_BYTES // 2 < most < CACHE_BYTES + 10_000
