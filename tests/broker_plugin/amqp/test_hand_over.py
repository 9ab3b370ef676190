"""A connection whose node hands over: what has begun is answered, nothing more begins, and the last word says so."""

from __future__ import annotations

import pytest
from pamqp import frame
from pamqp.commands import Basic, Channel, Confirm, Connection, Queue, Tx

from broker_plugin.embedded.errors import (
    LONGEST_LIST,
    LONGEST_REASON,
    UNANSWERED_NOT_DONE,
    UNANSWERED_UNKNOWN,
    UNANSWERED_UNKNOWN_ON,
    Forced,
)
from tests.broker_plugin.amqp.peer import Peer, publish
from txobserver.ports.ledger import ClientsServed

COMMIT = frame.marshal(Tx.Commit(), 1)
REASON = "handing over to b"


def with_queue(*more: Tx.Select | Confirm.Select) -> Peer:
    """Of a client that has said something behind all that it was answered."""
    peer = Peer().open()
    for each in (Queue.Declare(queue="q", durable=True), *more, Basic.Qos(prefetch_count=1)):
        peer.send(1, each)
        peer.settle()
    peer.frames()
    return peer


def closed(peer: Peer, reason: str = REASON) -> list[str]:
    """What the client is sent when the node hands over now; the last of it is the close."""
    peer.harness.broker.on_inactive(reason)
    return peer.frames()


def left_in(peer: Peer) -> int:
    """How many messages the queue holds in what has passed the commit point."""
    peer.harness.ledger.commit()
    return sum(peer.harness.content.summary(number).count for number in peer.harness.content.configuration.numbers())


def test_a_commit_that_has_begun_is_answered_before_the_last_word() -> None:
    peer = with_queue(Tx.Select())
    peer.connection.receive(publish("q", b"one") + COMMIT)
    assert peer.harness.broker.on_draining()
    assert peer.harness.broker.served == ClientsServed(1, 1)
    peer.settle()
    assert peer.harness.broker.served == ClientsServed(1, 0)
    (commit_ok,) = closed(peer)
    assert "Tx.CommitOk" in commit_ok, "the client has to hear it before the last word"
    peer.connection.receive(publish("q", b"of the next one") + COMMIT)
    (close,) = peer.frames()
    assert UNANSWERED_NOT_DONE in close and REASON in close and left_in(peer) == 1


def test_a_commit_that_comes_during_the_drain_is_not_done() -> None:
    peer = with_queue(Tx.Select())
    peer.connection.receive(publish("q", b"one"))
    peer.harness.broker.on_draining()
    peer.connection.receive(COMMIT)
    peer.settle()
    assert peer.harness.broker.served == ClientsServed(1, 0)
    (close,) = closed(peer)
    assert UNANSWERED_NOT_DONE in close
    peer.connection.receive(COMMIT)
    assert peer.frames() == [] and left_in(peer) == 0


def test_a_commit_that_waits_behind_a_request_is_not_done() -> None:
    """It has been read before the drain, and has not begun."""
    peer = with_queue(Tx.Select())
    peer.connection.receive(publish("q", b"one") + frame.marshal(Queue.Declare(queue="p", durable=True), 1) + COMMIT)
    peer.harness.broker.on_draining()
    peer.settle()
    (declare_ok,) = closed(peer)
    assert "Queue.DeclareOk" in declare_ok and left_in(peer) == 0
    peer.connection.part()
    assert UNANSWERED_UNKNOWN in peer.frames()[0], "what it says shows nothing: it does not wait for outcomes"


def test_what_is_undecided_in_the_end_is_unknown() -> None:
    peer = with_queue(Tx.Select())
    peer.connection.receive(publish("q", b"one") + COMMIT)
    peer.harness.broker.on_draining()
    (close,) = closed(peer)
    assert UNANSWERED_UNKNOWN in close and UNANSWERED_NOT_DONE not in close


def test_a_publish_without_its_confirm_is_unknown() -> None:
    peer = with_queue(Confirm.Select())
    peer.connection.receive(publish("q", b"one"))
    peer.harness.broker.on_draining()
    assert peer.harness.broker.served == ClientsServed(1, 1)
    peer.harness.ledger.commit()
    assert peer.harness.broker.served == ClientsServed(1, 1), "it is confirmed when the turn ends"
    peer.settle()
    assert peer.harness.broker.served == ClientsServed(1, 0)
    (confirmed,) = closed(peer)
    assert "Basic.Ack" in confirmed and peer.wire.parting == 1
    peer.connection.receive(publish("q", b"two"))
    assert UNANSWERED_NOT_DONE in peer.frames()[0] and left_in(peer) == 1


def test_one_client_s_undecided_commit_is_not_another_s() -> None:
    waits = with_queue(Tx.Select())
    other = Peer(waits.harness).open()
    waits.connection.receive(publish("q", b"one") + COMMIT)
    waits.harness.broker.on_draining()
    assert waits.harness.broker.served == ClientsServed(2, 1)
    waits.harness.broker.on_inactive(REASON)
    assert UNANSWERED_UNKNOWN in waits.frames()[-1] and UNANSWERED_NOT_DONE in other.frames()[-1]


@pytest.mark.parametrize("when", ["before the close", "behind it"])
def test_answers_forgotten_behind_not_done(when: str) -> None:
    """P4: a client that does not hear that its commit was done must not hear that it was not."""
    peer = with_queue(Tx.Select())
    peer.connection.receive(publish("q", b"one") + COMMIT)
    peer.settle()
    if when == "before the close":
        peer.connection.forget_output()
    peer.harness.broker.on_inactive(REASON)
    if when == "behind it":
        peer.connection.receive(publish("q", b"two"))
        peer.connection.forget_output()
    (close,) = peer.frames()
    assert UNANSWERED_UNKNOWN in close and UNANSWERED_NOT_DONE not in close


def test_nothing_is_forgotten_where_nothing_waits() -> None:
    peer = with_queue(Tx.Select())
    peer.connection.forget_output()
    peer.harness.broker.on_inactive(REASON)
    peer.connection.forget_output()
    (close,) = peer.frames()
    assert UNANSWERED_NOT_DONE in close


def test_nothing_is_delivered_during_the_drain() -> None:
    peer = with_queue()
    peer.send(1, Basic.Consume(queue="q"))
    peer.settle()
    peer.frames()
    other = Peer(peer.harness).open()
    other.connection.receive(publish("q", b"one"))
    peer.harness.broker.on_draining()
    peer.settle()
    peer.connection.set_writable(True)
    peer.settle()
    assert peer.frames() == []


def test_a_client_that_comes_during_the_drain_is_refused() -> None:
    peer = with_queue()
    peer.harness.broker.on_draining()
    late = Peer(peer.harness)
    late.start_ok()
    late.connection.take_output()
    late.send(0, Connection.TuneOk(2047, 4096, 0), Connection.Open("/"))
    (close,) = late.frames()
    assert "reply_code=320" in close and "connect again" in close


def test_who_becomes_primary_again_serves_clients_again() -> None:
    """A drain ends with the role that it was for."""
    peer = with_queue()
    harness = peer.harness
    harness.broker.on_draining()
    closed(peer)
    assert not harness.broker.draining
    harness.broker.on_active(harness.ledger, harness.content)
    while harness.broker.loading:
        harness.broker.end_of_turn()
    again = Peer(harness).open()
    again.send(1, Queue.Declare(queue="q", passive=True))
    again.settle()
    assert "Queue.DeclareOk" in again.frames()[-1]


def test_a_long_reason_leaves_room_for_the_word() -> None:
    most = [int("1" * LONGEST_LIST)]
    cases = (False, (), UNANSWERED_NOT_DONE), (True, (), UNANSWERED_UNKNOWN), (False, most, "elsewhere it was not done")
    for undecided, but, word in cases:
        text = Forced("x" * 1000, undecided, but).reply_text
        assert word in text and len(text) <= 255 and "x" * LONGEST_REASON in text


def test_the_last_word_is_answered_and_then_the_connection_ends() -> None:
    peer = with_queue()
    closed(peer)
    assert peer.connection.parting and not peer.connection.ended
    peer.send(1, Basic.Ack(7))
    peer.send(0, Connection.CloseOk())
    assert peer.connection.ended and not peer.connection.parting and peer.frames() == []


def test_a_client_that_never_answers_is_dropped_in_time() -> None:
    peer = with_queue()
    peer.connection.tick(0.0)
    closed(peer)
    peer.connection.tick(0.5)
    peer.connection.tick(0.5 + 11.0)
    assert peer.connection.ended


def test_a_channel_is_not_opened_during_the_drain() -> None:
    peer = with_queue()
    peer.harness.broker.on_draining()
    peer.send(2, Channel.Open())
    assert peer.frames() == []


# -- what a client was answered it has to hear before


def answered() -> Peer:
    """Its commit was done and answered, and it has said nothing since."""
    peer = with_queue(Tx.Select())
    peer.connection.receive(publish("q", b"one") + COMMIT)
    peer.settle()
    return peer


def test_answered_and_closed_in_one_go() -> None:
    """P4: its library drops the commit-ok that it reads with the close: that must not say that nothing was done."""
    peer = answered()
    (commit_ok,) = closed(peer)
    assert "Tx.CommitOk" in commit_ok and peer.wire.parting == 1
    peer.connection.part()
    (close,) = peer.frames()
    assert UNANSWERED_UNKNOWN in close and UNANSWERED_NOT_DONE not in close
    peer.connection.part()
    peer.connection.receive(publish("q", b"two"))
    assert peer.frames() == [], "there is one last word"


@pytest.mark.parametrize("how", ["whole", "a part of a frame", "before the close"])
def test_what_comes_behind_the_answer_shows_that_it_was_heard(how: str) -> None:
    peer = answered()
    peer.frames()
    said = publish("q", b"of the next one")
    if how == "before the close":
        peer.harness.broker.on_draining()
        peer.connection.receive(said[:9])
        (close,) = closed(peer)
    else:
        assert closed(peer) == []
        peer.connection.receive(said[:3])
        assert peer.frames() == []
        peer.connection.receive(said[3:])
        (close,) = peer.frames()
    assert UNANSWERED_NOT_DONE in close


def test_the_channels_are_named_of_which_nothing_is_known() -> None:
    peer = answered()
    peer.send(2, Channel.Open())
    peer.frames()
    closed(peer)
    peer.send(2, Tx.Commit())
    peer.connection.part()
    assert f"{UNANSWERED_UNKNOWN_ON}1: elsewhere it was not done" in peer.frames()[0]


def test_what_comes_on_another_channel_shows_nothing() -> None:
    peer = answered()
    peer.send(2, Channel.Open())
    peer.frames()
    assert closed(peer) == []
    peer.send(2, Basic.Qos(prefetch_count=1))
    assert peer.frames() == []
    peer.send(1, Basic.Qos(prefetch_count=1))
    assert UNANSWERED_NOT_DONE in peer.frames()[0]


def test_of_a_client_that_does_not_wait_for_outcomes_nothing_shows() -> None:
    peer = with_queue(Tx.Select())
    peer.connection.receive(publish("q", b"one") + COMMIT + publish("q", b"two"))
    peer.settle()
    peer.frames()
    assert closed(peer) == []
    peer.connection.receive(COMMIT)
    assert peer.frames() == []
    peer.connection.part()
    assert UNANSWERED_UNKNOWN in peer.frames()[0]


@pytest.mark.parametrize("together", [False, True])
def test_confirms_that_overlap_show_nothing(together: bool) -> None:
    peer = with_queue(Confirm.Select())
    peer.connection.receive(publish("q", b"one"))
    if not together:
        peer.settle()
    peer.connection.receive(publish("q", b"two"))
    peer.settle()
    peer.frames()
    assert closed(peer) == []
    peer.connection.receive(publish("q", b"three"))
    assert bool(peer.frames()) != together
    peer.connection.part()
    assert [UNANSWERED_UNKNOWN in each for each in peer.frames()] == [True] * together


def test_a_client_that_only_consumes_is_not_waited_for() -> None:
    peer = with_queue()
    peer.send(1, Basic.Consume(queue="q"))
    peer.settle()
    peer.frames()
    assert UNANSWERED_NOT_DONE in closed(peer)[0] and peer.wire.parting == 0


def test_a_client_that_waits_for_the_last_word_is_sent_no_heartbeat() -> None:
    peer = answered()
    peer.connection.heartbeats.interval = 2
    peer.connection.tick(0.0)
    closed(peer)
    peer.connection.tick(1.5)
    assert peer.frames() == []
