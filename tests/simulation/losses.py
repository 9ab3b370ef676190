"""Losses that an operator has accepted: which events are none of the one stream any more, and what was told of them.

A loss is accepted when a record says so: for the node that alone is ready in it. It takes effect when that node, as a
primary of that generation or a later one, applies its own events: what its store leads to is the one stream from then
on, up to the first event of the new generation and behind that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ha.membership.record import Record
from txobserver.events import Event
from txobserver.ids import Member, Position


@dataclass
class Loss:
    """``generation``: every event of an older one behind ``tail`` is lost. ``events``: how many are known to be.

    ``tail`` is None until the new primary's first event tells.
    """

    generation: int
    member: Member
    by_force: bool
    tail: int | None = None
    events: int = 0


class Losses:
    """All of a run. ``granted``: at which nodes an operator accepts that something is lost; at others, none may be.
    ``labels``: attempts that had happened, and are lost. ``forced``: how many promotions were forced that lose nothing.
    """

    def __init__(self) -> None:
        self.all: list[Loss] = []
        self.granted: set[Member] = set()
        self.forced = 0
        self._seen = 0
        self.labels: set[str] = set()
        self._known: dict[Position, Event] = {}

    @property
    def generation(self) -> int:
        """The last one in which a loss was accepted; 0: none was."""
        return self.all[-1].generation if self.all else 0

    def accepted(self, record: Record) -> bool:
        """Whether this record accepts a loss that none before it has."""
        if record.loss_accepted != record.generation or record.loss_accepted <= self._seen:
            return False
        self._seen = record.loss_accepted
        if record.primary not in self.granted:
            self.forced += not record.released
            return False
        assert record.primary is not None
        self.granted.clear()
        self.all.append(Loss(record.loss_accepted, record.primary, by_force=not record.released))
        return True

    def struck(self) -> list[str]:
        """The kinds of faults that have come to something: a node was forced, or something was lost."""
        lost = ["force_with_loss" if loss.by_force else "recover_with_loss" for loss in self.all if loss.events]
        return ["force"] * self.forced + lost

    @property
    def is_settling(self) -> bool:
        """Whether events have been cut off, and the new generation has not begun: what is left is not all known."""
        return any(loss.tail is None and loss.events for loss in self.all)

    def take_effect_at(self, member: Member, generation: int) -> bool:
        """Whether this node goes on from its own store now, as an operator wanted, in this generation."""
        pending = [loss for loss in self.all if loss.tail is None]
        return any(loss.member == member and generation >= loss.generation for loss in pending)

    def settle(self, generation: int, start: int) -> None:
        """The first event of this generation has passed the commit point."""
        for loss in self.all:
            if loss.tail is None and generation >= loss.generation:
                loss.tail = start - 1

    def cut(self, stream: list[tuple[int, Event]], kept: int) -> None:
        """These events are lost behind ``kept``."""
        lost = stream[kept:]
        self._known.update({Position(of, kept + at): event for at, (of, event) in enumerate(lost, 1)})
        self.all[-1].events += len(lost)

    def covers(self, position: Position, generation_at: Callable[[int], int]) -> bool:
        """Whether the event at this position is lost; ``generation_at``: of the one stream."""
        return any(
            loss.tail is not None
            and position.generation < loss.generation
            and (position.sequence > loss.tail or generation_at(position.sequence) != position.generation)
            for loss in self.all
        )

    def had(self, position: Position) -> bool:
        """Whether the event at this position had passed the commit point, and is lost."""
        return position in self._known

    def other_than(self, sequence: int, generation: int, event: Event) -> bool:
        """Whether another event is known to have been at this position."""
        return self._known.get(Position(generation, sequence), event) != event
