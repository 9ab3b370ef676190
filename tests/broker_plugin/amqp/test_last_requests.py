"""The client's connection.close: what came before it is carried out, what comes behind it is not, and nothing stays."""

from __future__ import annotations

from pamqp import frame
from pamqp.commands import Basic, Channel, Connection, Queue, Tx

from broker_plugin.embedded.errors import UNANSWERED_UNKNOWN
from tests.broker_plugin.amqp.conversation import finish, sound
from tests.broker_plugin.amqp.peer import Peer, publish

CLOSE = frame.marshal(Connection.Close(200, "bye", 0, 0), 0)


def declare(name: str, channel: int = 1, **more: bool) -> bytes:
    return frame.marshal(Queue.Declare(queue=name, durable=True, **more), channel)


def names(peer: Peer) -> list[str]:
    """Channel and method of what the client was sent."""
    return [" ".join(each.split(" ")[:2]) for each in peer.frames()]


def with_queue() -> Peer:
    peer = Peer().open()
    peer.connection.receive(declare("q"))
    peer.settle()
    peer.frames()
    return peer


def test_connection_close_discards_what_was_received() -> None:
    """``connection_close_discards_what_was_received``: it waited behind a request when the close came."""
    peer = with_queue()
    waiting = b"".join(publish("q", b"m%d" % each) for each in range(20))
    peer.connection.receive(declare("other", nowait=True) + waiting + CLOSE)
    assert peer.frames() == [] and not peer.connection.ended
    peer.settle()
    assert names(peer) == ["0 Connection.CloseOk"] and peer.connection.ended
    assert not peer.harness.broker._sessions and peer.connection.waiting_bytes == 0
    assert peer.harness.client().drain("q") == [b"m%d" % each for each in range(20)]


def test_every_request_before_it_is_answered_before_close_ok() -> None:
    peer = with_queue()
    peer.send(2, Channel.Open())
    peer.send(2, Tx.Select())
    peer.frames()
    work = publish("q", b"in a transaction", channel=2) + frame.marshal(Tx.Commit(), 2)
    peer.connection.receive(declare("one") + work + declare("two") + declare("q", 2, passive=True) + CLOSE)
    peer.settle()
    found = names(peer)
    assert [each for each in found if each.startswith("1")] == ["1 Queue.DeclareOk"] * 2
    assert [each for each in found if each.startswith("2")] == ["2 Tx.CommitOk", "2 Queue.DeclareOk"]
    assert found[-1] == "0 Connection.CloseOk" and len(found) == 5
    assert peer.harness.client().drain("q") == [b"in a transaction"]


def test_what_comes_behind_it_is_ignored() -> None:
    """On every channel, and a second close too: a client that has sent it sends nothing more but close-ok."""
    peer = with_queue()
    behind = publish("q", b"behind") + frame.marshal(Channel.Open(), 7) + b"\x07\x00\x00\x00\x00\x00\x00\xce" + CLOSE
    peer.connection.receive(declare("one") + publish("q", b"before") + CLOSE + behind)
    peer.connection.receive(behind)
    peer.settle()
    assert names(peer) == ["1 Queue.DeclareOk", "0 Connection.CloseOk"]
    assert peer.harness.client().drain("q") == [b"before"]


def test_a_channel_on_which_nothing_waits_ends_at_once() -> None:
    """What it holds goes back, its transaction is rolled back, while another one still waits for its answer."""
    peer = with_queue()
    peer.connection.receive(publish("q", b"held"))
    peer.settle()
    peer.send(2, Channel.Open(), Basic.Get(queue="q"), Tx.Select())
    peer.settle()
    assert names(peer)[-1] == "2 Tx.SelectOk"
    peer.connection.receive(publish("q", b"never committed", channel=2) + declare("one") + CLOSE)
    assert peer.frames() == []
    assert peer.harness.client().drain("q") == [b"held"]
    peer.settle()
    assert names(peer) == ["1 Queue.DeclareOk", "0 Connection.CloseOk"]


def test_an_error_among_the_last_requests_is_told() -> None:
    peer = with_queue()
    peer.connection.receive(declare("one") + frame.marshal(Basic.Ack(7), 1) + publish("q", b"behind") + CLOSE)
    peer.settle()
    assert names(peer) == ["1 Queue.DeclareOk", "1 Channel.Close", "0 Connection.CloseOk"] and peer.connection.ended
    assert peer.harness.client().count("q") == 0
    peer = with_queue()
    peer.connection.receive(declare("one") + frame.marshal(Channel.Open(), 1) + publish("q", b"behind") + CLOSE)
    peer.settle()
    assert names(peer) == ["1 Queue.DeclareOk", "0 Connection.Close"] and not peer.connection.ended
    peer.send(0, Connection.CloseOk())
    assert peer.connection.ended and peer.harness.client().count("q") == 0


def test_a_channel_that_the_client_closes_first() -> None:
    peer = with_queue()
    peer.connection.receive(declare("one") + frame.marshal(Channel.Close(200, "", 0, 0), 1) + CLOSE)
    peer.settle()
    assert names(peer) == ["1 Queue.DeclareOk", "1 Channel.CloseOk", "0 Connection.CloseOk"]


def test_a_client_that_is_gone_before_its_last_requests_leaves_nothing() -> None:
    """No client is left to be answered; what waited has not begun."""
    peer = with_queue()
    peer.connection.receive(declare("one") + publish("q", b"waits") + CLOSE)
    output = peer.connection.take_output()
    sound(peer, output)
    finish(peer, in_step=True)
    assert peer.connection.ended and peer.harness.client().count("q") == 0


def test_last_requests_wait_for_a_client_that_takes_no_answers() -> None:
    peer = with_queue()
    peer.connection.receive(declare("one") + publish("q", b"last") + CLOSE)
    peer.connection.set_writable(False)
    peer.settle()
    assert names(peer) == ["1 Queue.DeclareOk"] and not peer.connection.ended
    peer.connection.set_writable(True)
    peer.settle()
    assert names(peer) == ["0 Connection.CloseOk"] and peer.harness.client().count("q") == 1


def test_a_node_that_steps_down_does_not_say_that_all_was_done() -> None:
    peer = with_queue()
    peer.connection.receive(declare("one") + publish("q", b"lost") + CLOSE)
    peer.harness.broker.on_inactive("another node is the primary")
    (close,) = peer.frames()
    assert "Connection.Close reply_code=320" in close and UNANSWERED_UNKNOWN in close
    assert peer.connection.channels.last_requests.channels == {}
