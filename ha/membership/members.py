"""Members: which nodes belong to the cluster, as the coordination record says (PROTOCOL, "Who is primary").

A record without a membership says nothing of it: each node goes by the list in its own file then. From the first change
on the record says who belongs, and no file does. The primary alone changes it, by the compare-and-set that changes
everything else in the record, one change at a time, so all changes stand in one order and each has a number.

A node *counts* for ``min_ready`` from the compare-and-set on that grants it ``ready`` for the first time, not before:
two empty nodes that are added to a cluster of one would stop all commits else
(``added_nodes_count_before_they_hold_anything``). It does until it is removed, which takes it out of the ready set in
the same compare-and-set (``removed_and_ready``).

A store that a removed node had is refused until it is discarded, also when the name is added again
(``removed_store_comes_back_under_its_name``): the operator who has removed it has given up what it holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

import msgspec

from txobserver.ids import Member
from txobserver.printable import plain

MOST_MEMBERS = 32
"""Nodes that a cluster can have, by changes of its membership: each dials every other."""
MOST_REMOVED = 100
"""Stores of removed nodes that the record remembers, the latest: one that was removed before them is refused for as
long as no member has its node's name, and not longer."""
LONGEST_NAME, LONGEST_HOST = 100, 253
"""Characters of a node's name, and of the name or address of its host"""
ANY_ADDRESS = ("0.0.0.0", "::", "")
"""Where a node listens on all addresses: by which one it is found is for the record to say"""
ADD, REMOVE, MOVE = "add", "remove", "move"
KINDS = (ADD, REMOVE, MOVE)


class ClusterNode(msgspec.Struct, frozen=True):
    """A member of the cluster, and where it listens for other nodes.

    ``counts``: it has been ready since it was added, so ``min_ready`` goes by it. ``store``: the incarnation that it
    was last ready with, as far as the record knows.
    """

    name: str
    host: str
    port: int
    counts: bool = False
    store: str = ""


class Membership(msgspec.Struct, frozen=True):
    """``number``: of the last change, from 1 on. ``removed``: stores that are refused, the latest last."""

    number: int
    nodes: tuple[ClusterNode, ...]
    removed: tuple[Member, ...] = ()

    def find(self, name: str) -> ClusterNode | None:
        """The member of this name."""
        return next((each for each in self.nodes if each.name == name), None)

    @property
    def counting(self) -> int:
        """How many members ``min_ready`` goes by."""
        return sum(each.counts for each in self.nodes)


class MemberChange(NamedTuple):
    """What an operator asks for; ``kind`` is one of ``KINDS``. A removal says no address."""

    kind: str
    name: str
    host: str = ""
    port: int = 0


class ChangeRefused(Exception):
    """A change of the members that cannot be; one sentence says why, and what to do."""


def majority(nodes: int) -> int:
    """How many of so many nodes must be ready: from three on a majority, so that what was committed survives the loss
    of one; else 1."""
    return nodes // 2 + 1 if nodes > 2 else 1


def shown(host: str, port: int) -> str:
    """An address as it is written."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def bound(membership: Membership, ready: Collection[Member]) -> Membership:
    """The same, where these are ready: each of them counts, with the store that it is ready with."""
    stores = dict(ready)

    def each(node: ClusterNode) -> ClusterNode:
        store = stores.get(node.name)
        if store is None or (node.counts and node.store == store):
            return node
        return msgspec.structs.replace(node, counts=True, store=store)

    nodes = tuple(map(each, membership.nodes))
    return membership if nodes == membership.nodes else msgspec.structs.replace(membership, nodes=nodes)


def wrong_name(name: str, there: bool = False) -> str | None:
    """Why no node can be called so, in one sentence; None where one can.

    ``there``: a member may have an odd name, of an earlier version of txha, and can be removed by it.
    """
    if not 0 < len(name) <= LONGEST_NAME:
        return f"a node's name has 1 to {LONGEST_NAME} characters, not {len(name)}"
    if there or plain(name):
        return None
    return f"a node's name can be printed, and has no blanks at its ends: {name!r} is none"


def wrong_host(host: str) -> str | None:
    """Why others cannot find a node at a host of this name or address, in one sentence; None where they can."""
    if not 0 < len(host) <= LONGEST_HOST:
        return f"the host of a node has 1 to {LONGEST_HOST} characters, not {len(host)}"
    if host in ANY_ADDRESS:
        return f"{host} stands for all addresses of a host: say by which one others find it"
    return unreadable_host(host)


def unreadable_host(host: str) -> str | None:
    """Why no host can have this name, in one sentence: a node could not even look for it; None where one can
    (``host_that_no_resolver_takes``)."""
    readable = host.isprintable() and not any(each.isspace() for each in host)
    try:
        host.encode("idna")
    except UnicodeError:
        readable = False
    return None if readable else f"no host can be called {host!r}: look for a mistake in it"


def wrong_in(change: MemberChange) -> str | None:
    """What no node could be called, or found by, in one sentence; None if there is nothing wrong."""
    if change.kind not in KINDS:
        return f"members can be changed by {', '.join(KINDS)}, not by {change.kind!r}"
    if (wrong := wrong_name(change.name, change.kind == REMOVE)) is not None:
        return wrong
    if change.kind == REMOVE:
        return None
    if (wrong := wrong_host(change.host)) is not None:
        return wrong
    return None if 0 < change.port < 1 << 16 else f"a port is a number from 1 to 65535, not {change.port}"


def readmitted(membership: Membership, member: Member) -> Membership:
    """The membership behind a change by which this store counts again, and its node is a member.

    Where others find the node is not known if it was none: its address is empty until it is moved.
    """
    there = membership.find(member.node)
    nodes = membership.nodes if there is not None else (*membership.nodes, ClusterNode(member.node, "", 0))
    removed = tuple(each for each in membership.removed if each != member)
    return Membership(membership.number + 1, nodes, removed)


def changed(membership: Membership, change: MemberChange, stores: Iterable[Member]) -> Membership:
    """The membership behind this change. ``stores``: those that are attached now. Raises ChangeRefused.

    Where all is so already, it is the same one.
    """
    name, there = change.name, membership.find(change.name)
    if change.kind == ADD:
        return _added(membership, change, there)
    if there is None and change.kind == REMOVE and any(each.node == name for each in membership.removed):
        return membership
    if there is None:
        listed = ", ".join(each.name for each in membership.nodes)
        raise ChangeRefused(f"there is no member {name}; there are {listed}")
    others = tuple(each for each in membership.nodes if each.name != name)
    if change.kind == MOVE:
        if (there.host, there.port) == (change.host, change.port):
            return membership
        _check_free(others, change)
        moved = msgspec.structs.replace(there, host=change.host, port=change.port)
        nodes = tuple(moved if each is there else each for each in membership.nodes)
        return Membership(membership.number + 1, nodes, membership.removed)
    gone = {each for each in stores if each.node == name} | ({Member(name, there.store)} if there.store else set())
    removed = [each for each in membership.removed if each not in gone] + sorted(gone)
    return Membership(membership.number + 1, others, tuple(removed[-MOST_REMOVED:]))


def _added(membership: Membership, change: MemberChange, there: ClusterNode | None) -> Membership:
    if there is not None:
        if (there.host, there.port) == (change.host, change.port):
            return membership
        where = shown(there.host, there.port)
        raise ChangeRefused(f"{change.name} is a member already, at {where}: move it with `txha member move`")
    _check_free(membership.nodes, change)
    if len(membership.nodes) >= MOST_MEMBERS:
        raise ChangeRefused(f"the cluster has {MOST_MEMBERS} members, and cannot have more: remove one first")
    node = ClusterNode(change.name, change.host, change.port)
    return Membership(membership.number + 1, (*membership.nodes, node), membership.removed)


def _check_free(others: Iterable[ClusterNode], change: MemberChange) -> None:
    for each in others:
        if (each.host, each.port) == (change.host, change.port):
            raise ChangeRefused(f"{shown(change.host, change.port)} is the address of member {each.name}")
