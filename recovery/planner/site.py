"""A crashed cluster as a whole: every node's store and the record, and the plan for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from ha.membership.record import Record
from recovery.planner.choice import choose
from recovery.planner.facts import Evidence, PromotedContents, RecordState, Site, StoreCondition
from recovery.planner.plan import RecoveryPlan, alternative, make_plan
from recovery.planner.survey import Surveyed, contents_of, survey, whose
from recovery.planner.unshared import unshared
from recovery.planner.verdicts import Verdict
from txobserver.ports.store import StoreError
from txobserver.xid import Xid

RecordFound = tuple[Record | None, RecordState, str]
"""The record, what there is of it, and a sentence if it is damaged"""


def cluster_of(directories: Iterable[Path]) -> str:
    """The id of the cluster that these nodes' stores belong to. Raises StoreError if they do not agree on one."""
    votes: Counter[str] = Counter()
    for directory in directories:
        with suppress(OSError):
            if (owner := whose(directory)) is not None:
                votes[owner.cluster] += 1
    ranked = votes.most_common(2)
    if not ranked:
        raise StoreError("no store says which cluster it belongs to; give the directory of the cluster")
    if len(ranked) == 2 and ranked[0][1] == ranked[1][1]:
        raise StoreError(f"the stores belong to clusters {ranked[0][0]} and {ranked[1][0]}; give those of one cluster")
    return ranked[0][0]


def look(
    cluster: str,
    directories: Mapping[str, Path],
    found: RecordFound,
    nodes: frozenset[str] | None,
    picked: str = "",
    deep: bool = False,
) -> tuple[Site, list[Surveyed]]:
    """Survey every node. ``nodes``: the names of all there are, if they are known; ``picked``: see Site.

    ``deep``: see survey.

    Raises StoreError.
    """
    record, state, why = found
    known = record.cluster_id if record is not None else ""
    surveyed = [survey(node, directory, cluster, known, deep) for node, directory in sorted(directories.items())]
    site = Site(
        cluster=cluster,
        stores=tuple(each.facts for each in surveyed),
        record=record,
        record_state=state,
        record_why=why,
        nodes=nodes,
        cluster_id=known or _identity_of(surveyed),
        picked=picked,
    )
    return site, surveyed


def _identity_of(surveyed: Iterable[Surveyed]) -> str:
    """The one that all stores with anything in them agree on. Raises StoreError if they do not."""
    by_id: dict[str, list[str]] = {}
    for store in (each.facts for each in surveyed):
        if store.cluster_id and store.condition not in (StoreCondition.EMPTY, StoreCondition.FOREIGN):
            by_id.setdefault(store.cluster_id, []).append(store.node)
    if len(by_id) > 1:
        sides = "; ".join(f"{', '.join(nodes)} to {identity}" for identity, nodes in sorted(by_id.items()))
        raise StoreError(
            f"the stores belong to clusters that were founded apart under one name ({sides}): "
            "give the directories of the nodes of one of them"
        )
    return next(iter(by_id), "")


def plan_for(
    site: Site,
    surveyed: list[Surveyed],
    ask: Callable[[Iterable[Xid]], Evidence],
    earlier: Mapping[str, Verdict] = MappingProxyType({}),
) -> RecoveryPlan:
    """The plan. ``ask``: what coordinators and databases say, given the branches in doubt. Raises StoreError.

    ``earlier``: see ``branches.verdicts``.
    """
    choice = choose(site)
    chosen = choice.chosen
    if chosen is None:
        return make_plan(site, PromotedContents(), (), (), ask(()))
    store = next(each for each in surveyed if each.facts is chosen)
    contents = contents_of(store)
    missing, unnamed = unshared(chosen, surveyed)
    evidence = ask([branch.xid for branch in contents.branches])
    between = [each.facts for node in choice.between for each in surveyed if each.facts.node == node]
    alternatives = [alternative(site, facts.node, *unshared(facts, surveyed)) for facts in between]
    return make_plan(site, contents, missing, unnamed, evidence, earlier, alternatives)
