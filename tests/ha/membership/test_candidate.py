"""When a candidate asks, waits and stands, to the moment (``ha.membership.candidate``)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ha.effects import CompareAndSet, LogLine, Send
from ha.log_events import ForcingOutdated
from ha.membership.candidate import Candidate
from ha.membership.record import Record
from ha.messages.election import Probe, ProbeReply
from ha.settings import Settings
from txobserver.ids import Member, Position

A, B, C = (Member(name, f"{name}1") for name in "abc")
SETTINGS = Settings(lease_ttl=1.0, renew_every=0.25, probe_timeout=0.125)
RECORD = Record("c", 5, 3, A, (A, B, C), preferred="")
TAIL = Position(3, 9)
BOTH = ("a", "c")
LONG = Settings(lease_ttl=4.0, renew_every=0.25)


class Watcher:
    """Candidate b, which read the record at 100 s; it ticks in steps that do not stop its watch.

    At each it reads the record again, if ``reads``.
    """

    def __init__(self, record: Record = RECORD, me: Member = B) -> None:
        self.said: list[Any] = []
        self.one = Candidate(me, SETTINGS, self.said.append)
        assert self.one.observe(record, 100.0)
        self.record = record
        self.at = 100.0
        self.reads = True

    def until(self, now: float, linked: tuple[str, ...] = BOTH, tail: Position = TAIL) -> list[Any]:
        """What it says in the ticks up to that moment, one at least."""
        self.said.clear()
        step = SETTINGS.longest_step / 2
        while self.at + step < now:
            self._tick(self.at + step, linked, tail)
        self._tick(now, linked, tail)
        return list(self.said)

    def _tick(self, now: float, linked: tuple[str, ...], tail: Position) -> None:
        self.at = now
        if self.reads:
            self.one.observe(self.record, now)
        self.one.tick(tail, linked, now)

    def answer(self, member: Member, tail: Position, number: int = 1) -> None:
        self.one.reply(ProbeReply(3, number, member, tail))


def probed(said: list[Any]) -> list[str]:
    assert all(isinstance(each.message, Probe) and each.message.generation == 3 for each in said)
    return [each.peer for each in said]


def stood(said: list[Any], me: Member = B) -> bool:
    if not said:
        return False
    (proposal,) = said
    assert isinstance(proposal, CompareAndSet) and proposal.expected == 5
    wished = {"version": 6, "generation": 4, "primary": me, "released": False, "preferred": ""}
    assert proposal.record == msgspec.structs.replace(RECORD, **wished)
    return True


def test_a_version_must_stand_still_for_a_whole_lease() -> None:
    ours = Watcher()
    assert ours.until(100.99) == []
    assert probed(ours.until(101.01)) == ["a", "c"]


def test_another_version_begins_the_lease_anew_and_an_older_one_does_not() -> None:
    ours = Watcher()
    ours.until(100.9)
    assert not ours.one.observe(RECORD, 100.9)
    assert not ours.one.observe(msgspec.structs.replace(RECORD, version=4), 100.9)
    assert ours.one.record is RECORD
    assert ours.one.observe(msgspec.structs.replace(RECORD, version=6), 100.9)
    assert ours.until(101.85) == [] and ours.until(101.95) != []


def test_it_stands_at_once_when_all_that_it_can_reach_have_answered() -> None:
    ours = Watcher()
    ours.until(101.01)
    ours.answer(A, TAIL)
    assert ours.until(101.02) == []
    ours.answer(C, Position(3, 8))
    assert stood(ours.until(101.03))
    assert ours.one.sent_at == 101.03 and ours.one.in_flight is not None
    assert ours.until(101.5) == [], "one proposal at a time"
    ours.one.settled(ours.at)
    assert probed(ours.until(101.6)) == ["a", "c"]


def test_it_asks_only_members_that_it_can_reach() -> None:
    ours = Watcher(msgspec.structs.replace(RECORD, ready=(A, B)))
    assert probed(ours.until(101.01, linked=("a", "c", "d"))) == ["a"]
    alone = Watcher()
    assert stood(alone.until(101.01, linked=())), "no node is to be waited for"


@pytest.mark.parametrize(("took", "doubts"), [(0.97, False), (0.99, True)])
def test_an_answer_behind_the_lease_that_it_is_about_is_a_failure(took: float, doubts: bool) -> None:
    """Whether the proposal was made or not: the next one would be answered as late."""
    ours = Watcher()
    assert stood(ours.until(101.01, linked=()))
    ours.until(ours.one.sent_at + took)
    ours.one.settled(ours.at)
    assert (ours.one.precedence(TAIL, True, ours.at) == Position(0, 0)) == doubts


def test_those_that_do_not_answer_are_waited_for_only_so_long() -> None:
    ours = Watcher()
    ours.until(100.9375)
    assert probed(ours.until(101.0)) == ["a", "c"], "the lease has ended now"
    assert ours.until(101.0625) == []
    assert stood(ours.until(101.125))


@pytest.mark.parametrize(
    ("member", "tail", "stands"),
    [
        (C, Position(3, 10), False),
        (C, Position(4, 1), False),
        (C, TAIL, False),
        (C, Position(3, 8), True),
        (A, TAIL, True),
        (A, Position(3, 10), False),
        (Member("d", "d1"), Position(9, 9), True),
    ],
)
def test_the_greatest_position_wins_and_names_break_ties(member: Member, tail: Position, stands: bool) -> None:
    ours = Watcher()
    ours.until(101.0625)
    ours.answer(member, tail)
    assert stood(ours.until(101.1875)) == stands


def test_one_that_must_not_stand_asks_again_after_a_while() -> None:
    ours = Watcher()
    ours.until(101.0625)
    ours.answer(C, Position(3, 10))
    ours.until(101.1875)
    assert ours.until(101.375) == []
    assert probed(ours.until(101.4375)) == ["a", "c"]
    ours.answer(C, Position(3, 10), number=1)
    assert stood(ours.until(101.5625)), "that was the answer to an earlier question"


@pytest.mark.parametrize(("preferred", "who"), [("", "any node"), ("b", "it"), ("c", "another")])
def test_a_lease_that_was_given_up_is_vacant_at_once_for_whom_it_is_meant(preferred: str, who: str) -> None:
    ours = Watcher(msgspec.structs.replace(RECORD, released=True, preferred=preferred))
    assert probed(ours.until(100.01)) == ([] if who == "another" else ["a", "c"])
    if who == "another":
        assert ours.until(100.9) == []
        assert probed(ours.until(101.01)) == ["a", "c"], "unless that one does not take it"


@pytest.mark.parametrize(("preferred", "stands"), [("b", True), ("", False)])
def test_between_equals_a_handover_s_choice_wins(preferred: str, stands: bool) -> None:
    ours = Watcher(msgspec.structs.replace(RECORD, released=True, preferred=preferred))
    ours.until(100.0625)
    ours.answer(C, TAIL)
    assert stood(ours.until(100.1875)) == stands


def test_one_that_is_no_member_never_stands() -> None:
    ours = Watcher(msgspec.structs.replace(RECORD, ready=(A, C)))
    assert ours.until(109.0) == []


def test_one_without_a_whole_state_neither_stands_nor_forces() -> None:
    ours = Watcher()
    ours.one.force(BOTH, 100.0)
    ours.said.clear()
    for step in range(1, 60):
        ours.one.tick(TAIL, BOTH, 100.0 + step * SETTINGS.longest_step / 2, whole=False)
    assert ours.said == []


@pytest.mark.parametrize(("heard", "generation"), [(0, 4), (3, 4), (7, 8)])
def test_a_force_waits_for_whoever_knows_a_higher_generation(heard: int, generation: int) -> None:
    ours = Watcher()
    ours.one.force({"c", "a"}, 100.0)
    assert [each.peer for each in ours.said if isinstance(each, Send)] == ["a", "c"]
    ours.one.heard(heard)
    ours.one.heard(1)
    assert ours.until(100.0625) == []
    (proposal,) = ours.until(100.125)
    wished = {"version": 6, "generation": generation, "primary": B, "ready": (B,), "loss_accepted": generation}
    assert proposal == CompareAndSet(5, msgspec.structs.replace(RECORD, **wished))
    assert ours.one.sent_at == 100.125
    ours.one.settled(ours.at)
    assert ours.until(100.5) == [], "once"


def test_a_force_goes_above_what_this_store_holds() -> None:
    ours = Watcher()
    ours.one.force((), 100.0)
    (proposal,) = ours.until(100.125, tail=Position(6, 1))
    assert proposal.record.generation == 7


def test_a_second_force_hears_anew() -> None:
    """What was heard of a generation before the last record counts no more than what the record says."""
    ours = Watcher()
    ours.one.force((), 100.0)
    ours.one.heard(7)
    ours.one.force((), 100.0625)
    assert ours.until(100.125) == []
    (proposal,) = ours.until(100.1875)
    assert proposal.record.generation == 4


def test_a_forced_primary_keeps_its_lease() -> None:
    """That the one before gave it up, to another node, is over."""
    ours = Watcher(msgspec.structs.replace(RECORD, released=True, preferred="a"))
    ours.one.force((), 100.0)
    (proposal,) = ours.until(100.125)
    assert (proposal.record.primary, proposal.record.released, proposal.record.preferred) == (B, False, "")


def test_a_force_ends_where_the_store_is_being_overwritten() -> None:
    ours = Watcher()
    ours.one.force((), 100.0)
    ours.one.tick(TAIL, (), 100.1, whole=False)
    assert ours.until(100.5) == []


def test_a_node_with_a_new_store_has_no_say() -> None:
    """It is no member, so it never stands; were it waited for, no node would."""
    ours = Watcher()
    assert probed(ours.until(101.01)) == ["a", "c"]
    ours.answer(Member("a", "a2"), Position(3, 99)), ours.answer(C, Position(3, 1))
    assert ours.until(101.02) == [], "the member itself has not answered"
    assert stood(ours.until(101.25))


def test_a_force_waits_for_the_answer_to_what_was_proposed_before() -> None:
    """Of two changes on their way, the one that was made first would be taken for another node's."""
    ours = Watcher()
    assert probed(ours.until(101.01)) == ["a", "c"]
    assert stood(ours.until(101.25))
    ours.one.force((), 101.25)
    assert ours.until(102.0) == []
    ours.one.settled(ours.at, unknown=True)
    (proposal,) = ours.until(102.0)
    assert proposal.record.ready == (B,) and proposal.expected == 5


def test_another_version_begins_the_questions_anew() -> None:
    """A node that was taken into the ready set meanwhile was not asked, and may hold more than all who were."""
    ours = Watcher()
    assert probed(ours.until(101.01)) == ["a", "c"]
    ours.answer(A, TAIL), ours.answer(C, Position(3, 1))
    d = Member("d", "d1")
    assert ours.one.observe(msgspec.structs.replace(RECORD, version=6, ready=(A, B, C, d), released=True), 101.02)
    assert probed(ours.until(101.03, linked=("a", "c", "d"))) == ["a", "c", "d"]


def test_the_first_question_does_not_wait() -> None:
    ours: list[Any] = []
    one = Candidate(B, SETTINGS, ours.append)
    one.observe(msgspec.structs.replace(RECORD, released=True), 0.0)
    one.tick(TAIL, BOTH, 0.0)
    assert probed(ours) == ["a", "c"]


def test_a_preference_counts_only_where_the_lease_was_given_up() -> None:
    """Names a wish that was never granted: the record still has its primary, and then it died."""
    ours = Watcher(msgspec.structs.replace(RECORD, preferred="b"))
    ours.until(101.0625)
    ours.answer(C, TAIL)
    assert not stood(ours.until(101.1875))


def test_a_force_is_for_one_version() -> None:
    ours = Watcher()
    ours.one.force((), 100.0)
    ours.one.observe(msgspec.structs.replace(RECORD, version=6), 100.0625)
    (line,) = ours.until(100.125)
    assert isinstance(line, LogLine) and line.event == ForcingOutdated(5, 6)


def test_steps_that_are_too_long_count_for_nothing() -> None:
    ours = Watcher()
    for step in range(1, 20):
        ours.one.tick(TAIL, BOTH, 100.0 + step * 0.5)
    assert ours.said == []
    ours.one.tick(TAIL, BOTH, 110.0)
    assert [type(each) for each in ours.said] == [LogLine], "after ten leases"
    for step in range(1, 20):
        ours.one.tick(TAIL, BOTH, 110.0 + step * 0.5)
    assert len(ours.said) == 1, "that is said once"


def test_the_time_that_was_not_watched_is_counted_in_leases() -> None:
    ours = Watcher()
    ours.one = Candidate(B, LONG, ours.said.append)
    assert ours.one.observe(RECORD, 100.0)
    ours.one.tick(TAIL, BOTH, 100.0)
    ours.one.tick(TAIL, BOTH, 139.9)
    assert ours.said == []
    ours.one.tick(TAIL, BOTH, 141.0)
    ours.one.tick(TAIL, BOTH, 200.0)
    assert [type(each) for each in ours.said] == [LogLine]
