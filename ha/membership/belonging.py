"""Belonging: what a coordination record says of who is a member of the cluster, and how many of them must be ready."""

from __future__ import annotations

import msgspec

from ha.membership.members import Membership, bound, majority
from ha.membership.record import Record
from ha.settings import Settings
from txobserver.ids import Member


def membership_of(record: Record | None) -> Membership | None:
    """Who belongs to the cluster; None where the record does not say, and each node goes by its own file."""
    found = record.membership if record is not None else msgspec.UNSET
    return None if isinstance(found, msgspec.UnsetType) else found


def needed(record: Record, settings: Settings) -> int:
    """``min_ready``, by this record: what a node's file says, or a majority of the members that count."""
    membership = membership_of(record)
    if membership is None or not settings.follow_members:
        return settings.min_ready
    return majority(membership.counting)


def with_ready_bound(record: Record) -> Record:
    """The same record, whose membership knows of each ready member that it counts, and with which store.

    The compare-and-set that grants ``ready`` is the one from which on ``min_ready`` goes by that member.
    """
    membership = membership_of(record)
    if membership is None:
        return record
    found = bound(membership, record.ready)
    return record if found is membership else msgspec.structs.replace(record, membership=found)


def is_member(record: Record | None, node: str) -> bool:
    """Whether a node of this name belongs to the cluster, as far as the record says."""
    membership = membership_of(record)
    return membership is None or membership.find(node) is not None


def objection_to(record: Record, member: Member) -> str | None:
    """Why this member does not belong to the cluster, in one sentence; None if it does."""
    membership = membership_of(record)
    if membership is None:
        return None
    if member in membership.removed:
        return (
            f"{member.node} was removed from cluster {record.cluster}, and its store is refused until it is discarded: "
            "`txha discard`, and `txha member add` if the node shall come back"
        )
    if membership.find(member.node) is None:
        return f"{member.node} is no member of cluster {record.cluster}: add it with `txha member add` at another node"
    return None
