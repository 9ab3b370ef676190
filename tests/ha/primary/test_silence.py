"""Who is silent, or gone, and when that is held against a backup; its neighbours are the test (``silence``)."""

from __future__ import annotations

import pytest

from ha.catchup.backpressure import Backpressure
from ha.messages.attaching import AttachmentRefused, Progress
from ha.messages.stream import Ack, Commit
from ha.primary.silence import SLOWEST
from tests.support.attachments import SETTINGS, B, C, Side
from txobserver.ids import Member, Position

pytestmark = pytest.mark.plain


def check_taken_out_behind(side: Side, limit: float) -> None:
    """Member b is not held to be silent at that time, and is at the next look."""
    side.tick(limit)
    assert side.asked() == []
    side.tick(limit + 0.01)
    assert side.asked() == [("remove", B, limit + 0.01)]


def test_a_silent_member_is_taken_out_and_a_silent_joiner_let_go() -> None:
    side = Side(B)
    side.join(B, tail=9)
    side.join(C, tail=9)
    side.asked()
    side.tick(103.0)
    assert side.asked() == [] and side.said() == 3 * [("b", Commit(3, 71, 4)), ("c", Commit(3, 71, 4))]
    side.tick(103.01)
    assert side.asked() == [("remove", B, 103.01), ("forget", C)]
    assert side.said() == [("c", AttachmentRefused(3, 71, "silent for too long"))] and list(side.ours.sessions) == ["b"]


def test_to_ask_again_is_no_progress() -> None:
    """``asks_again_and_again_and_never_answers``: what was owed before is owed on, until something is acknowledged."""
    side = Side(B)
    for number in range(13):
        side.join(B, tail=9, now=100.0 + number / 4)
        side.asked()
        side.tick(100.0 + number / 4)
        assert side.asked() == []
    side.tick(103.01)
    assert side.asked() == [("remove", B, 103.01)]


def test_who_owed_nothing_and_asks_anew_has_time_from_then_on() -> None:
    side = Side(B)
    side.join(B)
    side.tick(102.0)
    side.take(Ack(3, 71, 10), now=102.0)
    side.tick(103.0)
    side.join(B, now=103.0)
    side.asked()
    check_taken_out_behind(side, 106.0)


def test_to_be_attached_again_is_no_progress() -> None:
    """``attached_again_and_again_and_gets_nothing``: it answers each time, and what it owes stays what it is."""
    side = Side(B)
    for number in range(13):
        now = 100.0 + number / 4
        side.join(B, tail=9, now=now)
        side.take(Ack(3, 71, 9), now=now)
        side.asked()
        side.tick(now)
        assert side.asked() == []
    side.tick(103.01)
    assert side.asked() == [("remove", B, 103.01)]


def test_who_comes_with_more_than_it_had_has_time_from_then_on() -> None:
    side = Side(B)
    side.join(B, tail=8)
    side.take(Ack(3, 71, 8), now=100.0)
    side.join(B, tail=9, now=102.0)
    side.take(Ack(3, 71, 9), now=102.0)
    side.asked()
    check_taken_out_behind(side, 105.0)


def test_what_is_acknowledged_ends_what_was_owed_before() -> None:
    side = Side(B)
    side.join(B, tail=8)
    side.take(Ack(3, 71, 8), now=100.0)
    side.join(B, tail=8, now=102.0)
    side.ours.sessions["b"]._next = 11
    side.take(Ack(3, 71, 9), now=102.0)
    side.asked()
    check_taken_out_behind(side, 105.0)


def test_one_that_owes_and_is_never_there_when_it_is_judged() -> None:
    """``restarted_at_each_ask``: it is attached and gone between two looks, and absent for a moment each time."""
    side = Side(B)
    for number in range(12):
        now = 100.0 + number / 4
        side.join(B, tail=9, now=now)
        side.attachments.detach("b", now + 0.1)
        side.asked()
        side.tick(now + 0.1)
        assert side.asked() == []
    side.tick(103.01)
    assert side.asked() == [("remove", B, 103.01)]


def joiner_with_much_on_its_way() -> Side:
    """C holds something up: it is past its guard, not listed, and five megabytes are on their way to it."""
    side = Side(B)
    side.join(B)
    side.take(Ack(3, 71, 10), now=100.0)
    side.join(C)
    side.take(Ack(3, 71, 10), "c", now=100.0)
    session = side.ours.sessions["c"]
    session._in_flight.append((11, 5 << 20))
    session._bytes = 5 << 20
    return side


def test_a_joiner_past_its_guard_hangs() -> None:
    """``a_joiner_past_its_guard_hangs``: commits wait for it, so it has the time of a member, whatever comes to it."""
    side = joiner_with_much_on_its_way()
    side.replica.durable = 11
    side.ours.sessions["b"].acknowledged = 11
    assert side.ours.sessions["c"].past_guard
    side.said()
    side.tick(103.0)
    assert "c" in side.ours.sessions
    side.tick(103.01)
    assert "c" not in side.ours.sessions


def test_a_joiner_that_sets_the_pace_has_the_time_of_a_member_too() -> None:
    side = joiner_with_much_on_its_way()
    session = side.ours.sessions["c"]
    session.guard.at, session.backpressure = 99, Backpressure(10, 5)
    side.replica.durable = 11
    side.ours.sessions["b"].acknowledged = 11
    side.tick(102.0)
    side.take(Progress(3, 71, 0, True), "c", now=102.0)
    side.tick(103.0)
    assert "c" in side.ours.sessions
    side.tick(103.01)
    assert "c" not in side.ours.sessions, "to be full is no progress either: clients wait for it"


def test_a_joiner_that_holds_nothing_up_has_the_time_that_its_way_takes() -> None:
    side = joiner_with_much_on_its_way()
    side.ours.sessions["c"].guard.at = 99
    side.replica.durable = 11
    side.ours.sessions["b"].acknowledged = 11
    limit = 103.0 + (5 << 20) / SLOWEST
    side.tick(limit)
    assert "c" in side.ours.sessions
    side.tick(limit + 0.01)
    assert "c" not in side.ours.sessions


def owes_since_long(side: Side, member: Member, seconds: float, step: float = 2.0) -> float:
    """A member that gets on by one event each few seconds, and owes one from the first on; when it is asked out."""
    began = side.now
    while side.now < began + seconds:
        side.replica.durable += 3
        session = side.ours.sessions[member.node]
        session._next = side.replica.durable + 1
        side.tick(side.now + step)
        if asked := side.asked():
            assert asked[0][:2] == ("remove", member)
            return side.now - began
        side.take(Ack(3, 71, session.acknowledged + 1), now=side.now)
    return seconds


def test_to_get_on_by_an_event_now_and_then_is_not_enough() -> None:
    """``one_frame_for_each_attachment``: three timeouts for the oldest, and what all that is owed takes at SLOWEST."""
    side = Side(B)
    side.join(B)
    side.take(Ack(3, 71, 10), now=100.0)
    assert 9.0 < owes_since_long(side, B, 60.0) <= 18.0
    side = Side(B)
    side.join(B)
    side.take(Ack(3, 71, 10), now=100.0)
    side.fanout.bytes_behind = lambda sequence, most: 40 * SLOWEST  # type: ignore[method-assign]
    assert owes_since_long(side, B, 40.0) == 40.0, "so much may take longer"


def test_time_that_is_passed_over_makes_no_event_older() -> None:
    """The primary was stopped for half a minute: of that no more counts than of a step that is not long."""
    side = Side(B)
    side.join(B)
    side.take(Ack(3, 71, 10), now=100.0)
    assert owes_since_long(side, B, 4.0) == 4.0
    side.now += 30.0
    side.ours.tick(side.now)
    assert not side.asked()
    side.take(Ack(3, 71, side.ours.sessions["b"].acknowledged + 1), now=side.now)
    assert owes_since_long(side, B, 2.0) == 2.0


def test_what_all_have_is_not_noted_any_more() -> None:
    side = Side(B)
    side.join(B)
    side.take(Ack(3, 71, 10), now=100.0)
    for _ in range(20):
        side.replica.durable += 1
        session = side.ours.sessions["b"]
        session._next = side.replica.durable + 1
        side.tick(side.now + 0.1)
        side.take(Ack(3, 71, side.replica.durable), now=side.now)
    assert len(side.ours._silence._times._notes) <= 2


def test_the_oldest_is_owed_on_over_attachments() -> None:
    side = Side(B)
    side.join(B)
    side.take(Ack(3, 71, 10), now=100.0)
    side.replica.tail, side.replica.durable = Position(3, 100), 100
    for number in range(20):
        session = side.ours.sessions["b"]
        session._next = 101
        side.take(Ack(3, 71, 11 + number), now=side.now)
        side.attachments.detach("b", side.now)
        side.tick(side.now + 0.3)
        side.join(B, tail=11 + number, now=side.now)
        side.take(Ack(3, 71, 11 + number), now=side.now)
        side.tick(side.now + 0.3)
        if asked := [each for each in side.asked() if each[0] == "remove"]:
            break
    assert asked and 109.0 < side.now < 111.0


def test_one_that_gets_on_by_an_event_and_is_never_there_when_it_is_judged() -> None:
    side = Side(B)
    side.join(B)
    side.take(Ack(3, 71, 10), now=100.0)
    side.replica.tail, side.replica.durable = Position(3, 100), 100
    side.tick(100.1)
    for number in range(60):
        side.ours.sessions["b"]._next = 101
        side.take(Ack(3, 71, 11 + number), now=side.now)
        side.attachments.detach("b", side.now)
        side.tick(side.now + 0.3)
        if asked := [each for each in side.asked() if each[0] == "remove"]:
            break
        side.join(B, tail=11 + number, now=side.now)
        side.take(Ack(3, 71, 11 + number), now=side.now)
    assert asked and 109.0 < side.now < 111.0


def test_what_it_had_before_is_no_progress_when_it_has_it_again() -> None:
    """A store that loses its newest frame at each start: it comes with less, and gets back what it had."""
    side = Side(B)
    side.join(B, tail=9)
    side.take(Ack(3, 71, 9), now=100.0)
    for number in range(10):
        now = 100.0 + number / 4
        side.attachments.detach("b", now)
        side.join(B, tail=8, now=now)
        side.take(Ack(3, 71, 8), now=now)
        if number % 2:
            side.ours.sessions["b"]._next = 10
            side.take(Ack(3, 71, 9), now=now)
        assert side.ours.sessions["b"].had == 9
    side.asked()
    check_taken_out_behind(side, 103.0)


def test_what_is_owed_is_forgotten_of_members_that_count_no_more() -> None:
    side = Side(B)
    side.join(B, tail=9)
    side.attachments.detach("b", 101.0)
    side.keeper.ready = {C}
    side.join(C, tail=9, now=102.0)
    side.attachments.detach("c", 103.0)
    assert side.attachments._owed == {C: (102.0, 9)}


def test_what_was_owed_is_not_held_against_one_that_does_not_count() -> None:
    """It left the ready set since, is waited for by nobody, and has the time of any other to answer."""
    side = Side(B)
    side.join(B, tail=9)
    side.tick(102.0)
    side.keeper.ready = set()
    side.join(B, tail=9, now=110.0)
    assert side.ours.sessions["b"].progress_at == 110.0


def test_time_that_is_passed_over_is_not_owed_by_who_asks_again() -> None:
    side = Side(B)
    side.join(B, tail=9)
    side.attachments.detach("b", 101.0)
    side.attachments.pass_over(4.0, 105.0)
    side.join(B, tail=9, now=105.0)
    assert side.ours.sessions["b"].progress_at == 104.0


def test_while_it_recovers_it_waits_longer() -> None:
    side = Side(B)
    side.primary.point.serving = False
    side.join(B, tail=9)
    check_taken_out_behind(side, 105.0)


@pytest.mark.parametrize(("linked", "limit"), [("bc", 3.0), ("c", 0.5)])
def test_one_that_is_absent_is_taken_out_the_sooner_if_there_is_no_link(linked: str, limit: float) -> None:
    side = Side(B, linked=linked)
    side.tick(100.0 + limit - 0.01)
    assert side.asked() == []
    side.tick(100.0 + limit)
    assert side.asked() == [("remove", B, 100.0 + limit)]
    side.keeper.ready = {C}
    side.join(C, now=200.0)
    side.take(Ack(3, 71, 10), "c", now=200.5)
    side.attachments.detach("c", 201.0)
    side.asked()
    side.tick(201.0 + SETTINGS.prepare_timeout - 0.01)
    assert side.asked() == [], "its absence counts from the end of its attachment"
    side.tick(201.0 + SETTINGS.prepare_timeout)
    assert side.asked() == [("remove", C, 204.0)]


def test_a_joiner_on_a_slow_network_has_time_for_what_is_on_its_way() -> None:
    """``a_joiner_on_a_slow_network``: no commit waits for it, and it would be sent the same anew."""
    side = Side(C)
    side.join(B, tail=9)
    side.take(Ack(3, 71, 9), now=100.0)
    side.ours.sessions["b"]._bytes = 4 * SLOWEST
    side.asked()
    side.tick(107.0)
    assert ("forget", B) not in side.asked()
    side.tick(107.01)
    assert ("forget", B) in side.asked()
