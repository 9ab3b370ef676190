"""Renewer: renews a primary's lease, in the coordination process, when the node itself does not come to it.

Promise: no lease is renewed unless the node's loop has completed a turn less than ``hung_after`` ago and still leads
the generation whose lease it is. Between the version that the node knows and the one that is there lies nothing but
what was renewed here.

A node asks for a renewal every ``renew_every`` while its turns are short. One that is in the middle of a long turn, or
whose interpreter is held by a call into a library, asks for none; a quarter of that time later this one renews. What
the node asks for next expects the version that it was told last. Within the same generation that is taken for the
version of the last renewal, since the record is otherwise what the node knows (``renewed_while_the_node_asks``). Any
other change, of an operator or another primary, is a conflict here and there: nothing is renewed any more then, until a
change of the node's own has been made.

When the node's process is certainly gone, its lease is given up (``release``): nothing of it can acknowledge, tell or
deliver any more (docs/decisions/released-for-the-dead.md).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import msgspec

from ha.membership.record import CasConflict, CoordinationError, Record
from ha.membership.watchdog import Renewals

LATE = 1.25
"""Times ``renew_every`` after the last renewal was begun one is made here, as the node has asked for none."""


class Changed(Protocol):
    """What is needed of a coordination store."""

    def compare_and_set(self, expected: int, record: Record) -> Record:
        """As ``ha.membership.record.Coordination`` says."""
        ...


class Turns(Protocol):
    """What is needed of a watchdog, on this side."""

    def turned_at(self, generation: int) -> float:
        """When the loop of this generation's primary has completed its last turn; minus infinity if none is kept."""
        ...

    def renewed(self, generation: int, begun_at: float) -> None:
        """A renewal has been made and synced."""
        ...


@dataclass
class Reign:
    """What this node has changed last, and the version by which it knows it. ``tried_at``: the last renewal's begin,
    also of one that failed."""

    told: int
    record: Record
    tried_at: float


class Renewer:
    """``now``: seconds on the clock that the node's lease is counted by. Calls block as those of ``store`` do."""

    def __init__(self, store: Changed, turns: Turns, renewals: Renewals, now: Callable[[], float]) -> None:
        self._store = store
        self._turns = turns
        self._renewals = renewals
        self._now = now
        self._reign: Reign | None = None

    def compare_and_set(self, expected: int, record: Record) -> Record:
        """What the node asks for; see above for what it expects. Raises CasConflict, CoordinationError."""
        reign, self._reign = self._reign, None  # with an outcome that is not known nothing is renewed
        if reign is not None and reign.told == expected and _same_reign(reign.record, record):
            expected = reign.record.version
        began = self._now()
        stored = self._store.compare_and_set(expected, record)
        if stored.primary is not None and not stored.released:
            self._reign = Reign(stored.version, stored, began)
        return stored

    def due_in(self) -> float | None:
        """In how many seconds ``renew`` is to be called, if the node asks for nothing before; None: not at all."""
        if self._reign is None:
            return None
        return max(0.0, self._reign.tried_at + LATE * self._renewals.every - self._now())

    def renew(self) -> None:
        """Renew the lease, if the node's loop goes on."""
        reign = self._reign
        if reign is None:
            return
        began = reign.tried_at = self._now()
        generation = reign.record.generation
        if began - self._turns.turned_at(generation) >= self._renewals.hung_after:
            return
        try:
            reign.record = self._store.compare_and_set(reign.record.version, reign.record)
        except CasConflict:
            self._reign = None
        except CoordinationError:
            return  # it is tried again; if this one was made all the same, the next one meets a conflict
        else:
            self._turns.renewed(generation, began)

    def release(self) -> None:
        """The node is gone for good: give up the lease that it had by the last change known here, if nothing has been
        changed since.

        As a primary does that stops, for any successor; the node stays in the ready set, as it does when its lease runs
        out. Where the store does not answer, or what it did last is not known, it runs out.
        """
        reign, self._reign = self._reign, None
        if reign is not None:
            released = msgspec.structs.replace(reign.record, released=True, preferred="")
            with suppress(CasConflict, CoordinationError):
                self._store.compare_and_set(reign.record.version, released)


def _same_reign(one: Record, other: Record) -> bool:
    return (one.generation, one.primary) == (other.generation, other.primary)
