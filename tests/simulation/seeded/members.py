"""Faults in who belongs to the cluster."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import msgspec

from ha import core, roles
from ha.membership import member_changes, members, record
from ha.membership.member_changes import MemberChanges
from ha.membership.members import MemberChange, Membership
from ha.membership.record import Record
from ha.primary.member_desk import MemberDesk
from tests.simulation.seeded.planting import replace, seeded


@seeded("P10", members=True)
def removed_and_ready(stack: ExitStack) -> None:
    """A removal leaves the member in the ready set until it is silent."""

    def make(original: Any) -> Any:
        def stays(self: MemberChanges, change: MemberChange, record: Record) -> Record:
            return msgspec.structs.replace(original(self, change, record), ready=record.ready)

        return stays

    replace(stack, MemberChanges, "_with", make)


@seeded("P10", members=True)
def removed_store_comes_back_under_its_name(stack: ExitStack) -> None:
    """What was removed is not remembered."""

    def make(original: Any) -> Any:
        def forgets(membership: Membership, change: MemberChange, stores: Any) -> Membership:
            return msgspec.structs.replace(original(membership, change, stores), removed=())

        return forgets

    replace(stack, member_changes, "changed", make)


@seeded("P2", members=True, first=77)
def min_ready_does_not_follow(stack: ExitStack) -> None:
    """It stays what the primary's file says."""
    replace(stack, roles, "needed", lambda original: lambda record, settings: settings.min_ready)


@seeded("P10", members=True)
def two_changes_of_the_members_in_flight(stack: ExitStack) -> None:
    """A second change is taken while the first is on its way; whichever lands, the other is told the same."""

    def make(original: Any) -> Any:
        def ask(self: MemberChanges, change: MemberChange, record: Record, told: Any) -> bool:
            first = self._asked
            self._asked = None
            if first is None:
                return original(self, change, record, told)

            def both(error: str | None) -> None:
                first.told(error)
                told(error)

            return original(self, change, record, both)

        return ask

    replace(stack, MemberChanges, "ask", make)


@seeded("P10", members=True)
def added_nodes_count_before_they_hold_anything(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def counts(membership: Membership, change: MemberChange, there: Any) -> Membership:
            found = original(membership, change, there)
            nodes = tuple(msgspec.structs.replace(each, counts=True) for each in found.nodes)
            return msgspec.structs.replace(found, nodes=nodes)

        return counts

    replace(stack, members, "_added", make)


@seeded("P10", members=True)
def record_rewritten_without_members(stack: ExitStack) -> None:
    """As by a node that knows nothing of them, where the store lets it."""

    def make(original: Any) -> Any:
        def without(self: MemberChanges, wished: Record) -> Record:
            found = original(self, wished)
            if wished.version % 7 == 0 and self._asked is None:
                return msgspec.structs.replace(found, membership=msgspec.UNSET)
            return found

        return without

    replace(stack, MemberChanges, "carried_by", make)
    replace(stack, record, "changes_of", lambda original: lambda record: 0)


@seeded("P10", members=True)
def removed_joiner_stays_attached(stack: ExitStack) -> None:
    """Only a member of the ready set is let go of."""
    replace(stack, MemberDesk, "let_go", lambda original: lambda self, now: None)


@seeded("P10", members=True, first=4)
def removed_node_follows_on(stack: ExitStack) -> None:
    """It does not look whether the record counts it among the members."""
    replace(stack, core, "objection_to", lambda original: lambda record, member: None)
