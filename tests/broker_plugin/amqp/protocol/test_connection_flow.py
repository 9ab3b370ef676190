"""The connection without io: when not to read, heartbeats, and the end."""

from __future__ import annotations

from pamqp.commands import Basic, Channel, Connection, Queue

from tests.broker_plugin.amqp.peer import HEADER, Peer, publish


class TestNotReading:
    """When nothing more should be read from a client."""

    def test_too_much_in_flight(self) -> None:
        peer = Peer(in_flight_bytes=5000).open()
        peer.send(1, Queue.Declare(queue="q", durable=True))
        peer.settle()
        assert not peer.connection.intake.congested
        peer.connection.receive(publish("q", b"x" * 4000) * 2)
        assert peer.connection.intake.congested
        before = peer.wire.resumed
        peer.settle()
        assert not peer.connection.intake.congested and peer.wire.resumed > before

    def test_too_much_waits_behind_a_request(self) -> None:
        peer = Peer(waiting_bytes=5000).open()
        peer.send(1, Queue.Declare(queue="q", durable=True))
        peer.connection.receive(publish("q", b"x" * 4000) * 2)
        assert peer.connection.intake.congested
        before = peer.wire.resumed
        peer.harness.broker.end_of_turn()
        peer.harness.ledger.commit()
        assert not peer.connection.intake.congested and peer.wire.resumed > before

    def test_too_much_to_send(self) -> None:
        """Deliveries stop when the client does not take them, and go on when it does."""
        peer = Peer(output_bytes=10_000).open()
        peer.send(1, Queue.Declare(queue="q"))
        peer.connection.receive(publish("q", b"x" * 4000) * 10)
        peer.send(1, Basic.Consume(queue="q", consumer_tag="c", no_ack=True))
        peer.settle()
        assert peer.connection.intake.congested
        received, rounds = 0, 0
        while data := peer.connection.take_output():
            assert len(data) < 20_000
            received += data.count(b"x" * 4000)
            rounds += 1
            peer.connection.set_writable(True)
            peer.settle()
        assert received == 10 and rounds > 2

    def test_blocked_publishers(self) -> None:
        peer = Peer().open()
        peer.connection.block("a disk is full")
        assert peer.frames() == ["0 Connection.Blocked reason='a disk is full'"]
        assert not peer.connection.intake.congested, "it has published nothing"
        peer.connection.receive(publish("q", b"m"))
        assert peer.connection.intake.congested
        peer.connection.block(None)
        assert peer.frames() == ["0 Connection.Unblocked"] and not peer.connection.intake.congested


class TestTime:
    def test_heartbeats_are_sent_when_nothing_else_is(self) -> None:
        peer = Peer().open(heartbeat=10)
        sent = []
        for second in range(20):
            peer.connection.receive(b"\x08\x00\x00\x00\x00\x00\x00\xce")
            peer.connection.tick(float(second))
            sent.append(peer.connection.take_output())
        assert [second for second, data in enumerate(sent) if data] == [5, 11, 17]

    def test_a_silent_client_is_given_up(self) -> None:
        peer = Peer().open(heartbeat=10)
        for second in range(21):
            peer.connection.tick(float(second))
            assert not peer.connection.ended
        peer.connection.tick(21.0)
        assert peer.connection.ended

    def test_a_client_that_is_not_read_is_not_silent(self) -> None:
        peer = Peer().open(heartbeat=10)
        for second in range(60):
            peer.connection.tick(float(second), reading=False)
        assert not peer.connection.ended

    def test_no_heartbeat_no_end(self) -> None:
        peer = Peer().open(heartbeat=0)
        for second in range(0, 1000, 10):
            peer.connection.tick(float(second))
        assert not peer.connection.ended and peer.frames() == []

    def test_the_handshake_takes_only_so_long(self) -> None:
        peer = Peer(handshake_timeout=10.0)
        peer.connection.receive(HEADER)
        peer.connection.tick(0.0)
        peer.connection.tick(10.5)
        assert peer.connection.ended

    def test_close_ok_is_not_waited_for_for_ever(self) -> None:
        peer = Peer(handshake_timeout=10.0).open()
        peer.send(1, Channel.Open())
        peer.connection.tick(0.0)
        peer.connection.tick(10.5)
        assert peer.connection.ended


class TestEnd:
    def test_no_longer_the_primary(self) -> None:
        peer = Peer().open()
        peer.send(1, Queue.Declare(queue="q", durable=True))
        peer.harness.broker.on_inactive("the lease is lost")
        (close,) = peer.frames()
        assert "reply_code=320" in close and "CONNECTION_FORCED - the lease is lost" in close
        peer.connection.receive(publish("q", b"late"))
        assert not peer.connection.ended, "it is read until it has heard it"
        peer.send(0, Connection.CloseOk())
        assert peer.connection.ended
        peer.connection.end()
        assert peer.frames() == []

    def test_a_lost_connection_gives_back_what_it_held(self) -> None:
        peer = Peer().open()
        peer.send(1, Queue.Declare(queue="q", durable=True))
        peer.connection.receive(publish("q", b"m"))
        peer.send(1, Basic.Get(queue="q"))
        peer.settle()
        peer.connection.end()
        peer.settle()
        assert peer.harness.client().drain("q") == [b"m"]
