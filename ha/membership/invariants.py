"""What must be so of the coordination record, and of those who change it (``txobserver.invariants``)."""

from __future__ import annotations

import math

from ha.membership.belonging import membership_of
from ha.membership.candidate import Candidate
from ha.membership.poll import Poll
from ha.membership.record import Record
from ha.membership.record_access import DOUBTED_LEASES, MOST_DOUBTED_LEASES, RecordAccess
from ha.membership.record_keeper import RecordKeeper
from ha.membership.record_watch import RecordWatch
from txobserver.ids import LAST_GENERATION, Member
from txobserver.invariants import differ

ROUNDING = 1e-6
"""Seconds by which sums of steps of a clock may differ."""


def check_record(record: Record) -> None:
    """A record, stored or proposed."""
    assert record.version >= 1, f"P10: a record of version {record.version}"
    assert 0 <= record.generation <= LAST_GENERATION, f"P10: a record of generation {record.generation}"
    assert record.ready, f"P2: version {record.version} lists no ready member"
    assert differ(record.ready), f"P9: version {record.version} lists a member twice"
    assert all(each.node and each.incarnation for each in record.ready), f"P2: {record.ready} lists no store"
    assert record.generation or record.primary is None, f"P10: {record.primary} is primary before any generation"
    assert record.released or not record.preferred, f"P10: {record.preferred} shall follow one who stays"
    assert 0 <= record.loss_accepted <= record.generation, f"P2: a loss is accepted for {record.loss_accepted}"
    assert record.loss_unknown >= 0, f"P2: a loss is unknown for {record.loss_unknown}"
    check_membership(record)


def check_membership(record: Record) -> None:
    """Who belongs to the cluster, as a record says."""
    membership = membership_of(record)
    if membership is None:
        return
    nodes, names = membership.nodes, [each.name for each in membership.nodes]
    assert membership.number >= 1, f"P10: change {membership.number} of the members"
    assert differ(names), f"P10: two members have one name: {names}"
    assert differ((each.host, each.port) for each in nodes), f"P12: two members have one address: {nodes}"
    for member in record.ready:
        node = membership.find(member.node)
        assert node is not None, f"P10: {member} is ready, and no member"
        assert node.counts, f"P2: {member} is ready, and does not count"
        assert node.store == member.incarnation, f"P2: {member} is ready, and listed with the store {node.store}"
        assert member not in membership.removed, f"P10: {member} is ready, and was removed"


def check_members_change(before: Record, wished: Record) -> None:
    """One change of the members at a time, and none by a promotion."""
    old, new = membership_of(before), membership_of(wished)
    if old is None:
        assert new is None or new.number == 1, f"P10: the members begin with change {new}"
        return
    assert new is not None, "P10: a record is rewritten without its members"
    changes = new.number - old.number
    assert 0 <= changes <= 1, f"P10: change {new.number} of the members follows {old.number}"
    gone = {each.name for each in old.nodes} ^ {each.name for each in new.nodes}
    assert len(gone) <= changes, f"P10: the members {gone} come or go in {changes} changes"
    assert not changes or wished.generation == before.generation, "P10: a promotion changes the members"


def check_change(before: Record, wished: Record, expected: int) -> None:
    """What is proposed in the place of ``before``."""
    check_record(wished)
    listed = wished.primary is None or wished.released or wished.primary in wished.ready
    assert listed, f"P2: {wished.primary} is to be primary and not in the ready set"
    assert wished.version == expected + 1, f"P10: version {wished.version} is proposed in the place of {expected}"
    assert wished.generation >= before.generation, f"P10: {wished.generation} is to follow {before.generation}"
    assert wished.cluster_id == before.cluster_id, "P10: the record of another cluster is proposed"
    assert wished.cluster == before.cluster, "P10: the record of another cluster is proposed"
    assert wished.loss_accepted >= before.loss_accepted, "P2: that a loss was accepted is forgotten"
    assert wished.loss_unknown >= before.loss_unknown, "P2: that a loss is unknown is forgotten"
    check_members_change(before, wished)
    if wished.generation == before.generation:
        assert wished.primary == before.primary, f"P10: generation {wished.generation} gets another primary"
        assert wished.loss_accepted == before.loss_accepted, "P2: a loss is accepted without a promotion"
        assert wished.released or not before.released, "P10: a lease that was given up is taken back"
    else:
        assert not wished.released, f"P10: generation {wished.generation} begins without a lease"
        forced = wished.loss_accepted == wished.generation
        if forced:
            assert wished.ready == (wished.primary,), f"P2: a loss is accepted, and {wished.ready} count as ready"
        else:
            assert wished.generation == before.generation + 1, f"P10: {wished.generation} follows {before.generation}"
            assert wished.ready == before.ready, "P2: a promotion changes the ready set"
            assert wished.primary in before.ready, f"P2: {wished.primary} stands, which is not in the ready set"


def check_keeper(keeper: RecordKeeper, me: Member, now: float) -> None:
    """The primary's hand on the record."""
    record, flying = keeper.record, keeper.in_flight
    check_record(record)
    assert record.primary == me, f"P10: {me} keeps the record of {record.primary}"
    assert record.generation >= 1, f"P10: {me} is primary of generation {record.generation}"
    begun = max(keeper._sent_at, keeper._renewed_at)
    assert keeper._lease_until <= begun + keeper._lease_seconds + ROUNDING, "P10: a lease runs from later on"
    assert keeper._lease_seconds <= keeper._settings.lease_ttl, "P10: a lease is counted on for longer than it holds"
    assert not keeper._adds & keeper._removes, f"P9: {keeper._adds & keeper._removes} is to be added and removed"
    assert keeper._adds.isdisjoint(record.ready), f"P9: {keeper._adds} is to be added, and is listed"
    assert me not in keeper._removes, f"P2: {me} takes itself out of the ready set"
    assert me not in keeper._adds, f"P9: {me} adds itself to the ready set"
    assert me not in keeper._leave_to, f"P2: {me} leaves the ready set to itself"
    known = keeper._removes <= keeper.counted() or keeper._holds_back
    assert known, f"P11: {keeper._removes - keeper.counted()} is to go, and does not count"
    assert keeper._unresolved <= keeper.counted() | {me}, "P11: a member whose addition may land does not count"
    listed = frozenset(record.ready) - {me}
    assert listed <= keeper.counted(), f"P11: {listed - keeper.counted()} is listed, and is not waited for"
    assert keeper.counted() == (listed | keeper._unresolved) - {me}, "P11: who counts is not who is, or may be, listed"
    assert not record.released or keeper.releasing, "P10: the lease was given up by another than its holder"
    assert not keeper.lost or not keeper.holds(now), "P10: a lease that is lost holds"
    assert not keeper.releasing or not keeper.holds(now), "P10: a lease that is being given up holds"
    if flying is not None:
        assert flying.expected == record.version, f"P10: {flying.expected} is expected, and {record.version} is known"
        assert isinstance(flying.record, Record), "P10: what is proposed is no record"
        check_change(record, flying.record, flying.expected)
        assert flying.record.generation == record.generation, "P10: a primary proposes another generation"
        added = frozenset(flying.record.ready) - frozenset(record.ready)
        assert added <= keeper._unresolved, f"P11: {added} is being added, and is not waited for"


def check_candidate(candidate: Candidate) -> None:
    """One who watches the record while another is primary."""
    record, flying, me = candidate.record, candidate.in_flight, candidate._me
    if record is not None:
        check_record(record)
    assert candidate._unresolved >= 0, f"P10: a proposal for version {candidate._unresolved} may land"
    assert candidate._heard >= 0, f"P10: a node knows generation {candidate._heard}"
    assert candidate._told_waiting or not candidate._told_overdue, "P12: the deadline is told before what is waited for"
    if candidate._forcing_at is not None:
        assert record is not None, "P2: a loss is accepted before the record is known"
        assert candidate._granted_for >= 1, f"P2: a loss is accepted for version {candidate._granted_for}"
        assert candidate._granted_for <= record.version, "P2: a loss is accepted for a version that is not there"
        assert not candidate._retired, "P10: a node that stops stands by force"
    if flying is not None:
        assert record is not None, "P10: a proposal is on its way before the record is known"
        wished = flying.record
        assert isinstance(wished, Record), "P10: what is proposed is no record"
        check_record(wished)
        assert flying.expected == candidate._unresolved, f"P10: the proposal for {flying.expected} is not waited for"
        assert flying.expected >= 1, f"P10: a proposal for version {flying.expected}"
        assert flying.expected <= record.version, (
            f"P10: a proposal for {flying.expected}, and {record.version} is known"
        )
        assert wished.version == flying.expected + 1, f"P10: {wished.version} is proposed for {flying.expected}"
        assert wished.primary == me, f"P10: {me} proposes {wished.primary}"
        assert me in wished.ready, f"P2: {me} stands, which is not in the ready set"
        assert not wished.released, "P10: a candidate proposes a lease that is given up"
    check_watch(candidate.watch)
    check_poll(candidate.poll, me)
    check_access(candidate.access)


def check_watch(watch: RecordWatch) -> None:
    """For how long the record has stood still."""
    assert watch._stood >= 0, f"P10: the record has stood still for {watch._stood} s"
    assert watch._unwatched >= 0, f"P12: the record was not watched for {watch._unwatched} s"
    assert watch.seen_to_stand >= 0, f"P10: the record was seen to stand still for {watch.seen_to_stand} s"
    assert watch.seen_to_stand <= watch._stood + ROUNDING, "P10: it was seen to stand for longer than it stood"
    assert watch._stood == 0 or watch._ticked_at is not None, "P10: it has stood still before the first tick"
    assert math.isfinite(watch._stood), "P10: the record has stood still for ever"


def check_poll(poll: Poll, me: Member) -> None:
    """What the other members are asked."""
    assert poll._round >= 0, f"P10: round {poll._round} of questions"
    assert me.node not in poll._asked, f"P10: {me.node} asks itself"
    assert poll._round or not poll._asked, "P10: members have been asked in no round"
    assert poll._round or not poll.under_way, "P10: answers are waited for in no round"
    for node, tail in poll.replies.items():
        assert node != me.node, f"P10: {node} answers itself"
        assert tail.generation >= 0, f"P10: {node} says that its log ends at {tail}"
        assert tail.sequence >= 0, f"P2: {node} says that its log ends at {tail}"


def check_access(access: RecordAccess) -> None:
    """Whether the record can be changed."""
    doubted = access._doubted_leases
    assert doubted == 0 or DOUBTED_LEASES <= doubted <= MOST_DOUBTED_LEASES, f"P12: in doubt for {doubted} leases"
    assert (doubted == 0) == (access._failed_at == -math.inf), "P12: in doubt without a failure, or in none after one"
    assert access._read_at < math.inf, "P12: the record is read for ever"
