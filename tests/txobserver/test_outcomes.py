"""What is remembered: against a model in plain lists, through stores, and at what cost."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.support.examples import examples
from tests.support.operations import lines_of
from txobserver.outcomes import BranchOutcome, Kind, Outcomes, OutcomesMeta, Remembered, name_of, remembered_of
from txobserver.xid import Global, Xid

KEPT, KEPT_SECONDS = 3, 10.0
DAY = 86_400_000
PASSED = st.integers(-3000, 9000) | st.sampled_from([-3 * DAY, 3 * DAY])


def remembered(kind: Kind, number: int, commit: bool, sequence: int, at_ms: int) -> Remembered:
    branch = kind in (Kind.BRANCH, Kind.HEURISTIC)
    return Remembered(kind, 0, b"g%d" % (number % 2), b"b%d" % number if branch else b"", commit, sequence, at_ms)


class OutcomesMachine(RuleBasedStateMachine):
    """Whatever is remembered and forgotten, in memory and in the store that takes the changes, is the model's."""

    def __init__(self) -> None:
        super().__init__()
        self.outcomes = Outcomes(OutcomesMeta(), ())
        self.outcomes.keep(KEPT, KEPT_SECONDS)
        self.model: list[Remembered] = []
        self.expired: dict[Kind, int] = {}
        self.store: dict[bytes, Remembered] = {}
        self.sequence = self.clock = self.stamp = 0

    @rule(kind=st.sampled_from(Kind), number=st.integers(0, 6), commit=st.booleans(), passed=PASSED)
    def remember(self, kind: Kind, number: int, commit: bool, passed: int) -> None:
        self.sequence += 1
        before, self.stamp = self.stamp, max(1, self.stamp + passed)
        self.clock += min(max(0, self.stamp - before), int(KEPT_SECONDS * 100))
        self.outcomes.remember(remembered(kind, number, commit, self.sequence, self.stamp))
        each = msgspec.structs.replace(
            remembered(kind, number, commit, self.sequence, self.stamp), clock_ms=self.clock
        )
        self.model = [known for known in self.model if name_of(known) != name_of(each)] + [each]
        for of in (Kind.BRANCH, Kind.TOKEN, Kind.GLOBAL):
            there = [known for known in self.model if known.kind is of]
            while there and (len(there) > KEPT or there[0].clock_ms < self.clock - KEPT_SECONDS * 1000):
                self.model.remove(first := there.pop(0))
                self.expired[of] = max(self.expired.get(of, 0), first.sequence)

    @rule(kind=st.sampled_from(Kind), number=st.integers(0, 6))
    def forget(self, kind: Kind, number: int) -> None:
        name = name_of(remembered(kind, number, True, 1, 1))
        there = [known for known in self.model if name_of(known) == name]
        assert self.outcomes.forget(name) is bool(there)
        self.model = [known for known in self.model if name_of(known) != name]

    @rule()
    def save(self) -> None:
        changes, anew = self.outcomes.take_changes()
        if anew:
            self.store.clear()
        for key, each in changes.items():
            if each is None:
                self.store.pop(key, None)
            else:
                self.store[key] = each
        assert sorted(self.store.values(), key=lambda each: each.sequence) == self.model

    @rule()
    def restart(self) -> None:
        self.save()
        again = Outcomes(self.outcomes.meta, self.store.values())
        again.keep(KEPT, KEPT_SECONDS)
        assert again.meta == self.outcomes.meta
        self.outcomes = again

    @rule(had=st.integers(0, 6))
    def copied(self, had: int) -> None:
        """A joiner, with outcomes of its own before, takes the place of this node."""
        joiner = Outcomes(OutcomesMeta(), [remembered(Kind.TOKEN, had, True, 1, 1)])
        joiner.keep(KEPT, KEPT_SECONDS)
        joiner.replace(self.outcomes.meta, self.outcomes.all())
        assert joiner.meta == self.outcomes.meta
        self.store = {b"of before": remembered(Kind.TOKEN, had, True, 1, 1)}
        self.outcomes = joiner

    @invariant()
    def tells_what_the_model_does(self) -> None:
        assert sorted(self.outcomes.all(), key=lambda each: each.sequence) == self.model
        for kind in Kind:
            for number in range(7):
                name = name_of(remembered(kind, number, True, 1, 1))
                for since in (0, self.sequence - 3, self.sequence):
                    assert self.outcomes.of(name, since) is self._told(kind, number, since)
        for number in range(2):
            branches = [name_of(each) for each in self.model if isinstance(name_of(each), Xid)]
            found = self.outcomes.branches_of(Global(0, b"g%d" % number))
            assert sorted(found) == sorted(xid for xid in branches if xid[1] == b"g%d" % number)

    def _told(self, kind: Kind, number: int, since: int) -> BranchOutcome:
        name = name_of(remembered(kind, number, True, 1, 1))
        for each in self.model:
            if name_of(each) == name and each.kind is Kind.HEURISTIC:
                return BranchOutcome.HEURISTICALLY_COMMITTED if each.commit else BranchOutcome.HEURISTICALLY_ROLLED_BACK
            if name_of(each) == name:
                return BranchOutcome.COMMITTED if each.commit else BranchOutcome.ROLLED_BACK
        of = Kind.BRANCH if kind is Kind.HEURISTIC else kind
        return BranchOutcome.EXPIRED if self.expired.get(of, 0) > since else BranchOutcome.UNKNOWN


OutcomesMachine.TestCase.settings = examples(60, stateful_step_count=40)
TestOutcomes = OutcomesMachine.TestCase


def test_one_more_costs_the_same_however_many_there_are() -> None:
    costs: list[Any] = []
    for count in (100, 20_000):
        outcomes = Outcomes(OutcomesMeta(), ())
        outcomes.keep(count, 1e6)
        for number in range(count):
            outcomes.remember(Remembered(Kind.BRANCH, 0, b"%d" % number, b"", True, number + 1, number))
        costs.append(lines_of(lambda o=outcomes: o.remember(Remembered(Kind.TOKEN, 0, b"t", b"", True, 1, 1))))  # type: ignore[misc]
        outcomes.remember(Remembered(Kind.BRANCH, 0, b"new", b"", True, 30_000, 30_000))
        assert len(outcomes.branches) == count and outcomes.of(Xid(0, b"0", b"")) is BranchOutcome.EXPIRED
    assert costs[0] == costs[1]


class TestClockJumpForgetsOutcomes:
    """``clock_jump_forgets_outcomes``: the times in decisions are of wall clocks, and of several primaries."""

    START = 1_700_000_000_000

    def kept(self, meta: OutcomesMeta = OutcomesMeta()) -> Outcomes:  # noqa: B008 -- immutable
        outcomes = Outcomes(meta, ())
        outcomes.keep(1_000_000, DAY / 1000)
        return outcomes

    def decided(self, outcomes: Outcomes, number: int, stamp: int) -> None:
        outcomes.remember(remembered(Kind.BRANCH, number, True, number, stamp))

    @pytest.mark.parametrize("jump", [3 * DAY, -3 * DAY, 1 << 62, -(1 << 62)])
    def test_one_jump(self, jump: int) -> None:
        outcomes = self.kept()
        for number in range(1, 21):
            self.decided(outcomes, number, self.START + number + (jump if number > 10 else 0))
        assert all(outcomes.of(name_of(each)) is BranchOutcome.COMMITTED for each in outcomes.all())
        assert len(outcomes.branches) == 20

    def test_a_jump_and_back_at_each_of_many_promotions(self) -> None:
        outcomes = self.kept()
        for number in range(1, 1001):
            self.decided(outcomes, number, self.START + (3 * DAY if number % 2 else -2 * DAY))
        assert len(outcomes.branches) == 1000

    @pytest.mark.parametrize("jump", [3 * DAY, 0, -3 * DAY])
    def test_in_the_end_they_expire(self, jump: int) -> None:
        """As time passes by the clock that was set. A clock set back costs the step in which it was."""
        outcomes = self.kept()
        for number in range(1, 3 * 1440):
            stamp = self.START + number * 60_000 + (jump if number > 1000 else 0)
            self.decided(outcomes, number, stamp)
            stood_still = jump < 0 and 1000 < number < 1001 + 1441
            assert len(outcomes.branches) == min(number, 1441 + stood_still), number
        assert outcomes.of(name_of(remembered(Kind.BRANCH, 1, True, 1, 1))) is BranchOutcome.EXPIRED

    def test_a_store_whose_clock_was_set_days_ahead_recovers(self) -> None:
        """A version that took the greatest time for the clock forgot each outcome as it was remembered from then on."""
        stored = msgspec.convert([0, 0, self.START + 30 * DAY, [0, 0, 0, 0]], OutcomesMeta)
        outcomes = self.kept(stored)
        for number in range(1, 1001):
            self.decided(outcomes, number, self.START + number * 1000)
        assert len(outcomes.branches) == 1000
        outcomes.remember(remembered(Kind.BRANCH, 1001, True, 1001, self.START + 5 * DAY))
        assert len(outcomes.branches) == 1001, "the jump to the time of before is one, too"

    def test_a_store_of_before_goes_on_as_before_without_a_jump(self) -> None:
        stored = msgspec.convert([0, 0, self.START, [0, 0, 0, 0]], OutcomesMeta)
        outcomes = self.kept(stored)
        assert outcomes.meta == stored, "until then it is what was stored"
        self.decided(outcomes, 1, self.START + 700)
        assert (outcomes.meta.clock_ms, outcomes.meta.stamp_ms) == (self.START + 700, self.START + 700)

    @pytest.mark.parametrize("stamp", [-5, 1 << 64])
    def test_a_clock_of_before_1970_or_behind_all_ends_can_be_stored(self, stamp: int) -> None:
        outcomes = self.kept()
        self.decided(outcomes, 1, stamp)
        encoded = msgspec.json.encode((outcomes.meta, outcomes.all()))
        assert msgspec.json.decode(encoded, type=tuple[OutcomesMeta, list[Remembered]])[0] == outcomes.meta


def test_the_oldest_is_forgotten_first_in_whatever_order_a_store_gives_them_back() -> None:
    """P6, P7: a store gives them back in the order of keys; a node that started from it forgets what others do."""
    ran, xids = Outcomes(OutcomesMeta(), ()), [Xid(1, name, b"") for name in (b"c", b"b", b"a")]
    for sequence, xid in enumerate(xids, 1):
        ran.remember(remembered_of(xid, True, False, sequence, 1000 * sequence))
    started = Outcomes(ran.meta, sorted(ran.all(), key=lambda each: each.key))
    for each in (ran, started):
        each.keep(3, 86_400.0)
        each.remember(remembered_of(Xid(1, b"d", b""), True, False, 4, 4000))
        assert each.of(xids[0]) is BranchOutcome.EXPIRED and each.of(xids[2]) is BranchOutcome.COMMITTED
    assert started.meta == ran.meta


def test_what_a_snapshot_brought_is_written_once() -> None:
    """A checkpoint after it holds what has changed since."""
    outcomes = Outcomes(OutcomesMeta(), ())
    outcomes.remember(remembered_of(b"t", True, False, 1, 1000))
    outcomes.replace(outcomes.meta, outcomes.all())
    changes, anew = outcomes.take_changes()
    assert anew and len(changes) == 1
    assert outcomes.take_changes() == ({}, False)


@pytest.mark.parametrize("outcome", BranchOutcome)
def test_an_outcome_has_a_word(outcome: BranchOutcome) -> None:
    assert BranchOutcome.of_word(outcome.word) is outcome


def test_words_in_reports_stay_as_they_are() -> None:
    assert [each.word for each in (BranchOutcome.PREPARED, BranchOutcome.ROLLED_BACK)] == ["prepared", "rolled back"]
    with pytest.raises(ValueError, match="'lost' is no outcome"):
        BranchOutcome.of_word("lost")


@pytest.mark.parametrize(
    ("outcome", "committed", "rolled_back"),
    [
        (BranchOutcome.COMMITTED, True, False),
        (BranchOutcome.HEURISTICALLY_COMMITTED, True, False),
        (BranchOutcome.ROLLED_BACK, False, True),
        (BranchOutcome.HEURISTICALLY_ROLLED_BACK, False, True),
        (BranchOutcome.MIXED, False, False),
        *((each, None, None) for each in BranchOutcome if each.name in "UNKNOWN PENDING EXPIRED PREPARED ACTIVE"),
    ],
)
def test_an_outcome_against_what_was_decided(
    outcome: BranchOutcome, committed: bool | None, rolled_back: bool | None
) -> None:
    """Nothing is contradicted or confirmed by what has not ended or is not known."""
    assert (outcome.confirms(True), outcome.confirms(False)) == (committed is True, rolled_back is True)
    assert (outcome.contradicts(True), outcome.contradicts(False)) == (committed is False, rolled_back is False)
    assert outcome.heuristic == (outcome.name.startswith("HEURISTIC") or outcome is BranchOutcome.MIXED)
