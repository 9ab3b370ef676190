"""State machines as tables: transitions are data, and the diagrams in docs/ are drawn from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

S = TypeVar("S")
E = TypeVar("E")


class IllegalTransition(Exception):
    """The machine has no such transition: a bug here, or a peer that breaks the protocol."""


@dataclass(frozen=True)
class Table(Generic[S, E]):
    """A named set of transitions (state, event) -> state, with the state that it begins in."""

    name: str
    start: S
    moves: Mapping[tuple[S, E], S]

    def next(self, state: S, event: E) -> S:
        """The state after ``event``. Raises IllegalTransition."""
        try:
            return self.moves[state, event]
        except KeyError:
            raise IllegalTransition(f"{self.name}: no {event} in state {state}") from None

    def allows(self, state: S, event: E) -> bool:
        """Whether ``event`` has a transition from ``state``."""
        return (state, event) in self.moves
