"""Schedules of nodes that refuse, or are on their way to be primary, and of a primary whose disk hangs."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ha.apply.record_gate import RecordGate
from ha.apply.replica import Replica
from ha.effects import CompareAndSet, Effect, LogLine
from ha.membership.record import CasConflict, MemoryCoordination, Record, first_record
from ha.messages.copying import ResyncBegin
from ha.messages.wire import decode
from tests.ha.schedules.test_joiner import force_resync
from tests.ha.schedules.test_record import promote, published, ready, two
from tests.support.steps import backups_of, declared, publish, survivors_agree
from txobserver.ids import Member, Position
from txobserver.ports.store import MemoryBase, Meta


def test_a_node_that_refuses_a_record_does_not_change_it() -> None:
    """An older copy lives on under another primary until it comes to the version that the refusing node knew."""
    cluster, a, _ = two()
    cluster.pause(1)
    old = cluster.coordination.record
    cluster.kill("b")
    cluster.run(lambda: ready(cluster) == ["a"])
    published(cluster, a, "alone")
    cluster.pause(3)
    cluster.coordination.record = old
    cluster.partition("b")
    cluster.start("b")
    cluster.run(lambda: a.state == "joining")
    for _ in range(3000):
        cluster.turn()
        record = cluster.coordination.record
        assert record is not None and (record.primary is None or record.primary.node != "a" or record.generation == 1)
    assert a.core.waits_for_operator is not None and cluster.nodes["b"].state == "active"


def test_a_node_does_not_overwrite_the_record_of_another_cluster() -> None:
    """It stands in the file by mistake, and its versions come to the one that our nodes went by."""
    cluster, _, _ = two()
    cluster.pause(2)
    foreign = first_record("test", "feed" * 8, Member("x", "x9"))
    while True:
        cluster.coordination.record = foreign
        for _ in range(30):
            cluster.turn()
        assert cluster.coordination.record is foreign
        known = [node.core.record for node in cluster.nodes.values()]
        assert all(node.core.waits_for_operator for node in cluster.nodes.values())
        foreign = replace(foreign, version=foreign.version + 1)
        if foreign.version > max(record.version for record in known if record) + 2:
            break


@pytest.mark.parametrize("answer", ["comes", "is lost"])
def test_a_snapshot_that_begins_while_the_node_is_being_forced(answer: str) -> None:
    """The old primary's late word to be overwritten comes between the forced compare-and-set and its answer.

    Or it comes when that answer was lost, and it is not known whether the change has landed.
    """
    cluster, a, b = two()
    cluster.kill("b")
    cluster.run(lambda: ready(cluster) == ["a"])
    published(cluster, a, "alone")
    force_resync(a)
    cluster.held.add(("a", "b"))
    b = cluster.start("b")
    cluster.run(lambda: any(t == "b" and isinstance(decode(data), ResyncBegin) for _, t, data in cluster.wire))
    begins = [decode(data) for _, t, data in cluster.wire if t == "b"]
    cluster.cas_held.add("a")
    cluster.run(lambda: a.core.leading is None and promote(b) is None)
    cluster.cas_held.add("b")
    cluster.run(lambda: b.core.candidate.in_flight is not None)
    if answer == "is lost":
        (forced,) = [effect for node, effect in cluster.cas if node is b]
        cluster.cas = [each for each in cluster.cas if each[0] is not b]
        cluster.land(b, forced, report=False)
        b.report(lambda: b.core.on_cas_failed(forced))
    assert b.core.following is not None
    for begin in [each for each in begins if isinstance(each, ResyncBegin)]:
        late = replace(begin, session=b.core.following.backup.session)
        b.report(lambda late=late: b.core.on_message("a", late))  # type: ignore[misc]
    assert b.core.replica.whole
    cluster.cas_held.clear()
    cluster.kill("a")
    cluster.run(lambda: b.state == "active")
    published(cluster, b, "after")
    cluster.kill("b")
    b = cluster.start("b")
    cluster.run(lambda: b.state == "active")
    assert "after" in b.host.bodies("q")


@pytest.mark.parametrize("others", ["ready", "gone"])
def test_primary_with_a_hung_disk(others: str) -> None:
    """A sync that never ends and never fails: the primary leaves it to a ready backup, if there is one."""
    cluster = declared("q", min_ready=1)
    a = cluster.primary
    published(cluster, a, "m0")
    if others == "gone":
        for name in [each.name for each in backups_of(cluster)]:
            cluster.kill(name)
        cluster.run(lambda: ready(cluster) == [a.name])
    a.disk_held = True
    publish(a, "q", "m1")
    if others == "gone":
        cluster.pause(60)
        assert a.state == "active" and ready(cluster) == [a.name]
    else:
        cluster.run(lambda: a.state == "joining" and any(n.state == "active" for n in cluster.nodes.values()))
        assert a.name not in ready(cluster) and cluster.primary.name != a.name
        published(cluster, cluster.primary, "m2")
        cluster.pause(20)
        assert a.name not in ready(cluster)
    a.disk_held = False
    survivors_agree(cluster)
    assert {"m0"} <= set(cluster.primary.host.bodies("q"))


def test_a_record_changes_only_as_records_change() -> None:
    """Of the same version by chance: another cluster's, one of a lower generation, a second primary of a generation."""
    store, a, b = MemoryCoordination(), Member("a", "1"), Member("b", "1")
    there = Record("test", 7, 4, a, (a, b), cluster_id="one")
    store.record = there
    for refused in (replace(there, cluster_id="two"), replace(there, generation=3), replace(there, primary=b)):
        with pytest.raises(CasConflict):
            store.compare_and_set(7, refused)
    assert store.record is there
    store.compare_and_set(7, replace(there, generation=5, primary=b))


MINE = Record("test", 20, 3, Member("a", "a1"), (Member("a", "a1"),), cluster_id="mine")


@pytest.mark.parametrize("known", [None, replace(MINE, version=15, generation=2)], ids=["first", "later"])
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"cluster_id": ""}, "another cluster"),
        ({"cluster_id": "other"}, "another cluster"),
        ({"generation": 2}, "has seen generation 3"),
        ({}, None),
    ],
    ids=["of before identities", "another identity", "lower generation", "the right one"],
)
def test_which_records_a_node_goes_by(change: dict[str, Any], why: str | None, known: Record | None) -> None:
    """Whether it is the first that it reads or has gone by another before."""
    said: list[Effect] = []
    gate = RecordGate("mine", Replica(MemoryBase(), Meta(Position(3, 9), [Position(3, 1)]), {}), said.append)
    assert gate.admits(replace(MINE, **change), known) is (why is None)
    assert (why or "") in (gate.refused or "") and len(said) == (why is not None)
    assert all(isinstance(line, LogLine) and line.warning for line in said), "an operator must see it"


def test_a_record_that_was_another_cluster_s_for_a_while_has_not_gone_back() -> None:
    """Whatever its version was: the node's own record is there again, and has not grown from a copy."""
    said: list[Effect] = []
    gate = RecordGate("mine", Replica(MemoryBase(), Meta(Position(3, 9), [Position(3, 1)]), {}), said.append)
    assert gate.admits(MINE, None)
    assert not gate.admits(replace(MINE, cluster_id="another", version=1), MINE)
    assert gate.admits(MINE, MINE) and gate.refused is None
    assert len(said) == 1, "that it is right again is no complaint"
    assert not gate.admits(replace(MINE, version=MINE.version - 1), MINE)
    assert f"went back from version {MINE.version} to {MINE.version - 1}:" in str(gate.refused)
    assert not gate.admits(replace(MINE, version=MINE.version + 1), MINE) and "went back" in str(gate.refused)


@pytest.mark.parametrize("change", [{"cluster_id": "another"}, {"generation": 0}], ids=["another cluster", "older"])
def test_a_refused_record_that_a_compare_and_set_finds_is_not_gone_by(change: dict[str, Any]) -> None:
    """It takes the record's place between the reading and a candidate's compare-and-set."""
    cluster = declared("q", size=2)
    (b,) = backups_of(cluster)
    cluster.kill(cluster.primary.name)
    cluster.cas_held.add(b.name)
    cluster.run(lambda: bool(cluster.cas))
    record = cluster.coordination.record
    assert record is not None
    ((_, asked),) = cluster.cas
    cluster.cas.clear()
    foreign = replace(record, version=record.version + 9, primary=Member("x", "x1"), **change)
    b.report(lambda: b.core.on_conflict(asked, foreign))
    assert b.core.waits_for_operator and b.core.record == record
    assert b.core.following is None or b.core.following.backup.primary != "x"


@pytest.mark.parametrize("released", [False, True])
@pytest.mark.parametrize("change", [{"cluster_id": "another"}, {"generation": 0}], ids=["another cluster", "older"])
def test_who_refuses_a_record_does_not_write_over_it(change: dict[str, Any], released: bool) -> None:
    """The version that a candidate knows stands still, since another record has taken its place: it waits."""
    cluster = declared("q", size=2)
    (b,) = backups_of(cluster)
    cluster.kill(cluster.primary.name)
    cluster.turn()
    assert b.core.record is not None
    if released:
        b.core.on_record(replace(b.core.record, version=b.core.record.version + 1, primary=None))
        assert b.core.following is None
    foreign = replace(b.core.record, primary=Member("x", "x1"), ready=(Member("x", "x1"),), **change)
    cluster.coordination.record = foreign
    cluster.pause(5)
    assert b.core.waits_for_operator and cluster.coordination.record is foreign


@pytest.mark.parametrize("behind", [0, 1])
def test_proposal_lands_on_an_older_record(behind: int) -> None:
    """A copy takes the record's place while a proposal made for the copy's version is on its way to the store.

    It is stored, as of a version of which its node knows another record: that of the primary of the same generation. A
    node that knows a later version goes by that.
    """
    cluster = declared("q", size=3)
    c = backups_of(cluster)[1]
    known = c.core.record
    assert known is not None
    ours = replace(known, version=known.version - behind, generation=known.generation + 1, primary=c.member)
    asked = CompareAndSet(ours.version - 1, ours)
    c.core.candidate.in_flight = asked
    c.report(lambda: c.core.on_stored(asked, ours))
    assert c.core.leading is None and c.core.candidate.in_flight is None
    assert ("went back" in (c.core.waits_for_operator or "")) == (behind == 0)


def test_a_change_of_a_role_given_up_is_read_as_any_record() -> None:
    """It was made all the same, and the node is what it says: no other node may tell it."""
    cluster = declared("q", size=2)
    (b,) = backups_of(cluster)
    known = b.core.record
    assert known is not None
    made = replace(known, version=known.version + 1, loss_accepted=known.generation)
    b.report(lambda: b.core.on_stored(CompareAndSet(known.version, made), made))
    assert b.core.record == made


def test_a_candidate_whose_store_has_failed_does_not_lead() -> None:
    """The answer to its proposal comes behind the failure: it only waits for its end, and the lease for another."""
    cluster = declared("q", size=2)
    (b,) = backups_of(cluster)
    cluster.kill(cluster.primary.name)
    cluster.cas_held.add(b.name)
    cluster.run(lambda: bool(cluster.cas))
    ((_, asked),) = cluster.cas
    b.core.on_store_error("input/output error")
    b.core.on_stored(asked, asked.record)
    assert b.core.leading is None and b.core.failed


def test_a_primary_hears_no_answer_to_what_it_asked_in_a_role_before() -> None:
    """Of a proposal that was thought lost, say: the record that it found has been overtaken by the primary's own."""
    primary = declared("q", size=2).primary
    known, leading = primary.core.record, primary.core.leading
    assert known is not None and leading is not None
    other = replace(known, version=known.version + 1, primary=Member("x", "x1"))
    before = CompareAndSet(known.version, other)
    primary.core.on_conflict(before, other)
    primary.core.on_stored(before, other)
    primary.core.on_cas_failed(before)
    assert primary.core.leading is leading and primary.core.record == known


def test_who_is_overwritten_is_not_ready_whatever_record_it_knows() -> None:
    """The record that takes it out of the ready set may reach it behind the primary's word."""
    cluster, a, b = two()
    cluster.kill("b")
    cluster.run(lambda: ready(cluster) == ["a"])
    published(cluster, a, "alone")
    force_resync(a)
    cluster.held.add(("a", "b"))
    b = cluster.start("b")
    cluster.run(lambda: any(t == "b" and isinstance(decode(data), ResyncBegin) for _, t, data in cluster.wire))
    (begin,) = [each for _, t, data in cluster.wire if t == "b" and isinstance(each := decode(data), ResyncBegin)]
    known = b.core.record
    assert known is not None
    b.core.candidate.record = replace(known, ready=(*known.ready, b.member))
    b.core.on_message("a", begin)
    assert b.core.replica.resyncing and b.state == "catchup"
    renewed = replace(known, version=known.version + 1, ready=(*known.ready, b.member))
    b.core.on_record(renewed)
    assert b.state == "catchup", "a reading that comes late shows it in the ready set of before"


@pytest.mark.parametrize("later", [0, 1])
def test_copy_reaches_the_known_version(later: int) -> None:
    """P2: a copy takes the record's place while c reads nothing, and has grown to the version that c knows when c reads
    again: as what c knew, it would let c stand, or be ready, in a ready set that is another one by now."""
    cluster = declared("q", size=3)
    c = backups_of(cluster)[1]
    known = c.core.record
    assert known is not None and c.member in known.ready
    ready = tuple(member for member in known.ready if member != c.member)
    c.report(lambda: c.core.on_record(replace(known, generation=known.generation + later, ready=ready)))
    said = f"went back from version {known.version} to {known.version - 1}:"
    assert said in (c.core.waits_for_operator or "")
    c.report(lambda: c.core.on_record(replace(known, version=known.version + 1)))
    assert said in (c.core.waits_for_operator or ""), "what it becomes later has grown from the copy"
