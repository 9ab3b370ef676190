"""Faults in what ends a silent link, and in what is given up for a node that is gone."""

from __future__ import annotations

import math
from collections.abc import Collection
from contextlib import ExitStack, suppress
from typing import Any

import msgspec

from broker_plugin.coordination.renewer import Renewer
from ha.link_beats import LinkBeats
from ha.membership.record import CasConflict
from ha.messages.beats import Beat
from ha.roles import Leading
from ha.settings import Settings
from tests.simulation.node_child import SimChild
from tests.simulation.seeded.planting import replace, seeded


@seeded("P12")
def a_silent_link_is_never_given_up(stack: ExitStack) -> None:
    replace(stack, LinkBeats, "_silent", lambda original: lambda self, peer, now: False)


@seeded("P12", rare=True)
def who_is_not_heard_keeps_its_end_of_the_link(stack: ExitStack) -> None:
    """It goes on to write into a connection that is dead, until its kernel gives it up."""

    def make(original: Any) -> Any:
        def told(self: LinkBeats, peer: str, beat: Beat) -> None:
            original(self, peer, msgspec.structs.replace(beat, unheard=False))

        return told

    replace(stack, LinkBeats, "told", make)


@seeded("P12", rare=True)
def a_link_is_judged_from_the_first_beat_on(stack: ExitStack) -> None:
    """Which comes when it is due, and not as soon as there is the link."""

    def heard(original: Any) -> Any:
        return lambda self, peers, now: original(self, [peer for peer in peers if peer in self._every], now)

    def down(original: Any) -> Any:
        def forgets(self: LinkBeats, peer: str, now: float) -> float:
            since: float = original(self, peer, now)
            self._every.pop(peer, None)
            return since

        return forgets

    replace(stack, LinkBeats, "up", lambda original: lambda self, peer, generation, now: None)
    replace(stack, LinkBeats, "heard", heard)
    replace(stack, LinkBeats, "down", down)


@seeded("P12", first=31)
def a_link_is_judged_before_what_came_is_read(stack: ExitStack) -> None:
    """By a node that was stopped, or busy: no step of its clock is long."""
    replace(stack, Settings, "longest_unheard", lambda original: property(lambda self: math.inf))


@seeded("P12", mixed=True)
def a_peer_that_does_not_beat_is_judged(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def heard(self: LinkBeats, peers: Collection[str], now: float) -> None:
            self._heard_at.update((peer, now) for peer in peers if peer in self._features)

        return heard

    replace(stack, LinkBeats, "heard", make)


@seeded("P2", "P6", "P9", "P11", "P12", rare=True)
def a_silent_backup_does_not_count_before_it_is_out(stack: ExitStack) -> None:
    """It is taken out of the record as ever, and what it lacks is acknowledged without waiting for that."""

    def make(original: Any) -> Any:
        def unlinked(self: Leading, peer: str, since: float) -> None:
            original(self, peer, since)
            if since < self.node.now:
                counted = self.keeper.counted()
                self.keeper._counted = frozenset(member for member in counted if member.node != peer)

        return unlinked

    replace(stack, Leading, "unlinked", make)


@seeded("P2", "P3", "P6", "P10", "P11", "P12", first=34)
def a_node_that_is_stopped_is_taken_for_gone(stack: ExitStack) -> None:
    """And its lease is given up, while it may go on any moment."""
    replace(stack, SimChild, "gone", lambda original: lambda self: True)


@seeded("P3", "P6", "P10", "P12", first=14)
def the_lease_of_another_is_given_up(stack: ExitStack) -> None:
    """By the child of a node that is gone, whatever has been changed since."""

    def make(original: Any) -> Any:
        def release(self: Renewer) -> None:
            current = self._store.read()  # type: ignore[attr-defined]
            with suppress(CasConflict):
                if current is not None and self._reign is not None:
                    given_up = msgspec.structs.replace(current, released=True)
                    self._store.compare_and_set(current.version, given_up)

        return release

    replace(stack, Renewer, "release", make)
