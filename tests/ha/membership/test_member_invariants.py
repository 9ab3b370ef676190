"""What must be so of the members in a record fails on one that is broken on purpose (``ha.membership.invariants``)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from ha.membership.invariants import check_change, check_membership
from ha.membership.members import Membership
from ha.membership.record import Record
from tests.ha.membership.test_members import A, B, C, D, nodes_of, record_of

BEFORE = record_of(nodes_of(A, B, C), A, B)
A_NODE, B_NODE, C_NODE = nodes_of(A, B, C)
BROKEN: dict[str, tuple[str, dict[str, Any]]] = {
    "no change": ("change 0 of the members", {"number": 0}),
    "two of one name": ("two members have one name", {"nodes": (A_NODE, B_NODE, replace(B_NODE, port=9))}),
    "two at one address": (
        "two members have one address",
        {"nodes": (A_NODE, B_NODE, replace(C_NODE, host="b", port=2))},
    ),
    "ready and no member": ("is ready, and no member", {"nodes": (A_NODE, C_NODE)}),
    "ready and does not count": ("does not count", {"nodes": (A_NODE, replace(B_NODE, counts=False))}),
    "ready with another store": ("listed with the store b2", {"nodes": (A_NODE, replace(B_NODE, store="b2"))}),
    "ready and removed": ("is ready, and was removed", {"removed": (B,)}),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_members_are_found(kind: str) -> None:
    check_membership(BEFORE)
    why, fields = BROKEN[kind]
    before: Any = BEFORE.membership
    with pytest.raises(AssertionError, match=why):
        check_membership(replace(BEFORE, membership=replace(before, **fields)))


def promoted(record: Record) -> Record:
    """The same, as its next primary proposes it."""
    return replace(record, generation=record.generation + 1, primary=B)


UNSAID = replace(BEFORE, membership=msgspec.UNSET)
ONE_MORE = Membership(8, nodes_of(A, B, C, D))
CHANGES: dict[str, tuple[str, Record, Record]] = {
    "it begins later": ("the members begin with", UNSAID, BEFORE),
    "forgotten": ("rewritten without its members", BEFORE, UNSAID),
    "two at once": (
        "change 9 of the members follows 7",
        BEFORE,
        replace(BEFORE, membership=Membership(9, nodes_of(A, B))),
    ),
    "taken back": (
        "change 6 of the members follows 7",
        BEFORE,
        replace(BEFORE, membership=Membership(6, nodes_of(A, B, C))),
    ),
    "without a number": ("come or go in 0 changes", BEFORE, replace(BEFORE, membership=Membership(7, nodes_of(A, B)))),
    "another in its place": (
        "come or go in 1 changes",
        BEFORE,
        replace(BEFORE, membership=Membership(8, nodes_of(A, B, D))),
    ),
    "by a promotion": ("a promotion changes the members", BEFORE, promoted(replace(BEFORE, membership=ONE_MORE))),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_broken_change_of_the_members_is_found(kind: str) -> None:
    why, before, wished = CHANGES[kind]
    for good in (replace(BEFORE, membership=ONE_MORE), promoted(BEFORE)):
        check_change(BEFORE, replace(good, version=6), 5)
    with pytest.raises(AssertionError, match=why):
        check_change(before, replace(wished, version=6), 5)
