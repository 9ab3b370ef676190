"""The connection without io: bytes in any pieces, handshake, errors, order."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import body, commands, decode, encode, frame, header
from pamqp.commands import Basic, Channel, Confirm, Queue, Tx

from broker_plugin.amqp.protocol.handshake import History
from tests.broker_plugin.amqp.peer import HEADER, Peer, publish


class TestPieces:
    """A stream means the same in whatever pieces it comes."""

    STREAM = b"".join(
        (
            HEADER,
            frame.marshal(commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"), 0),
            frame.marshal(commands.Connection.TuneOk(2047, 4096, 0), 0),
            frame.marshal(commands.Connection.Open("/"), 0),
            frame.marshal(Channel.Open(), 1),
            frame.marshal(Queue.Declare(queue="q", durable=True), 1),
            frame.marshal(Confirm.Select(), 1),
            publish("q", b""),
            publish("q", b"small"),
            publish("q", b"x" * 4088),
            publish("q", b"large" * 2000),
            b"\x08\x00\x00\x00\x00\x00\x00\xce",
            publish("nobody", b"lost"),
            frame.marshal(Basic.Consume(queue="q", consumer_tag="c", no_ack=True), 1),
        )
    )

    @staticmethod
    def play(pieces: list[bytes]) -> bytes:
        peer = Peer()
        for piece in pieces:
            peer.connection.receive(piece)
        peer.settle()
        return peer.connection.take_output()

    def test_whole(self) -> None:
        assert b"large" * 800 in self.play([self.STREAM])

    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.integers(1, len(STREAM) - 1), max_size=20))
    def test_any_pieces(self, cuts: list[int]) -> None:
        edges = [0, *sorted(cuts), len(self.STREAM)]
        pieces = [self.STREAM[a:b] for a, b in pairwise(edges)]
        assert self.play(pieces) == self.play([self.STREAM])

    def test_a_body_in_two_frames_that_looks_like_one(self) -> None:
        """The octet where a single body frame would end happens to be a frame end."""
        peer = Peer().open()
        peer.send(1, Queue.Declare(queue="q", durable=True))
        peer.settle()
        data = b"ab" + b"\xce" * 8
        first, second = body.ContentBody(data[:2]), body.ContentBody(data[2:])
        peer.send(1, Basic.Publish(0, "", "q"), header.ContentHeader(0, 10, Basic.Properties()), first, second)
        peer.settle()
        assert peer.harness.client().drain("q") == [data]

    def test_byte_by_byte(self) -> None:
        assert self.play([bytes((each,)) for each in self.STREAM]) == self.play([self.STREAM])


class TestHandshake:
    def test_another_protocol_is_answered_with_ours(self) -> None:
        peer = Peer()
        peer.connection.receive(b"GET / HTTP/1.1\r\n")
        assert peer.connection.take_output() == HEADER and peer.connection.ended

    def test_wrong_password(self) -> None:
        peer = Peer()
        peer.start_ok("wrong")
        (close,) = peer.frames()
        assert "reply_code=403" in close and "Login was refused using authentication mechanism PLAIN" in close
        peer.send(0, commands.Connection.CloseOk())
        assert peer.connection.ended

    def test_wrong_password_of_a_client_that_understands_no_close(self) -> None:
        peer = Peer()
        peer.start_ok("wrong", {})
        assert peer.frames() == [] and peer.connection.ended

    @pytest.mark.parametrize("response", ["", "guest", "\0guest", "\0guest\0guest\0more", "\0\0", "\0nobody\0"])
    def test_malformed_plain(self, response: str) -> None:
        peer = Peer()
        peer.start_ok(response=response)
        assert "reply_code=403" in peer.frames()[0]

    def test_amqplain(self) -> None:
        table = encode.field_table({"LOGIN": "guest", "PASSWORD": "guest"})[4:].decode("latin-1")
        peer = Peer()
        peer.start_ok(mechanism="AMQPLAIN", response=table)
        assert "Connection.Tune" in peer.frames()[0]

    def test_unknown_mechanism(self) -> None:
        peer = Peer()
        peer.start_ok(mechanism="EXTERNAL")
        assert "unknown authentication mechanism 'EXTERNAL'" in peer.frames()[0]

    @pytest.mark.parametrize(
        ("channel_max", "frame_max", "text"),
        [
            (2047, 100, "negotiated frame_max = 100 is lower than the minimum allowed value (4096)"),
            (2047, 200_000, "negotiated frame_max = 200000 is higher than the maximum allowed value (131072)"),
            (0, 4096, "negotiated channel_max = 0 (no limit) is higher than the maximum allowed value (2047)"),
        ],
    )
    def test_limits(self, channel_max: int, frame_max: int, text: str) -> None:
        peer = Peer()
        peer.start_ok()
        peer.connection.take_output()
        peer.send(0, commands.Connection.TuneOk(channel_max, frame_max, 0))
        assert text in peer.frames()[0]

    def test_unknown_vhost(self) -> None:
        peer = Peer()
        peer.start_ok()
        peer.connection.take_output()
        peer.send(0, commands.Connection.TuneOk(2047, 4096, 0), commands.Connection.Open("elsewhere"))
        assert "reply_code=530" in peer.frames()[0]

    def test_not_the_primary(self) -> None:
        peer = Peer()
        peer.harness.broker.on_inactive("another node is the primary")
        peer.start_ok()
        peer.send(0, commands.Connection.TuneOk(2047, 4096, 0), commands.Connection.Open("/"))
        assert "reply_code=320" in peer.frames()[-1]

    def test_what_the_server_says_of_itself(self) -> None:
        peer = Peer()
        peer.connection.receive(HEADER)
        _, _, start = frame.unmarshal(peer.connection.take_output())
        assert isinstance(start, commands.Connection.Start)
        assert start.mechanisms == "AMQPLAIN PLAIN"
        capabilities = start.server_properties["capabilities"]
        assert isinstance(capabilities, dict) and capabilities["publisher_confirms"] is True
        decode.field_table(encode.field_table(start.server_properties))

    def test_two_clusters_under_one_name_say_which_they_are(self) -> None:
        peer = Peer(cluster="orders", cluster_id="0123456789abcdef" * 2)
        peer.connection.receive(HEADER)
        _, _, start = frame.unmarshal(peer.connection.take_output())
        assert isinstance(start, commands.Connection.Start)
        told = [start.server_properties[name] for name in ("cluster_name", "cluster_id")]
        assert told == ["orders", "0123456789abcdef" * 2]
        assert not {"loss_accepted", "generation"} & start.server_properties.keys()

    def test_a_loss_that_was_accepted_is_told(self) -> None:
        peer = Peer(cluster="orders", history=History(9, 7))
        peer.connection.receive(HEADER)
        _, _, start = frame.unmarshal(peer.connection.take_output())
        assert isinstance(start, commands.Connection.Start)
        assert [start.server_properties[name] for name in ("generation", "loss_accepted")] == [9, 7]


class TestErrors:
    def test_frame_that_is_too_large(self) -> None:
        peer = Peer().open(frame_max=4096)
        peer.connection.receive(b"\x03\x00\x01\x00\x00\x0f\xf9x")
        assert "reply_code=501" in peer.frames()[0]

    def test_frame_without_its_end(self) -> None:
        peer = Peer().open()
        peer.connection.receive(b"\x01\x00\x01\x00\x00\x00\x04\x00\x14\x00\x0aX")
        (close,) = peer.frames()
        assert "type 1, all octets = <<0,20,0,10>>: {invalid_frame_end_marker,88}" in close

    def test_unknown_frame_type(self) -> None:
        peer = Peer().open()
        peer.connection.receive(b"\x07\x00\x00\x00\x00\x00\x00\xce")
        assert "type 7, all octets = <<>>: unknown_frame" in peer.frames()[0]

    def test_arguments_that_do_not_decode(self) -> None:
        peer = Peer().open()
        peer.connection.receive(b"\x01\x00\x01\x00\x00\x00\x06\x00\x32\x00\x0a\x00\x00\xce")
        (close,) = peer.frames()
        assert "reply_code=501" in close and "class_id=50 method_id=10" in close

    def test_body_longer_than_its_header_says(self) -> None:
        peer = Peer().open()
        peer.send(1, Basic.Publish(0, "", "q"), header.ContentHeader(0, 2, Basic.Properties()))
        peer.send(1, body.ContentBody(b"three"))
        assert "reply_code=505" in peer.frames()[0]

    def test_message_that_is_too_large(self) -> None:
        peer = Peer(max_message_bytes=10).open()
        peer.send(1, Basic.Publish(0, "", "q"), header.ContentHeader(0, 11, Basic.Properties()))
        (close,) = peer.frames()
        assert "1 Channel.Close" in close and "message size 11 is larger than configured max size 10" in close

    def test_too_many_channels(self) -> None:
        peer = Peer()
        peer.start_ok()
        peer.send(0, commands.Connection.TuneOk(1, 4096, 0), commands.Connection.Open("/"))
        peer.send(1, Channel.Open())
        peer.connection.take_output()
        peer.send(2, Channel.Open())
        assert "number of channels opened (1) has reached the negotiated channel_max (1)" in peer.frames()[0]

    def test_after_a_hard_error_everything_is_ignored_but_its_end(self) -> None:
        peer = Peer().open()
        peer.send(1, Channel.Open())
        assert "reply_code=504" in peer.frames()[0]
        peer.send(1, Queue.Declare(queue="q"))
        peer.send(7, Channel.Open())
        peer.settle()
        assert peer.frames() == [] and not peer.connection.ended
        peer.send(0, commands.Connection.CloseOk())
        assert peer.connection.ended

    def test_what_is_malformed_after_a_hard_error_is_ignored_too(self) -> None:
        peer = Peer().open()
        peer.send(1, Channel.Open())
        peer.connection.take_output()
        peer.connection.receive(b"\x01\x00\x01\x00\x00\x00\x04\x00\x14\x00\x0aX")
        assert peer.frames() == []

    def test_close_ok_is_found_behind_what_a_client_sent_before_it_knew(self) -> None:
        """It was in the middle of a message when it was told; the pieces end where they like."""
        peer = Peer().open()
        late = publish("q", b"x" * 9000)
        peer.connection.receive(frame.marshal(Basic.Qos(0, 1), 7) + late[:100])
        assert "reply_code=504" in peer.frames()[0]
        peer.connection.receive(late[100:5000])
        peer.connection.receive(late[5000:] + frame.marshal(commands.Connection.CloseOk(), 0))
        assert peer.connection.ended

    def test_nothing_is_read_once_the_bytes_are_no_frames(self) -> None:
        """Where the next frame begins is not known any more: what looks like one is none."""
        peer = Peer().open()
        peer.connection.receive(b"\x01\x00\x01\xff\xff\xff\xff\x00")
        assert "reply_code=501" in peer.frames()[0]
        peer.send(0, commands.Connection.Close(200, "", 0, 0))
        assert peer.frames() == [] and not peer.connection.ended

    def test_nothing_behind_a_hard_error_is_carried_out(self) -> None:
        """Also when it waited behind a request together with what caused the error."""
        peer = Peer().open()
        peer.send(1, Queue.Declare(queue="q", durable=True), Channel.Open())
        peer.connection.receive(publish("q", b"behind"))
        peer.send(1, Queue.Declare(queue="r", durable=True))
        peer.settle()
        assert ["reply_code=504" in each for each in peer.frames()] == [False, True]
        assert set(peer.harness.broker.topology.queues) == {"q"}
        assert peer.harness.client().count("q") == 0

    def test_nothing_follows_connection_close(self) -> None:
        """Not even the answer to a channel.close that waited behind the request before the error."""
        peer = Peer().open()
        peer.send(1, Queue.Declare(queue="q", durable=True))
        peer.connection.receive(b"\x00\x00\x01\x00\x00\x00\x00\xce")
        peer.send(1, Channel.Close(200, "bye", 0, 0))
        peer.settle()
        assert [each.split(" ")[1] for each in peer.frames()] == ["Queue.DeclareOk", "Connection.Close"]
        assert peer.connection.waiting_bytes == 0

    def test_no_publish_on_a_channel_that_failed(self) -> None:
        peer = Peer().open()
        peer.send(1, Queue.Declare(queue="q", durable=True))
        peer.settle()
        peer.send(1, Basic.Ack(7, False))
        peer.connection.receive(publish("q", b"late"))
        peer.settle()
        assert peer.harness.client().count("q") == 0

    def test_after_a_soft_error_the_channel_is_deaf_until_close_ok(self) -> None:
        peer = Peer().open()
        peer.send(1, Queue.Declare(queue="nowhere", passive=True), Queue.Declare(queue="q"))
        assert ["Channel.Close" in each for each in peer.frames()] == [True]
        peer.send(1, Channel.CloseOk(), Channel.Open(), Basic.Qos(0, 1))
        assert peer.frames() == ["1 Channel.OpenOk channel_id=''", "1 Basic.QosOk"]

    def test_what_waits_behind_a_failed_request_is_ignored(self) -> None:
        peer = Peer().open()
        peer.send(1, Tx.Select())
        peer.send(1, Queue.Declare(queue="q", durable=True))
        peer.settle()
        peer.connection.receive(publish("q", b"m"))
        peer.harness.ledger.refuse = "too few nodes are ready"
        peer.connection.take_output()
        real, peer.harness.ledger.tx_commit = peer.harness.ledger.tx_commit, lambda tx, count, done: late.append(done)  # type: ignore[method-assign]
        late: list[Any] = []
        peer.send(1, Tx.Commit(), Queue.Declare(queue="r", durable=True), Channel.Close(200, "bye", 0, 0))
        assert peer.frames() == [] and peer.connection.waiting_bytes > 0
        late[0]("the transaction was rolled back")
        close, close_ok = peer.frames()
        assert "reply_code=406" in close and "class_id=90 method_id=20" in close
        assert close_ok == "1 Channel.CloseOk"
        assert peer.connection.waiting_bytes == 0
        peer.harness.ledger.tx_commit = real  # type: ignore[method-assign]


class TestOrder:
    def test_requests_are_answered_in_order(self) -> None:
        peer = Peer().open()
        peer.send(1, Queue.Declare(queue="q", durable=True, nowait=True))
        peer.connection.receive(publish("q", b"m"))
        peer.send(1, Basic.Get(queue="q", no_ack=True), Basic.Qos(0, 1), Queue.Declare(queue="q", passive=True))
        peer.settle()
        names = [each.split(" ")[1] for each in peer.frames()]
        assert names == ["Basic.GetOk", "content", "body", "Basic.QosOk", "Queue.DeclareOk"]

    def test_another_channel_need_not_wait(self) -> None:
        peer = Peer().open()
        peer.send(1, Queue.Declare(queue="q", durable=True))
        peer.send(2, Channel.Open(), Basic.Qos(0, 1))
        assert [each.split(" ")[1] for each in peer.frames()] == ["Channel.OpenOk", "Basic.QosOk"]
