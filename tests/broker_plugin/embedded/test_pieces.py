"""What takes many steps is done in pieces: no turn takes more than its steps, and no reader sees half of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from unittest.mock import patch

import pytest

from broker_plugin.embedded.queues import turn
from broker_plugin.embedded.queues.pieces import Both, Listed
from broker_plugin.embedded.queues.turn import STEPS, Turn
from tests.broker_plugin.embedded.harness import Client, Harness, queue_of
from tests.support.operations import lines_of as lines
from txobserver.events import Removal

pytestmark = pytest.mark.plain

MANY = 5 * STEPS


def holding(count: int, durable: bool = True, tx: bool = False) -> Client:
    """A client that holds so many messages."""
    client = Harness().client()
    client.declare("q", durable=durable)
    for _ in range(0, count, 500):
        client.publish("q", *(b"m",) * min(500, count))
        client.harness.settle()
    if tx:
        client.channel.mode.select_tx()
    client.channel.consume("q", "c", False, False, {})
    client.harness.settle()
    assert len(client.channel.unacked) == count
    client.channel.cancel("c")
    return client


def test_what_a_piece_of_work_raises_keeps_nothing_from_the_next_turn() -> None:
    """A damaged queue: the work behind it is done, and it is not tried again and again itself."""
    done: list[str] = []
    scheduled: list[bool] = []
    work = Turn(lambda: scheduled.append(True))

    def fails() -> None:
        done.append("fails")
        raise ValueError("damage")

    for each in (lambda: done.append("before"), fails, lambda: done.append("behind")):
        work.later(each)
    with pytest.raises(ValueError, match="damage"):
        work.run()
    assert done == ["before", "fails"] and len(scheduled) == 2
    work.run()
    assert done == ["before", "fails", "behind"] and len(scheduled) == 2


def test_what_one_request_takes_of_a_turn_is_not_there_for_others() -> None:
    """Each of many clients would have a whole turn's steps else, in one and the same turn."""
    client = holding(MANY)
    work = client.harness.broker.turn
    work.begin()
    client.channel.ack(MANY, True)
    assert len(client.channel.unacked) == MANY - STEPS and work.spent == STEPS
    client.harness.settle()
    assert not client.channel.unacked


@pytest.mark.parametrize("of_channel", [False, True])
@pytest.mark.parametrize("how", ["ack", "nack", "reject", "recover", "commit"])
def test_what_is_settled_or_given_back_in_one_makes_room_for_as_many(how: str, of_channel: bool) -> None:
    """Its consumer may hold so many, or all of its channel, and those that it held are held no more."""
    client = Harness().client()
    client.declare("q")
    client.publish("q", *(str(number).encode() for number in range(6)))
    channel = client.channel
    if how == "commit":
        channel.mode.select_tx()
    channel.qos(3, of_channel)
    channel.consume("q", "c", False, False, {})
    client.harness.settle()
    assert client.bodies == [b"0", b"1", b"2"]
    if how in ("ack", "commit"):
        channel.ack(3, True)
    elif how == "recover":
        channel.recover()
    else:
        channel.reject(3, True, requeue=how == "nack")
    if how == "commit":
        client.ask_commit()
    client.harness.settle()
    assert client.bodies[3:] == ([b"0", b"1", b"2"] if how in ("nack", "recover") else [b"3", b"4", b"5"])


def test_a_piece_of_two_sources_is_no_larger_than_one_of_one() -> None:
    held = (queue_of(holding(1).harness), 1, None)
    first, second = ([(tag, held, None) for tag in tags] for tags in ((1, 2, 3), (4, 5, 6)))
    both = Both(Listed(first).take, Listed(second).take)
    assert [[tag for tag, _ in both.take(2)] for _ in range(4)] == [[1, 2], [3, 4], [5, 6], []]


def test_an_acknowledgement_and_a_rollback_over_many() -> None:
    """``an_acknowledgement_and_a_rollback_over_many``: each sorted all that the client held."""

    def both(client: Client) -> int:
        def call() -> None:
            client.channel.ack(1, False)
            client.channel.rollback()

        call()  # the first one puts the run in order
        before = client.channel.unacked.steps
        return lines(call) + client.channel.unacked.steps - before

    small, large = holding(1000, tx=True), holding(3000, tx=True)
    assert both(small) == both(large)
    assert list(large.channel.unacked) == list(range(1, 3001))


REQUESTS: dict[str, tuple[bool, Callable[[Client, Callable[[], None]], object]]] = {
    "recover": (False, lambda c, done: c.channel.recover(done)),
    "nack": (False, lambda c, done: c.channel.reject(0, True, True, done)),
    "reject": (False, lambda c, done: c.channel.reject(0, True, False, done)),
    "ack": (False, lambda c, done: c.channel.ack(0, True, done)),
    "ack in a transaction": (True, lambda c, done: c.channel.ack(0, True, done)),
    "close": (False, lambda c, done: c.channel.close(done)),
    "close in a transaction": (True, lambda c, done: c.channel.close(done)),
}


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("request_of", REQUESTS)
def test_no_turn_takes_more_than_its_steps(request_of: str, durable: bool) -> None:
    tx, ask = REQUESTS[request_of]
    client = holding(MANY, durable, tx)
    harness, done = client.harness, [0]
    harness.turn()
    harness.broker.turn.longest = 0

    def answer() -> None:
        done[0] += 1

    ask(client, answer)
    turns = 0
    while not done[0]:
        turns += 1
        harness.turn()
    assert turns >= MANY // STEPS - 1
    harness.settle()
    assert done == [1] and harness.broker.turn.longest <= 2 * STEPS


def test_a_rollback_of_many_acknowledgements() -> None:
    client = holding(MANY, tx=True)
    client.channel.ack(0, True)
    client.harness.settle()
    assert len(client.channel.unacked) == 0
    client.harness.broker.turn.longest = 0
    client.channel.rollback()
    assert 0 < len(client.channel.unacked) < MANY
    client.harness.settle()
    assert list(client.channel.unacked) == list(range(1, MANY + 1))
    assert client.harness.broker.turn.longest <= 2 * STEPS


def test_a_queue_of_memory_hands_out_a_turn_s_worth() -> None:
    client = Harness().client()
    client.declare("q", durable=False)
    client.publish("q", *(b"m",) * MANY)
    client.channel.consume("q", "c", True, False, {})
    handed = [0]
    while len(client.deliveries) < MANY:
        client.harness.turn()
        handed.append(len(client.deliveries))
    assert max(after - before for before, after in pairwise(handed)) <= STEPS


# -- what others see meanwhile


@pytest.fixture
def small_turns() -> Iterator[None]:
    with patch.object(turn, "STEPS", 5):
        yield


@pytest.mark.usefixtures("small_turns")
@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("request_of", ["recover", "nack", "close"])
class TestGivenBackInPieces:
    """Twenty messages, five a turn."""

    def begun(self, request_of: str, durable: bool) -> Client:
        client = Harness().client()
        client.declare("q", durable=durable)
        client.publish("q", *(bytes((number,)) for number in range(20)))
        client.channel.consume("q", "c", False, False, {})
        client.harness.settle()
        client.channel.cancel("c")
        client.harness.settle()
        client.done: list[int] = []  # type: ignore[attr-defined]
        REQUESTS[request_of][1](client, lambda: client.done.append(1))  # type: ignore[attr-defined]
        return client

    def test_all_of_it_counts_at_once(self, request_of: str, durable: bool) -> None:
        client = self.begun(request_of, durable)
        queue = client.harness.broker.topology.queues["q"]
        counts = [queue.ready]
        while not client.done:  # type: ignore[attr-defined]
            client.harness.turn()
            counts.append(queue.ready)
        assert counts == [0] * (len(counts) - 1) + [20] and len(counts) >= 4

    def test_none_of_it_is_handed_out_before(self, request_of: str, durable: bool) -> None:
        client = self.begun(request_of, durable)
        other = client.harness.client()
        other.publish("q", b"behind")
        other.channel.consume("q", "d", False, False, {})
        while not client.done:  # type: ignore[attr-defined]
            client.harness.turn()
            client.harness.ledger.commit()
            assert not other.deliveries
        client.harness.settle()
        assert other.bodies == [*(bytes((number,)) for number in range(20)), b"behind"]
        assert [each.redelivered for each in other.deliveries] == [True] * 20 + [False]

    def test_a_purge_takes_all_of_it(self, request_of: str, durable: bool) -> None:
        client = self.begun(request_of, durable)
        other, purged = client.harness.client(), [-1]
        client.harness.broker.operations.queues.purge(other.channel, "q", lambda count: purged.append(count))
        client.harness.settle()
        assert purged == [-1, 20] and other.count("q") == 0

    def test_the_queue_is_deleted_meanwhile(self, request_of: str, durable: bool) -> None:
        client = self.begun(request_of, durable)
        operations, other, third = client.harness.broker.operations, client.harness.client(), client.harness.client()
        counts: list[int] = []
        purged: list[int] = []
        operations.queues.purge(other.channel, "q", purged.append)
        operations.deletions.delete(third.channel, "q", False, False, counts.append)
        client.harness.settle()
        assert "q" not in client.harness.broker.topology.queues
        assert counts == [0], "as if it had come before"
        assert not purged and [error.code for error in other.errors] == [404]

    def test_the_client_goes_meanwhile(self, request_of: str, durable: bool) -> None:
        client = self.begun(request_of, durable)
        client.harness.turn()
        client.channel.session.close()
        client.harness.settle()
        assert client.harness.client().count("q") == 20

    def test_this_node_is_the_primary_no_more(self, request_of: str, durable: bool) -> None:
        client = self.begun(request_of, durable)
        done = list(client.done)  # type: ignore[attr-defined]
        client.harness.take_over()
        client.harness.settle()
        assert client.done == done, "nothing is answered any more"  # type: ignore[attr-defined]
        if durable:
            assert client.harness.client().count("q") == 20


@pytest.mark.usefixtures("small_turns")
@pytest.mark.parametrize("steps", [50, 0], ids=["before the rest of the request", "piece by piece beside it"])
@pytest.mark.parametrize("what", ["ack", "rollback"])
def test_a_client_that_goes_while_its_transaction_is_worked_on_gives_everything_back(what: str, steps: int) -> None:
    """Its end takes less than one turn, and comes before the rest of what it has asked for; or as many turns as that.
    """
    client = Harness().client()
    client.declare("q")
    client.publish("q", *(b"m",) * 20)
    client.channel.mode.select_tx()
    client.harness.settle()
    client.channel.consume("q", "c", False, False, {})
    for _ in range(20):
        client.harness.turn()
        client.harness.ledger.commit()
    client.harness.settle()
    held = len(client.channel.unacked)
    if what == "rollback":
        client.channel.ack(0, True)
        client.harness.settle()
        client.channel.rollback()
    else:
        client.channel.ack(0, True)
    with patch.object(turn, "STEPS", steps or turn.STEPS):
        client.harness.broker.turn.begin()
        client.channel.session.close()
    client.harness.settle()
    queue = queue_of(client.harness)
    assert held and not queue._out and queue.ready == queue.total == held


def test_removals_are_settled_in_pieces() -> None:
    """What many acknowledgements make of the stream is no event of many entries."""
    client = holding(MANY)
    client.channel.ack(0, True)
    client.harness.settle()
    settles = [event for event in client.harness.ledger.log if hasattr(event, "entries")]
    assert sum(len(event.entries) for event in settles) == MANY
    assert max(len(event.entries) for event in settles) <= STEPS
    assert {event.reason for event in settles} == {int(Removal.ACKED)}
    assert client.count("q") == 0
