"""Whether a joiner that has got to its guard counts, goes on catching up, or slows the clients."""

from __future__ import annotations

import pytest

from ha.effects import LogLine
from ha.log_events import ClientsSlowed, JoinerTooSlow
from ha.messages.stream import Ack
from tests.support.attachments import SETTINGS, B, C, Side
from txobserver.ids import Position

pytestmark = pytest.mark.plain
KB = 1000


def at_guard(tail: int = 10, seconds: float = 1.0, size: int = KB) -> Side:
    """C comes with 8 of 10 events; when it has 10, in two frames of ``size``, the stream ends at ``tail``."""
    side = Side(B)
    side.fanout.bytes_behind = lambda sequence, most: size * (side.replica.tail.sequence - sequence)  # type: ignore[method-assign]
    side.join(C, tail=8)
    side.take(Ack(3, 71, 8), "c", now=100.0)
    get(side, 10, tail, 100.0 + seconds, size)
    return side


def get(side: Side, sequence: int, tail: int, now: float, size: int = KB) -> None:
    """C gets all up to there, when the stream ends at ``tail``."""
    session = side.ours.sessions["c"]
    for each in range(session.acknowledged + 1, sequence + 1):
        session._in_flight.append((each, size))
        session._bytes += size
    session._next = sequence + 1
    side.replica.tail, side.replica.durable = Position(3, tail), tail
    side.ours.take("c", Ack(3, 71, sequence), 1, now)


def told(side: Side) -> list[object]:
    """What is logged of joiners since the last call."""
    events: list[object] = [each.event for each in side.effects if isinstance(each, LogLine)]
    side.effects.clear()
    return [event for event in events if isinstance(event, ClientsSlowed | JoinerTooSlow)]


def counts(side: Side) -> bool:
    return side.ours.sessions["c"].past_guard


def test_one_that_lacks_nothing_counts() -> None:
    assert counts(at_guard())
    slow = at_guard(seconds=50.0)
    assert counts(slow) and not told(slow), "nothing waits for it, and nothing may come that would show it to be well"


def test_one_that_lacks_as_much_as_it_gets_at_once_counts() -> None:
    assert counts(at_guard(tail=11, seconds=1.0)), "two events a second, and one of them is lacking"
    assert not counts(at_guard(tail=12, seconds=1.0)), "that takes a second, and commits would wait for it"
    assert not counts(at_guard(tail=10 + SETTINGS.small_lag + 1, seconds=0.01)), "however fast it was"
    assert counts(at_guard(tail=10 + SETTINGS.small_lag, seconds=0.01))
    assert not counts(at_guard(tail=11, seconds=0.01, size=SETTINGS.window_bytes + 1)), "nor however few they are"


def test_one_whose_pace_is_not_known_goes_on() -> None:
    """``counts_with_its_first_word``: much has come since it asked, and the commits would wait for its disk."""
    side = Side(B)
    side.join(C, tail=10)
    side.replica.tail = Position(3, 11)
    side.fanout.bytes_behind = lambda sequence, most: KB  # type: ignore[method-assign]
    side.take(Ack(3, 71, 10), "c")
    assert not counts(side) and side.ours.sessions["c"].guard.at == 11
    assert side.ours.sessions["c"].backpressure is None, "nor is anyone slowed for the first word"


def test_one_that_takes_too_long_for_a_member_goes_on_and_slows_no_client() -> None:
    """``a_joiner_whose_disk_is_sick``."""
    longest = SETTINGS.prepare_timeout / 2
    assert not counts(at_guard(tail=11, seconds=longest + 0.01, size=1))
    side = at_guard(tail=11, seconds=longest + 0.01, size=1)
    side.fanout.bytes_behind = lambda sequence, most: 0  # type: ignore[method-assign]
    get(side, 11, 12, 100.0 + 2 * longest + 0.02)
    assert not counts(side), "however little it is"
    side = at_guard(tail=30, seconds=longest + 0.01)
    assert told(side) == [JoinerTooSlow("c", pytest.approx(longest + 0.01), SETTINGS.prepare_timeout)]
    for tail in (60, 120):
        get(side, side.replica.tail.sequence, tail, side.ours.sessions["c"].progress_at + longest + 0.01)
        assert not counts(side) and side.ours.sessions["c"].backpressure is None
    get(side, 120, 121, side.ours.sessions["c"].progress_at + 0.01)
    assert counts(side), "it is well again"
    assert not told(side), "once is enough"


def test_one_that_does_not_lack_half_as_much_slows_the_clients() -> None:
    side = at_guard(tail=110)
    get(side, 110, 160, 102.0)
    session = side.ours.sessions["c"]
    assert session.backpressure is None and session.guard.at == 160, "half as much"
    assert not session.hurried
    get(side, 160, 186, 103.0)
    assert session.hurried and session.backpressure is None, "first it is served without rests"
    get(side, 186, 199, 104.0)
    assert session.backpressure is None, "which helps"
    assert not told(side)
    get(side, 199, 225, 105.0)
    assert session.backpressure is not None and session.guard.at == 225 and not counts(side)
    assert told(side) == [ClientsSlowed("c", 26)]
    side.ours.pump(105.0)
    assert not side.attachments.full
    pressure = session.backpressure
    get(side, 225, 300, 106.0)
    assert session.backpressure is pressure and not told(side), "it begins once"
    get(side, 300, 325, 107.0)
    side.replica.tail = Position(3, 900)
    side.ours.pump(107.0)
    assert side.attachments.full, "clients are not read while it is outrun"
    get(side, 325, 326, 107.001)
    assert counts(side) and not told(side), "told once"
    side.replica.tail = Position(3, 999)
    side.ours.pump(108.0)
    assert not side.attachments.full, "it counts: what it lacks is what commits wait for"
