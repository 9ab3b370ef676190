"""Who goes first among candidates, and when a candidate does not wait for it any more (``ha.membership.candidate``)."""

from __future__ import annotations

import msgspec

from broker_plugin.logs.prose import sentence
from ha.effects import CompareAndSet, LogLine, Send
from tests.ha.membership.test_candidate import BOTH, RECORD, SETTINGS, TAIL, A, C, Watcher, probed, stood
from txobserver.ids import Position

EMPTY = Position(0, 0)


def test_it_ranks_with_its_log_if_it_can_stand() -> None:
    ours = Watcher()
    assert ours.one.precedence(TAIL, True, 100.0) == TAIL
    assert ours.one.precedence(TAIL, False, 100.0) == EMPTY, "its store, or its record, does not let it"


def test_one_that_stops_has_no_precedence() -> None:
    ours = Watcher()
    ours.one.retire()
    assert ours.one.precedence(TAIL, True, 100.0) == EMPTY


def test_one_whose_proposal_is_under_way_for_longer_than_a_lease_has_no_precedence() -> None:
    ours = Watcher()
    ours.until(101.01, linked=())
    assert ours.one.in_flight is not None and ours.one.sent_at == 101.0
    ours.until(102.0)
    assert ours.one.precedence(TAIL, True, 102.0) == TAIL
    ours.until(102.01)
    assert ours.one.precedence(TAIL, True, 102.01) == EMPTY
    ours.one.settled(102.01)
    assert ours.one.precedence(TAIL, True, 102.01) == EMPTY, "its next change would be answered as late"


def test_one_whose_proposal_came_to_nothing_waits_for_others_and_stands_if_there_are_none() -> None:
    ours = Watcher()
    assert stood(ours.until(101.01, linked=()))
    ours.one.settled(101.01, unknown=True)
    assert ours.one.precedence(TAIL, True, 101.02) == EMPTY
    assert probed(ours.until(101.02)) == ["a", "c"]
    ours.answer(A, Position(1, 1)), ours.answer(C, EMPTY)
    assert ours.until(101.03) == [], "a's log ends before its own, and a can stand"
    assert stood(ours.until(101.4, linked=())), "it does not rest where no other node is"


def test_one_that_reads_nothing_waits_for_others() -> None:
    ours = Watcher()
    ours.reads = False
    assert probed(ours.until(101.01)) == ["a", "c"]
    ours.answer(A, Position(1, 1)), ours.answer(C, EMPTY)
    assert ours.until(101.02) == []


def test_one_that_is_too_busy_to_time_a_lease_has_no_precedence_unless_it_needs_none() -> None:
    ours = Watcher()
    long = SETTINGS.longest_step + 0.05
    for step in range(1, 5):
        assert ours.one.precedence(TAIL, True, ours.at) == TAIL
        ours._tick(100.0 + step * long, BOTH, TAIL)
    assert ours.one.precedence(TAIL, True, ours.at) == EMPTY
    ours.one.observe(msgspec.structs.replace(RECORD, version=6, released=True), ours.at)
    for step in range(5, 9):
        ours._tick(100.0 + step * long, BOTH, TAIL)
    assert ours.one.precedence(TAIL, True, ours.at) == TAIL, "the lease was given up: it need not time it"


def refused_until(ours: Watcher, until: float) -> list[str]:
    """Member c says, whenever it is asked, that its log goes further; what is logged until something is proposed."""
    lines: list[str] = []
    while ours.at < until:
        said = ours.until(ours.at + 0.0625)
        lines += [sentence(each.event) for each in said if isinstance(each, LogLine)]
        if any(isinstance(each, Send) for each in said):
            ours.answer(A, TAIL, ours.one.poll._round), ours.answer(C, Position(3, 10), ours.one.poll._round)
        if any(isinstance(each, CompareAndSet) for each in said):
            break
    return lines


def test_it_says_whom_it_waits_for_and_not_for_ever() -> None:
    """P12: c answers, and does not know that it cannot stand."""
    ours = Watcher()
    assert refused_until(ours, 101.9) == []
    (waits,) = refused_until(ours, 103.9)
    assert "waits for c" in waits and ours.one.in_flight is None
    (stands,) = refused_until(ours, 109.0)
    assert "stands, though it comes behind c" in stands and ours.one.in_flight is not None and 104.0 <= ours.at < 104.5


    ours.one.settled(ours.at, unknown=True)
    assert refused_until(ours, 109.0) == [] and ours.one.in_flight is not None, "it says so once"


def test_one_that_reads_nothing_does_not_know_that_nobody_has_taken_over() -> None:
    ours = Watcher()
    ours.reads = False
    assert refused_until(ours, 109.0) == [] and ours.one.in_flight is None


def test_patience_without_readings() -> None:
    """Nothing is read for ten leases: when the record is read again, c is given its time, as after any other one."""
    ours = Watcher()
    assert refused_until(ours, 100.5) == []
    ours.reads = False
    assert refused_until(ours, 110.0) == []
    ours.reads = True
    assert refused_until(ours, 110.4) == [] and ours.one.in_flight is None
    (waits,) = refused_until(ours, 112.4)
    assert "waits for c" in waits and ours.one.in_flight is None
    (stands,) = refused_until(ours, 119.0)
    assert "stands, though it comes behind c" in stands and 112.4 <= ours.at < 113.0, "1.5 s were read before"


def test_another_version_is_waited_for_anew() -> None:
    ours = Watcher()
    assert len(refused_until(ours, 103.9)) == 1
    ours.record = msgspec.structs.replace(RECORD, version=6)
    assert len(refused_until(ours, 106.9)) == 1 and ours.one.in_flight is None
