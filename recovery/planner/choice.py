"""Which node to promote, and what can be known of the events that it does not have.

Whatever was acknowledged was durable on every member of the ready set of that moment, and a node that is added to the
set has it all. So each member of the *last* ready set that still has its disk holds everything that was ever
acknowledged, and among them the greatest position wins, as it does without a plan (``ha.membership.candidate``).

Without the record it is not known which nodes were in the set. The greatest position among all whole stores is then at
least as good as any member among them: within one generation the longer log contains the shorter one, and the primary
of a later generation held everything acknowledged before it began. So if no store is lost that could have been in the
set, nothing acknowledged is. If one is, that is not known: it may have been the only member in the end, and have
acknowledged alone (``older_record_restored``). Then an operator says of each such node that its loss is accepted.

Files do not list a node that was added by a change of the members: only the record does. So where the flag ``members``
is raised and the record is lost, there may be such a node, and it may have acknowledged alone
(``grown_by_changes_of_the_members_and_the_record_lost``).

A record that can be trusted says which stores do not count any more: those of removed nodes, which may lack what was
committed since. None of them is chosen while there is another one. Where an operator takes one all the same, its node
is a member again in the record that is written: it would stay outside for ever
(``the_only_store_left_is_that_of_a_removed_node``).

An older copy of the record lists members that have been removed since. It is none where a store contradicts it: by a
later generation, by an identity that it does not know, or by something that passed the commit point and that one of
its members lacks. A copy that no store contradicts cannot be told from the record.

What a checkpoint holds has passed the commit point, and each later primary held it, unless one was promoted that must
not have been, by such a copy for instance. So if the store with the greatest position lacks something of another one's
checkpoint, the two exclude each other, and each may hold what was acknowledged. Then an operator says which one counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ha.membership.belonging import membership_of, objection_to, with_ready_bound
from ha.membership.members import readmitted
from ha.membership.record import Record
from recovery.planner.facts import RecordState, Site, StoreCondition, SurveyedStore, ToldClient
from txobserver.ids import Position

HEADROOM = 1000
"""By how much the generation is raised above every known one where a lost node may have known a higher one."""

_LACKS_NOTHING = (StoreCondition.WHOLE, StoreCondition.RESYNCING)
"""A store is taken out of the ready set, durably, before it is marked as resyncing, and is not in it again before the
mark is gone: its primary held all that was acknowledged, and either has its store or is itself among the lost."""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """``chosen``: the store to be promoted, if there is one. ``sure``: it holds everything that was acknowledged.

    ``by_itself``: it is promoted without anything being done. ``trusted``: the record is intact, and no store
    contradicts it. ``missing``: the nodes whose stores are lost, and may alone have held what was acknowledged;
    ``unknown``: that may be true of nodes that were not named. ``asks``: a sentence on why an operator has to accept
    more than what those held, empty if not. ``between``: the nodes whose stores exclude each other, if any do, the one
    that is promoted if none is named first; ``picked``: an operator has said which of them counts.
    """

    chosen: SurveyedStore | None
    sure: bool
    by_itself: bool
    trusted: bool
    reasons: tuple[str, ...]
    missing: tuple[str, ...] = ()
    unknown: bool = False
    asks: str = ""
    between: tuple[str, ...] = ()
    picked: bool = False


def choose(site: Site) -> Choice:
    """The node to promote. Pure; needs nothing but positions, and who was in the ready set."""
    record = site.record
    contradiction = _contradiction(site)
    trusted, reasons = contradiction is None, [contradiction] if contradiction else []
    whole = [store for store in site.stores if store.condition is StoreCondition.WHOLE]
    ready = [store for store in whole if trusted and record is not None and store.member in record.ready]
    if not whole:
        return Choice(chosen=None, sure=False, by_itself=False, trusted=trusted, reasons=(*reasons, _why_none(site)))
    counting = [store for store in whole if not (trusted and _outside(store, record))] or whole
    chosen = max(ready or counting, key=lambda store: (store.tail, store.node))
    if ready:
        reasons.append(_among_ready(chosen, ready))
        return Choice(chosen=chosen, sure=True, by_itself=True, trusted=True, reasons=tuple(reasons))
    rivals = [store for store in _ours(site) if chosen.lacks(store) and not _given_up(store.applied, chosen, record)]
    unknown, asks = False, ""
    if trusted and record is not None:
        members = ", ".join(str(member) for member in record.ready)
        reasons.append(f"no member of the ready set ({members}) has its store any more")
        missing = {member.node for member in record.ready}
    else:
        asks = _who_is_unknown(site)
        missing, unknown = _may_have_been_ready(site), bool(asks)
        if not missing and not unknown:
            reasons.append("every node's store is there, so one of them is a member of the last ready set")
    reasons += [_lacks(chosen, store) for store in rivals]
    missing |= {store.node for store in rivals if store.condition is not StoreCondition.WHOLE}
    if not (trusted and record is not None) and (missing or unknown):
        reasons += [*_cannot_be_known(missing, whole), *filter(None, [asks])]
    between = _between(chosen, rivals)
    picked = next((store for store in between if store.node == site.picked), None)
    reasons.append(_greatest(chosen, counting, f"of all whole stores{' of members' if counting != whole else ''}"))
    if picked is not None:
        reasons.append(f"an operator has said that the store of {picked.node} counts")
    if trusted and (outside := _outside(picked or chosen, record)):
        asks = outside
        reasons.append(asks)
    return Choice(
        chosen=picked or chosen,
        sure=not missing and not unknown and not between,
        by_itself=False,
        trusted=trusted,
        reasons=tuple(reasons),
        missing=tuple(sorted(missing)),
        unknown=unknown,
        asks=asks,
        between=tuple(store.node for store in between),
        picked=picked is not None,
    )


def told(position: Position, choice: Choice, site: Site) -> ToldClient:
    """Whether a client can have been told of an event that the chosen store does not hold."""
    chosen = choice.chosen if not choice.between else None
    passed = any(store.applied.sequence >= position.sequence and store.holds(position) for store in _ours(site))
    if passed and (choice.sure or (chosen is not None and _given_up(position, chosen, site.record))):
        return ToldClient.ACCEPTED
    if passed:
        return ToldClient.ACKNOWLEDGED
    later = chosen is not None and chosen.generation_at(position.sequence) > position.generation
    if _may_be_given_up(position, site.record):  # that promotion asked no node that held it whether it had passed
        return ToldClient.ACCEPTED if choice.sure or later else ToldClient.UNKNOWN
    if choice.sure or later:  # a later primary was promoted without it, as one that held all that was acknowledged
        return ToldClient.NEVER
    if choice.trusted and site.record is not None:
        for store in _ours(site):
            if store.complete and store.member in site.record.ready and not store.holds(position):
                return ToldClient.NEVER
    return ToldClient.UNKNOWN


def record_for(chosen: SurveyedStore, choice: Choice, site: Site) -> Record:
    """The record with which the chosen node is promoted: alone in the ready set, above every known generation.

    If something acknowledged may be lost with it, that stands in it from then on: the operator who carries the plan out
    has accepted it. Which losses were accepted before stood in the last record. If that is gone, an acceptance that
    came about was for a generation that stands in the chosen store's stream, so for none above its last one
    (``an_accepted_loss_is_forgotten_with_the_record``). It covers nothing here: no store is overwritten by it.

    A store that the last record does not count belongs to a member from then on: its node could not lead else.
    """
    record = site.record
    known = [store.tail.generation for store in _ours(site)]
    generation = max([*known, record.generation if record else 0]) + 1
    if not choice.trusted and not choice.sure:
        generation += HEADROOM
    assert chosen.member is not None
    version = record.version if record else 0
    ready = (chosen.member,)
    membership = membership_of(record)
    if record is not None and membership is not None and objection_to(record, chosen.member) is not None:
        record = msgspec.structs.replace(record, membership=readmitted(membership, chosen.member))
    found = Record(
        site.cluster,
        version + 1,
        generation,
        chosen.member,
        ready,
        released=True,
        preferred=chosen.node,
        cluster_id=site.cluster_id,
        loss_accepted=(record.loss_accepted if record else 0) if choice.sure else generation,
        loss_unknown=(record.loss_unknown if record else 0) if choice.trusted else chosen.tail.generation,
        membership=record.membership if record else msgspec.UNSET,
    )
    return with_ready_bound(found)


def _ours(site: Site) -> Sequence[SurveyedStore]:
    return [store for store in site.stores if store.condition is not StoreCondition.FOREIGN]


def _outside(store: SurveyedStore, record: Record | None) -> str:
    """Why this store does not count by the record, and what to do, in a sentence; empty if it does."""
    membership = membership_of(record)
    if record is None or membership is None or store.member is None or objection_to(record, store.member) is None:
        return ""
    removed = f"the store of {store.node} was removed from the cluster"
    why = removed if store.member in membership.removed else f"{store.node} is no member of the cluster"
    move = f", and say where it is with `txha member move {store.node} HOST:PORT`"
    return (
        f"{why}, and may lack what was committed since: bring the store of a member back, or take this one, and make "
        f"its node a member again, with --accept-data-loss{'' if membership.find(store.node) else move}"
    )


def _given_up(position: Position, chosen: SurveyedStore, record: Record | None) -> bool:
    """Whether the chosen store goes on from a promotion for which an operator accepted that this is lost."""
    return record is not None and position.generation < record.loss_accepted <= chosen.tail.generation


def _may_be_given_up(position: Position, record: Record | None) -> bool:
    """Whether a loss was accepted for a later generation, or may have been: the record that said so was lost."""
    return record is not None and position.generation < max(record.loss_accepted, record.loss_unknown)


def _between(chosen: SurveyedStore, rivals: Sequence[SurveyedStore]) -> list[SurveyedStore]:
    """The stores to choose between: a rival that another one contains would lose more, for nothing."""
    whole = sorted(
        (store for store in rivals if store.condition is StoreCondition.WHOLE),
        key=lambda store: (store.tail, store.node),
    )
    kept = [
        store for index, store in enumerate(whole) if not any(longer.contains(store) for longer in whole[index + 1 :])
    ]
    return [chosen, *reversed(kept)] if kept else []


def _lacks(chosen: SurveyedStore, rival: SurveyedStore) -> str:
    return (
        f"{chosen.node}'s log lacks something that {rival.node}'s checkpoint holds, up to {rival.applied}: it had "
        "passed the commit point, so it may have been acknowledged"
    )


def _cannot_be_known(missing: set[str], whole: Sequence[SurveyedStore]) -> list[str]:
    who = ", ".join(sorted(missing)) or "a node that was not given"
    return [f"whether only {who} held what was acknowledged last cannot be known"] + [
        f"the store of {store.node} was made by `txha rebuild`, and no primary has given it anything since: what "
        "the one before it held is not in it"
        for store in whole
        if store.rebuilt
    ]


def _who_is_unknown(site: Site) -> str:
    """Why there may be nodes that nothing names, and what to do, in a sentence; empty if there are none."""
    if site.nodes is None:
        return (
            "a node that was not given may have held what was acknowledged: give the directories of all nodes with "
            "their node.toml, or accept the loss with --accept-data-loss"
        )
    if any(store.may_change_members for store in _ours(site)):
        return (
            "a node that was not given may have held what was acknowledged: the flag `members` is raised, so nodes may "
            "have been added that no file lists, and only the record said which; give the directories of all nodes, "
            "and say with --accept-data-loss that no other counts"
        )
    return ""


def _may_have_been_ready(site: Site) -> set[str]:
    """The nodes whose stores are lost, and may have been those of members of the last ready set.

    Also where `txha rebuild` has made another one in its place since, out of what other nodes knew.
    """
    there = {store.node for store in site.stores if store.condition in _LACKS_NOTHING and not store.rebuilt}
    named = {store.node for store in _ours(site)} | (site.nodes or frozenset())
    return named - there


def _contradiction(site: Site) -> str | None:
    """Why the record, if there is one, is not the last one; None if nothing speaks against it."""
    record, stores = site.record, _ours(site)
    if record is None:
        return _no_record(site)
    newest = max((store.tail.generation for store in stores), default=0)
    copy, seen = "it is an old copy, and its ready set says nothing", record.generation
    if seen < newest:
        return f"the coordination record is of generation {seen} and a store of generation {newest}: {copy}"
    if not record.cluster_id and site.cluster_id:
        return f"the stores know the identity of their cluster, and the coordination record does not: {copy}"
    for member in stores:
        if member.condition is not StoreCondition.WHOLE or member.member not in record.ready:
            continue
        for store in stores:
            passed = store.applied
            if store.condition is StoreCondition.RESYNCING or passed.generation < record.loss_accepted:
                continue
            if member.lacks(store):
                return (
                    f"the coordination record lists {member.node}, which lacks some of {store.node}'s checkpoint, "
                    f"up to {passed}, that had passed the commit point: {copy}"
                )
    return None


def _no_record(site: Site) -> str:
    if site.record_state is RecordState.DAMAGED:
        return f"the coordination record is damaged ({site.record_why}), so the last ready set is not known"
    return "the coordination record is gone, so the last ready set is not known"


def _why_none(site: Site) -> str:
    if all(store.condition in (StoreCondition.EMPTY, StoreCondition.MISSING) for store in site.stores):
        return "no node has a store with anything in it"
    return "no node has a store that it could start with"


def _among_ready(chosen: SurveyedStore, ready: Sequence[SurveyedStore]) -> str:
    if len(ready) == 1:
        return f"{chosen.node} is a member of the last ready set, so it holds everything that was acknowledged"
    return _greatest(
        chosen, ready, "of the members of the last ready set, each of which holds all that was acknowledged"
    )


def _greatest(chosen: SurveyedStore, among: Sequence[SurveyedStore], of: str) -> str:
    equal = sum(store.tail == chosen.tail for store in among) > 1
    how = "one of the greatest positions" if equal else "the greatest position"
    return f"{chosen.node} has {how}, {chosen.tail}, {of}"
