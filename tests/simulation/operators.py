"""What an operator of the cluster does, as docs/operations.md and docs/recovery.md say. The planner's rules are the
product's (``recovery.planner.choice``); only the survey of a store is a model's."""

from __future__ import annotations

from msgspec.structs import replace

from ha.membership.record import Record
from recovery.planner.choice import Choice, choose, record_for
from recovery.planner.facts import RecordState, Site, StoreCondition, SurveyedStore
from recovery.store.durable import make_log_durable
from recovery.store.log import Log
from recovery.store.segment import SegmentInfo
from tests.simulation.cluster import Cluster
from tests.simulation.disk import DIRECTORY, SEGMENT_BYTES, Disk
from tests.simulation.process import CLUSTER_ID
from txobserver.ids import Position
from txobserver.ports.store import StoreDamaged, StoreError

AGAIN = 0.2
"""Seconds after which an operator looks again at what cannot be decided yet"""


def surveyed(disk: Disk) -> SurveyedStore:
    """The facts of a simulated store, as ``recovery.planner.survey`` finds them on a real one."""
    meta, complete = disk.base.meta, True
    tail, history = meta.applied, list(meta.history)
    try:
        if not meta.resyncing:
            for frame in Log(DIRECTORY, _describe, SEGMENT_BYTES, tail, disk.files).inspect(tail):
                if not history or frame.generation > history[-1].generation:
                    history.append(Position(frame.generation, frame.first))
                tail = frame.position
    except StoreDamaged:
        complete = False
    except StoreError:  # the disk fails just now
        return SurveyedStore(node=disk.member.node, condition=StoreCondition.MISSING)
    condition = StoreCondition.WHOLE if tail.sequence else StoreCondition.EMPTY
    if meta.resyncing:
        condition = StoreCondition.RESYNCING
    elif not complete:
        condition = StoreCondition.DAMAGED
    return SurveyedStore(
        node=disk.member.node,
        condition=condition,
        member=disk.member,
        tail=tail,
        applied=meta.applied,
        history=tuple(history),
        complete=complete,
    )


def survey(cluster: Cluster, record: Record | None) -> Site:
    """All of it. ``record``: the one to go by, if there is one."""
    return Site(
        cluster=cluster.name,
        stores=tuple(surveyed(disk) for _, disk in sorted(cluster.disks.items())),
        record=record,
        record_state=RecordState.INTACT if record else RecordState.GONE,
        nodes=frozenset(cluster.disks),
        cluster_id=CLUSTER_ID,
    )


def discard_store(cluster: Cluster, name: str) -> None:
    """``txha discard`` of a node that is down: its member is taken out of the ready set, and its disk is a new one.

    The version of the record is another then, in any case: a change that is on its way comes to nothing, such as one
    that adds the member (``recovery.planner.discarding``).
    """
    record, member = cluster.coordination.record, cluster.disks[name].member
    assert record is not None
    ready = tuple(each for each in record.ready if each != member)
    assert ready, "no operator discards the only store that counts"
    cluster.coordination.compare_and_set(record.version, replace(record, ready=ready))
    cluster.new_disk(name)


def look_after(cluster: Cluster) -> None:
    """When a cluster does not come back by itself: where all members of the ready set have lost their disks, a record
    is written from the stores that are left. Nothing is lost by it, or the faults have taken too much."""
    record = cluster.coordination.record
    if record is None or cluster.coordination.gone or cluster.kept_down or not record.ready:
        return
    if any(cluster.disks[member.node].member == member for member in record.ready):
        return
    cluster.world.say("operator", "finds that no member of the ready set has its disk")
    stop_all(cluster)
    cluster.kept_down |= set(cluster.disks)
    recover_accepting(cluster, lost=False)


def stop_all(cluster: Cluster) -> None:
    """Stop every node."""
    for name in sorted(cluster.processes):
        cluster.kill(name, power=False)


def recover(cluster: Cluster) -> None:
    """``txha recover``: write the record from the stores, if nothing that was acknowledged can be lost; then start.

    While a change of the record is still on its way, or a store cannot be read, the operator looks again later. A
    store of a joiner may be empty: a SIGKILL may have torn its first group. That nothing is missing there he accepts.
    """
    stop_all(cluster)
    site = survey(cluster, None)
    choice = choose(site)
    can = not cluster.coordination.under_way and (choice.sure or _only_empty(site, choice))
    if not can or choice.chosen is None or not _durable(cluster, choice.chosen):
        cluster.world.after(AGAIN, lambda: recover(cluster) if cluster.coordination.gone else None)
        return
    _check_chosen(cluster, choice.chosen, [each for each in site.stores if each.condition is StoreCondition.WHOLE])
    record = record_for(choice.chosen, choice, site)
    cluster.world.say("operator", f"writes the record: {choice.chosen.node} from {choice.chosen.tail}")
    cluster.coordination.write(record)
    start_all(cluster)


def recover_accepting(cluster: Cluster, lost: bool = True) -> None:
    """``txha recover --accept-missing``: as ``recover``, with the store that is left.

    ``lost``: whatever is lost by that. Where two stores exclude each other, the greatest position counts. All nodes
    are kept down meanwhile.
    """
    coordination = cluster.coordination
    site = survey(cluster, None if coordination.gone else coordination.record)
    choice = choose(site)
    if coordination.under_way or choice.chosen is None or not _durable(cluster, choice.chosen):
        cluster.world.after(AGAIN, lambda: recover_accepting(cluster, lost))
        return
    assert choice.chosen.member is not None
    _check_chosen(cluster, choice.chosen, [each for each in site.stores if each.condition is StoreCondition.WHOLE])
    record = record_for(choice.chosen, choice, site)
    cluster.world.say("operator", f"accepts what is missing: {choice.chosen.node} from {choice.chosen.tail}")
    cluster.truth.losses.granted = {choice.chosen.member} if lost else set()
    coordination.write(record)
    cluster.truth.losses.granted.clear()
    cluster.kept_down.clear()
    start_all(cluster)


def _only_empty(site: Site, choice: Choice) -> bool:
    """Whether every store that could be the last one to have acknowledged is there and whole, but for empty ones."""
    empty = {store.node for store in site.stores if store.condition is StoreCondition.EMPTY}
    return not choice.between and set(choice.missing) <= empty


def _durable(cluster: Cluster, chosen: SurveyedStore) -> bool:
    """As ``durable`` of the store: what the record is about to name is on its disk; False if that takes nothing now."""
    disk = cluster.disks[chosen.node]
    try:
        make_log_durable(DIRECTORY, disk.files)
        disk.base.confirm(disk.base.log_begun)
    except StoreError:
        return False
    return True


def _check_chosen(cluster: Cluster, chosen: SurveyedStore, whole: list[SurveyedStore]) -> None:
    """What an operator accepts is the loss of what is not there: the store that counts holds what any of them does."""
    truth = cluster.truth

    def told(store: SurveyedStore) -> int:
        at = truth.told
        while at and not store.holds(Position(truth.generation_at(at), at)):
            at -= 1
        return at

    best = max(whole, key=told)
    if told(chosen) < told(best):
        truth.fail("P2", f"{chosen.node} counts, with {told(chosen)} of what was told; {best.node} has {told(best)}")


def start_all(cluster: Cluster) -> None:
    """Start every node; what does not start is started again when its disk works."""
    for name in sorted(cluster.disks):
        if name not in cluster.processes:
            cluster.start(name)


def _describe(first: int) -> SegmentInfo:
    return SegmentInfo("simulated", "", "", first, 0)
