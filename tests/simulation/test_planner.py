"""What the recovery planner claims, at many moments of runs full of faults, whichever store is lost, record or not.

At such a moment all processes might be killed. The simulator knows what has passed the commit point (its one stream),
which no plan is told: a plan that calls itself sure must hold all of it, and what it says of single events must be so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations, product

import msgspec
import pytest

from ha.membership.record import Record
from recovery.planner.choice import choose, told
from recovery.planner.facts import RecordState, Site, StoreCondition, SurveyedStore, ToldClient
from tests.simulation.cluster import Cluster
from tests.simulation.fault_kinds import may_lose_disk
from tests.simulation.operators import discard_store, recover, surveyed
from tests.simulation.record_faults import recoverable
from tests.simulation.run import LOAD_SECONDS, Run
from txobserver.ids import Position

EVERY = 0.14
SEEDS = (507, 509, 513)


def sites(stores: list[SurveyedStore], record: Record | None) -> Iterator[Site]:
    """The same crash with every set of stores lost or unusable, and with and without its record."""
    nodes = frozenset(store.node for store in stores)
    for count in range(len(stores)):
        for lost in combinations(sorted(nodes), count):
            for each, how in product((record, None), (gone, unusable)):
                left = tuple(how(store) if store.node in lost else store for store in stores)
                state = RecordState.INTACT if each else RecordState.GONE
                yield Site(cluster="c", stores=left, record=each, record_state=state, nodes=nodes)


def gone(store: SurveyedStore) -> SurveyedStore:
    return SurveyedStore(node=store.node, condition=StoreCondition.MISSING)


def unusable(store: SurveyedStore) -> SurveyedStore:
    """Its node would not start with it, and all of it can be read."""
    return msgspec.structs.replace(store, condition=StoreCondition.DAMAGED)


class Auditor:
    """Looks again and again while the run lasts; ``seen`` counts what plans said."""

    def __init__(self, run: Run) -> None:
        self.cluster: Cluster = run.cluster
        self.seen: Counter[str] = Counter()
        run.world.after(EVERY, self._look)

    def _look(self) -> None:
        stores = [surveyed(disk) for _, disk in sorted(self.cluster.disks.items())]
        for site in sites(stores, self.cluster.coordination.valid):
            self._check(site)
        if self.cluster.world.now < LOAD_SECONDS + 5:
            self.cluster.world.after(EVERY, self._look)

    def _check(self, site: Site) -> None:
        truth = self.cluster.truth
        passed = Position(truth.generation_at(truth.reference.end), truth.reference.end)
        choice = choose(site)
        if choice.chosen is None:
            return
        self.seen["sure" if choice.sure else "unsure"] += 1
        if choice.sure and not self._is_given_up(choice.chosen, site.record):
            assert passed.sequence == 0 or choice.chosen.holds(passed), f"{choice} lacks what is acknowledged: {passed}"
        for store in site.stores:
            for sequence in range(max(1, store.tail.sequence - 8), store.tail.sequence + 1):
                position = Position(store.generation_at(sequence), sequence)
                if position.generation and not choice.chosen.holds(position):
                    self._check_told(told(position, choice, site), position, site.record is not None)

    def _is_given_up(self, chosen: SurveyedStore, record: Record | None) -> bool:
        """Whether the record says that an operator goes on from this store and accepts what it lacks (seed 513).

        The truth is cut back not before that node, as a primary, applies its own events.
        """
        if record is None or chosen.member is None:
            return False
        return self.cluster.truth.losses.take_effect_at(chosen.member, record.generation)

    def _check_told(self, said: ToldClient, position: Position, by_record: bool) -> None:
        """What was lost with an operator's consent had passed, too; without the record no plan knows of the consent."""
        truth = self.cluster.truth
        passed = position.sequence <= truth.reference.end
        passed = passed and truth.generation_at(position.sequence) == position.generation
        given_up = truth.losses.had(position)
        self.seen[said.value] += 1
        self.seen["given up"] += given_up
        never = passed or (given_up and by_record)
        assert not (said is ToldClient.NEVER and never), f"{position} was never told, it says, and has passed"
        passed = passed or given_up
        assert not (said is ToldClient.ACKNOWLEDGED and not passed), (
            f"{position} was acknowledged, it says, and was not"
        )


@pytest.fixture(scope="module")
def audited() -> Counter[str]:
    """What plans said in all runs; whatever was wrong has failed by then."""
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        run = Run(seed)
        auditor = Auditor(run)
        result = run.run()
        assert not result.broken, f"seed {seed}: {result.broken}"
        seen += auditor.seen
    return seen


def test_whatever_a_plan_says_is_so(audited: Counter[str]) -> None:
    """And it says everything that there is to say, so none of it holds because it was never said."""
    said = {"sure", "unsure", "acknowledged", "unknown", "never", "accepted", "given up"}
    assert {each for each, count in audited.items() if count} == said
    assert audited["sure"] > 1000 and audited["unsure"] > 1000


def test_an_operator_has_a_record_written_though_a_joiner_is_empty() -> None:
    """Its first group was torn by a SIGKILL, so there is nothing missing that any node acknowledged (seed 176174)."""
    run = Run(3)
    cluster, struck = run.cluster, []

    def strike() -> None:
        name = next((name for name in sorted(cluster.processes) if may_lose_disk(cluster, name)), None)
        if name is None or not recoverable(cluster):
            run.world.after(0.01, strike)
            return
        struck.append(name)
        cluster.kill(name, power=False)
        discard_store(cluster, name)
        cluster.coordination.lose(None)
        recover(cluster)

    run.world.after(0.5, strike)
    assert not run.run().broken and struck
