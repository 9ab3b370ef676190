"""The desk for tickets by itself: what it answers, and to whom."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ha.apply.applied_here import is_applied_here
from ha.calls.cursors import CallCursors
from ha.calls.desk import ENDED, TicketDesk
from ha.calls.settling import CallSettling
from ha.calls.standing import CallsStanding
from ha.messages.calls import (
    CallAppend,
    CallAsk,
    CallRefused,
    CursorReport,
    SettleAsk,
    SettleUpTo,
    TicketAsk,
    TicketGranted,
    TicketReturned,
)
from ha.settings import Settings
from tests.support.memory_calls import call_id
from txobserver.calls import CallMark, KeptCalls
from txobserver.ids import Member, Position

GENERATION = 3
ONE, TWO = call_id(1), call_id(2)


def stream(applied: int = 5, tail: int = 9, resyncing: bool = False) -> Any:
    """A replica whose events up to 4 are of generation 2, and the later ones of GENERATION."""
    of = lambda sequence: Position(2 if sequence <= 4 else GENERATION, sequence)  # noqa: E731
    return SimpleNamespace(
        applied=of(applied),
        tail=of(tail),
        resyncing=resyncing,
        position_of=of,
        contents=SimpleNamespace(calls=KeptCalls()),
    )


class Desk(TicketDesk):
    def __init__(self) -> None:
        self.said: list[tuple[str, Any]] = []
        settings = Settings(min_ready=1, lease_ttl=1.0)
        super().__init__(
            GENERATION,
            stream(),
            settings,
            lambda step, done: None,
            lambda: 0,
            lambda: (),
            lambda feature: [],
            lambda peer, answer: self.said.append((peer, answer)),
        )

    def granted(self) -> list[tuple[str, bytes]]:
        return [(peer, answer.id) for peer, answer in self.said if isinstance(answer, TicketGranted)]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def append(number: int) -> CallAppend:
    return CallAppend(GENERATION, ONE, number, "level", 1, "x", b"", 7)


def test_a_node_that_has_just_gone_is_waited_for_and_one_that_stays_away_is_named(desk: Desk) -> None:
    """It leaves the ready set soon, or comes back; each time that it goes it has as long."""
    lacking, waits = ["b"], desk._settings.prepare_timeout
    desk._lacking = lambda feature: list(lacking)
    desk.take("a", TicketAsk(GENERATION, ONE))
    assert not desk.turn(10.0, True) and not desk.turn(10.0 + 0.9 * waits, True) and not desk.said
    lacking.clear()
    assert desk.turn(10.0 + waits, True) and desk.granted() == [("a", ONE)]
    desk.take("a", TicketReturned(GENERATION, ONE))
    lacking.append("b")
    desk.take("a", TicketAsk(GENERATION, TWO))
    assert not desk.turn(90.0, True) and len(desk.said) == 1
    assert not desk.turn(90.0 + waits, True) and len(desk.said) == 2
    peer, refused = desk.said[1]
    assert peer == "a" and isinstance(refused, CallRefused) and refused.reason.endswith("cannot be reached: b")


def test_a_record_may_stand_as_far_as_the_stream_goes(desk: Desk) -> None:
    """Up to what is applied it would be told as not made, and recorded a moment later."""
    desk.take("b", SettleAsk(GENERATION, ONE))
    assert desk.said == [("b", SettleUpTo(GENERATION, ONE, 9))]


def test_a_call_that_is_settled_has_no_ticket_any_more(desk: Desk) -> None:
    desk.take("b", TicketAsk(GENERATION, ONE))
    desk.turn(0.0, True)
    desk.take("b", SettleAsk(GENERATION, ONE))
    desk.take("b", append(1))
    assert desk.said[-1] == ("b", CallRefused(GENERATION, ONE, ENDED))


def test_a_call_that_is_settled_waits_for_no_ticket_any_more(desk: Desk) -> None:
    desk.take("b", TicketAsk(GENERATION, ONE))
    desk.take("b", SettleAsk(GENERATION, ONE))
    assert not desk.turn(0.0, True) and not desk.granted()


def test_who_asks_again_is_given_one_ticket(desk: Desk) -> None:
    for _ in range(3):
        desk.take("b", TicketAsk(GENERATION, ONE))
    desk.turn(0.0, True)
    desk.take("b", TicketReturned(GENERATION, ONE))
    assert not desk.turn(0.0, True) and desk.granted() == [("b", ONE)]


def test_a_node_reports_of_itself_only() -> None:
    cursors = CallCursors(stream(), lambda: (Member("b", "1"),))
    cursors.report("c", CursorReport(GENERATION, Member("b", "1"), CallMark(1, Position(2, 1))))
    assert not cursors.reports


def test_a_store_that_was_made_anew_reports_alone() -> None:
    cursors = CallCursors(stream(), lambda: (Member("b", "2"),))
    for incarnation in ("1", "2"):
        cursors.report("b", CursorReport(GENERATION, Member("b", incarnation), CallMark(1, Position(2, 1))))
    assert list(cursors.reports) == [Member("b", "2")]


@pytest.mark.parametrize(
    ("position", "has"), [(Position(2, 3), True), (Position(1, 3), False), (Position(3, 6), False)]
)
def test_a_cursor_of_another_stream_has_nothing(position: Position, has: bool) -> None:
    """``number_cut_off_and_given_again``; nor does one that this primary has not come to yet."""
    cursors = CallCursors(stream(), lambda: (Member("b", "1"),))
    cursors.report("b", CursorReport(GENERATION, Member("b", "1"), CallMark(1, position)))
    assert cursors.has(Member("b", "1"), 1) is has
    assert cursors.at("b/1") == (1 if has else 0)
    cursors.forget("b")
    assert cursors.at("b/1") == 0, "what it was may be lost when it is back"


def test_a_member_that_came_behind_a_call_is_not_waited_for() -> None:
    """It has the call with what was copied to it, or runs it by itself."""
    cursors = CallCursors(stream(), lambda: (Member("b", "1"), Member("c", "1")))
    assert cursors.stands(CallAsk(GENERATION, ONE, 1, ["b/1"])).behind == [Member("b", "1")]


@pytest.mark.parametrize(
    ("position", "applied"),
    [
        (Position(0, 0), True),
        (Position(2, 4), True),
        (Position(3, 5), True),
        (Position(1, 4), False),
        (Position(2, 5), False),
        (Position(3, 6), None),
        (Position(4, 6), None),
        (Position(2, 6), False),
    ],
)
def test_whether_a_position_is_applied_here(position: Position, applied: bool | None) -> None:
    assert is_applied_here(stream(), position) is applied


def test_a_node_that_is_being_copied_to_does_not_know() -> None:
    assert is_applied_here(stream(resyncing=True), Position(2, 4)) is None


@pytest.mark.parametrize(
    ("replica", "told", "settled"),
    [
        (stream(applied=9), SettleUpTo(GENERATION, ONE, 9), True),
        (stream(applied=8), SettleUpTo(GENERATION, ONE, 9), False),
        (stream(applied=9, resyncing=True), SettleUpTo(GENERATION, ONE, 9), False),
        (stream(applied=9), SettleUpTo(GENERATION - 1, ONE, 9), False),
        (stream(applied=9), SettleUpTo(GENERATION, TWO, 9), False),
    ],
)
def test_settled_when_all_is_applied_that_could_hold_it(replica: Any, told: SettleUpTo, settled: bool) -> None:
    settling = CallSettling(replica, 1.0, lambda message: None)
    settling.told(told)
    assert settling.settled(ONE, CallsStanding(0.0, GENERATION, 1, "a", True)) is settled


def test_asks_again_when_attached_anew_and_after_a_while() -> None:
    """What was asked may have been lost with the attachment."""
    asked: list[Any] = []
    settling = CallSettling(stream(), 1.0, asked.append)
    for now, session in ((0.0, 1), (0.5, 1), (0.6, 2), (1.0, 2), (1.7, 2)):
        settling.settled(ONE, CallsStanding(now, GENERATION, session, "a", True))
    assert asked == [SettleAsk(GENERATION, ONE)] * 3
    assert not settling.settled(ONE, CallsStanding(9.0, GENERATION, 2, None, True)) and len(asked) == 3
