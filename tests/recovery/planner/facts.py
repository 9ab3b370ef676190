"""Facts in short, for tests of what is decided from them."""

from __future__ import annotations

from typing import Any

from ha.membership.record import Record
from recovery.planner.facts import RecordState, Site, StoreCondition, SurveyedStore
from txobserver.ids import Member, Position

NODES = frozenset({"a", "b", "c"})


def position(text: str) -> Position:
    """Of ``generation.sequence``."""
    generation, sequence = text.split(".")
    return Position(int(generation), int(sequence))


def store(node: str, tail: str = "1.10", history: str = "1.1", condition: str = "whole", **more: Any) -> SurveyedStore:
    """Of ``a1`` for instance: node a, with its first store; the tail is behind its checkpoint."""
    applied = more.pop("applied", "1.3")
    return SurveyedStore(
        node=node[0],
        condition=StoreCondition(condition),
        member=Member(node[0], node[1:]),
        tail=position(tail),
        applied=position(applied),
        history=tuple(map(position, history.split())),
        **more,
    )


def gone(node: str, condition: str = "missing") -> SurveyedStore:
    """A node of which nothing is left."""
    return SurveyedStore(node=node, condition=StoreCondition(condition), why="it is gone", tail=Position(0, 0))


def record(generation: int, *ready: str) -> Record:
    """With these members of the ready set, the first of whom is primary."""
    members = tuple(Member(each[0], each[1:]) for each in ready)
    return Record("c", 7, generation, members[0], members)


def site(*stores: SurveyedStore, by: Record | None, state: str = "", nodes: frozenset[str] | None = NODES) -> Site:
    """The cluster ``c`` of nodes a, b and c."""
    found = RecordState(state or ("intact" if by else "gone"))
    return Site(cluster="c", stores=stores, record=by, record_state=found, nodes=nodes)
