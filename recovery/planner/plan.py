"""The plan: from what was found to what is to be done. Pure; ``survey`` reads, ``apply`` acts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from ha.membership.record import Record
from recovery.planner.choice import Choice, choose, record_for, told
from recovery.planner.facts import (
    Evidence,
    Loss,
    PromotedContents,
    RecordState,
    Site,
    StoreCondition,
    SurveyedStore,
    ToldClient,
    Unnamed,
)
from recovery.planner.verdicts import Verdict, verdicts
from txobserver.ids import Member, Position
from txobserver.outcomes import BranchOutcome


class Alternative(msgspec.Struct, frozen=True, kw_only=True):
    """One of the stores to choose between, and what is lost if it counts: how many, by kind, that may have been told.

    ``acknowledged``: how many of them certainly had passed the commit point. ``unnamed``: gaps that cannot be named.
    """

    node: str
    position: Position
    loses: dict[str, int]
    acknowledged: int
    unnamed: int = 0


class SetAside(msgspec.Struct, frozen=True, tag=True):
    """A store that its node cannot start with is renamed; the node comes back with a new one.

    ``incarnation``: of that store, empty if it cannot be read any more.
    """

    node: str
    why: str
    incarnation: str


class SetRecordAside(msgspec.Struct, frozen=True, tag=True):
    """A coordination record that is damaged is kept under another name."""

    why: str


class WriteRecord(msgspec.Struct, frozen=True, tag=True):
    """The coordination record names the chosen node. ``expected``: the version that is there now, 0 for none."""

    expected: int
    record: Record


class TakeOut(msgspec.Struct, frozen=True, tag=True):
    """The members whose stores are set aside leave the ready set, while another member is left that has its store.

    ``expected``: the version that is there now. ``record``: as it is then, the same but for that. ``nodes``: who leave;
    ``left``: the member that is promoted.
    """

    expected: int
    record: Record
    nodes: tuple[str, ...]
    left: Member


_HOLDS_NOTHING = (StoreCondition.EMPTY, StoreCondition.MISSING, StoreCondition.FOREIGN)
"""Nothing of the cluster that the record names"""

Action = SetAside | SetRecordAside | WriteRecord | TakeOut


_GONE_BEFORE = (ToldClient.NEVER, ToldClient.ACCEPTED)
"""What this plan takes away from no client"""


class RecoveryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is there, what is to be done, and what becomes of what.

    ``lost``: what was acknowledged, or may have been, and would be gone. ``discarded``: what no client was ever told
    of, or what was given up before. ``alternatives``: what is lost with each store of ``choice.between``.
    ``doubts``: sentences on what keeps this plan from being complete.
    """

    site: Site
    choice: Choice
    contents: PromotedContents
    lost: tuple[Loss, ...] = ()
    discarded: tuple[Loss, ...] = ()
    unnamed: tuple[Unnamed, ...] = ()
    branches: tuple[Verdict, ...] = ()
    actions: tuple[Action, ...] = ()
    doubts: tuple[str, ...] = ()
    alternatives: tuple[Alternative, ...] = ()

    @property
    def rebuild_from(self) -> SurveyedStore | None:
        """Where no node can be promoted: the store whose log leads furthest, and only whose queue state is ruined."""
        alone = [store for store in self.site.stores if store.log_alone]
        return max(alone, key=lambda store: (store.tail, store.node), default=None) if not self.choice.chosen else None

    @property
    def loses(self) -> bool:
        """Whether something acknowledged is lost, or it cannot be known that none is."""
        return self.choice.chosen is not None and not self.choice.sure

    @property
    def for_people(self) -> bool:
        """Whether an operator has to find something out, or to accept a loss."""
        undecided = any(verdict.outcome is BranchOutcome.UNKNOWN for verdict in self.branches)
        return self.loses or undecided or bool(self.doubts)


def make_plan(
    site: Site,
    contents: PromotedContents,
    missing: Iterable[Loss],
    unnamed: Sequence[Unnamed],
    evidence: Evidence,
    earlier: Mapping[str, Verdict] = MappingProxyType({}),
    alternatives: Iterable[Alternative] = (),
) -> RecoveryPlan:
    """``contents`` is that of the chosen store (``choose``), ``missing`` what the others have and it has not.

    ``earlier``: see ``branches.verdicts``.
    """
    choice = choose(site)
    if choice.chosen is None:
        return RecoveryPlan(site=site, choice=choice, contents=contents, doubts=_doubts(site, choice, evidence))
    known = [msgspec.structs.replace(loss, told=told(loss.position, choice, site)) for loss in missing]
    return RecoveryPlan(
        site=site,
        choice=choice,
        contents=contents,
        lost=tuple(loss for loss in known if loss.told not in _GONE_BEFORE),
        discarded=tuple(loss for loss in known if loss.told in _GONE_BEFORE),
        unnamed=tuple(unnamed),
        branches=tuple(verdicts(contents, known, choice.sure, evidence, earlier)),
        actions=tuple(_actions(site, choice)),
        doubts=_doubts(site, choice, evidence),
        alternatives=tuple(alternatives),
    )


def alternative(site: Site, node: str, missing: Iterable[Loss], unnamed: Sequence[Unnamed]) -> Alternative:
    """What is lost if this node's store counts, which lacks ``missing``."""
    site = msgspec.structs.replace(site, picked=node)
    choice = choose(site)
    assert choice.chosen is not None and choice.chosen.node == node
    known = [(loss.kind, told(loss.position, choice, site)) for loss in missing]
    return Alternative(
        node=node,
        position=choice.chosen.tail,
        loses=dict(sorted(Counter(kind for kind, said in known if said not in _GONE_BEFORE).items())),
        acknowledged=sum(said is ToldClient.ACKNOWLEDGED for _, said in known),
        unnamed=len(unnamed),
    )


def _actions(site: Site, choice: Choice) -> Iterable[Action]:
    """The record first: from then on no other node can be promoted, whatever store comes back."""
    if not choice.by_itself:
        if site.record_state is RecordState.DAMAGED:
            yield SetRecordAside(site.record_why)
        assert choice.chosen is not None
        yield WriteRecord(site.record.version if site.record else 0, record_for(choice.chosen, choice, site))
    damaged = [store for store in site.stores if store.condition is StoreCondition.DAMAGED]
    if choice.by_itself and site.record is not None and choice.chosen is not None and choice.chosen.member is not None:
        yield from _taken_out(damaged, site.record, choice.chosen.member)
    for store in damaged:
        yield SetAside(store.node, store.why, store.member.incarnation if store.member else "")


def _taken_out(damaged: Sequence[SurveyedStore], record: Record, chosen: Member) -> Iterable[TakeOut]:
    """A record that went on listing a store that is set aside would say of the next one that another is left.

    A store that does not say whose it is may be that of any member of its node (``recover_then_discard``).
    """
    whose = {store.node: store.member for store in damaged}
    listed = {m for m in record.ready if m.node in whose and whose[m.node] in (m, None)}
    if listed:
        ready = tuple(member for member in record.ready if member not in listed)
        changed = msgspec.structs.replace(record, version=record.version + 1, ready=ready)
        yield TakeOut(record.version, changed, tuple(sorted(member.node for member in listed)), chosen)


def _never_started(site: Site) -> bool:
    """Whether there is nothing to go on with because the cluster was founded, and none of its nodes ever started."""
    founded = site.record is not None and site.record.generation == 0
    return founded and all(store.condition in (StoreCondition.EMPTY, StoreCondition.MISSING) for store in site.stores)


def _nothing_there(site: Site) -> bool:
    """Whether nothing says that there has ever been anything: no record, and empty stores."""
    nothing = site.record is None and site.record_state is RecordState.GONE
    return nothing and all(store.condition is StoreCondition.EMPTY for store in site.stores)


def _founded_over(site: Site) -> list[str]:
    """The nodes whose stores hold data of a cluster over whose lost record this one was founded; none if it was not."""
    if site.record is None or any(store.condition not in _HOLDS_NOTHING for store in site.stores):
        return []
    return [store.node for store in site.stores if store.has_data]


def _way_out(store: SurveyedStore) -> str:
    """For a store of another cluster."""
    if not store.cluster_id:
        return ", move it away"
    if not store.has_data:
        return "; it holds nothing: give it up with `txha discard`"
    return "; if the record was founded over a lost one, move the record away and give the directories of this identity"


def _doubts(site: Site, choice: Choice, evidence: Evidence) -> tuple[str, ...]:
    found = []
    if over := _founded_over(site):
        assert site.record is not None
        found.append(
            f"the coordination record, of identity {site.record.cluster_id}, was founded over a lost one: no store of "
            f"its cluster holds anything, and another one of the same name has data in {', '.join(over)}; stop all "
            "nodes, move the coordination record away, and run `txha recover` again: it writes a new record from them"
        )
    elif _nothing_there(site):
        found.append(
            "there is no coordination record, and every store is empty, so nothing is recovered: found the cluster "
            "with `txha init` if it never held anything, else restore a store from a backup, or make one from an "
            "archive (txha rebuild)"
        )
    elif choice.chosen is None and (alone := [store for store in site.stores if store.log_alone]):
        best = max(alone, key=lambda store: (store.tail, store.node))
        found.append(
            f"the log of {best.node} is whole, from the first event of all to {best.tail}, and only its state/ is "
            "ruined: make its store anew from that log (txha rebuild), and run `txha recover` again, which asks you to "
            "accept what a log that is cut off at its end would lack"
        )
    elif choice.chosen is None and not _never_started(site):
        found.append(
            "there is no store to go on with: restore one from a backup, or make one from an archive (txha rebuild)"
        )
    found += [
        f"{store.node}: {store.why}; this is not touched{_way_out(store)}"
        for store in site.stores
        if store.condition is StoreCondition.FOREIGN and store.node not in over
    ]
    found += [f"{store.node}: {store.rotten}" for store in site.stores if store.rotten]
    found += [log.fault for log in evidence.logs if log.fault]
    found += [f"{database.address}: {database.fault}" for database in evidence.databases if database.fault]
    return tuple(found)
