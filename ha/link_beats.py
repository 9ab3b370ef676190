"""LinkBeats: a link on which nothing comes any more is down, though no end of it was closed.

A network that drops packets closes no connection. So each node says a word to every peer each ``beat_every``, and a
peer of which nothing has come for ``link_deadline`` counts as one that cannot be reached: the node closes both
connections with it, as if the network had, and dials anew. A primary then takes that backup out of the ready set,
before it acknowledges anything without it, as ever; ``link_down_grace`` runs from the last that was heard.

Promise: a peer whose bytes come is never given up. Whole messages are not asked for, so that one which takes longer
than the deadline on a slow network is life all the time. A node that was stopped, or busy with one long turn, runs its
timers before it reads what came meanwhile, so it judges nothing in the tick that ends a long step (``ha.watch``
says how, and a step is long here that is longer than a beat). What a disk does not write in time is no matter of links:
a backup whose loop goes on beats, and has ``prepare_timeout``. One that is frozen does not beat.

One way may be cut alone. The end that hears nothing says so on the way that is left (``Beat.unheard``) before it closes
the link: the other end then knows since when it has not been heard, unless it was itself that was busy. It closes the
link as well: a firewall that has forgotten one connection drops its end with all else, and the node would write into it
for as long as the kernel sends again, while all that comes by the other connection is well
(``one_of_two_connections_is_dead``).

A core says its first beat as soon as it has the link: so who has become ready has said how often it beats, and is
judged (``frozen_before_its_first_beat``, ``a_peer_that_beats_seldom``). Where only our own end is linked anew, the
other one says nothing for that, and is judged by what has come before (``frozen_behind_one_end_of_a_link``).

A peer that does not know ``BEATS_FEATURE`` is not judged, nor is one of which nothing has come lately: for these the
times of before hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping

from ha.effects import CloseLink, Effect, LogLine, Send
from ha.log_events import LinkSilent
from ha.messages.beats import BEATS_FEATURE, Beat
from ha.settings import LEAST_BEATS, Settings
from ha.watch import Watch

MILLISECONDS = 1000


class LinkBeats:
    """Of one node. Times are the shell's monotonic seconds. ``features``: of each peer that can be reached, what both
    sides know."""

    def __init__(
        self, settings: Settings, features: Mapping[str, frozenset[str]], emit: Callable[[Effect], None]
    ) -> None:
        self._settings = settings
        self._features = features
        self._emit = emit
        self._watch: Watch | None = None
        self._heard_at: dict[str, float] = {}
        self._came_at: dict[str, float] = {}
        self._every: dict[str, float] = {}
        self._told_at: dict[str, float] = {}
        self._unheard_by: set[str] = set()
        self._ticked_at = self._busy_until = self._spoke_at = -math.inf

    def heard(self, peers: Collection[str], now: float) -> None:
        """Bytes have come from these peers."""
        for peer in peers:
            self._came_at[peer] = now
            if BEATS_FEATURE in self._features.get(peer, ()):
                self._heard_at[peer] = now

    def up(self, peer: str, generation: int, now: float) -> None:
        """There is a link with this peer, to which nothing else has been said on it."""
        self._unheard_by.discard(peer)
        if BEATS_FEATURE in self._features.get(peer, ()):
            if now - self._came_at.get(peer, -math.inf) <= self._settings.link_deadline:
                self._heard_at[peer] = now
            self._emit(Send(peer, Beat(generation, self._milliseconds)))

    def told(self, peer: str, beat: Beat) -> None:
        """A peer's beat. What an earlier process of the peer has said of itself holds until the first of this one."""
        self._every[peer], self._told_at[peer] = beat.every / MILLISECONDS, self._ticked_at
        if beat.unheard:
            self._unheard_by.add(peer)
            self._emit(CloseLink(peer))

    def down(self, peer: str, now: float) -> float:
        """The link with this peer is gone; since when it cannot be reached.

        Where the peer says that it has heard nothing: since its deadline ago. A node that was busy in that time may
        not have spoken, and so holds it against no peer.
        """
        unheard = peer in self._unheard_by
        self._heard_at.pop(peer, None)
        self._unheard_by.discard(peer)
        deadline = self._settings.link_deadline
        was_busy = now - self._ticked_at > self._settings.longest_unheard or now - self._busy_until < deadline
        return now - deadline if unheard and not was_busy else now

    def tick(self, generation: int, now: float) -> list[tuple[str, float]]:
        """Time has passed: speak, and judge. Returns who is silent, each with when it was heard last."""
        if self._watch is None:
            self._watch = Watch(self._settings.longest_unheard, now)
        self._watch.tick(now)
        self._ticked_at = now
        if self._watch.passed_over:
            self._busy_until = now
            for peer, heard_at in self._heard_at.items():
                self._heard_at[peer] = min(heard_at + self._watch.passed_over, now)
        self._speak(generation, now)
        if self._watch.unread:
            return []
        return [self._give_up(peer, generation, now) for peer in sorted(self._heard_at) if self._silent(peer, now)]

    def _speak(self, generation: int, now: float) -> None:
        if now - self._spoke_at < self._settings.beat_every:
            return
        self._spoke_at = now
        for peer, features in sorted(self._features.items()):
            if BEATS_FEATURE in features:
                self._emit(Send(peer, Beat(generation, self._milliseconds)))

    def _silent(self, peer: str, now: float) -> bool:
        return now - self._heard_at[peer] > self._deadline(peer)

    def _deadline(self, peer: str) -> float:
        """A peer that beats seldom, by its own configuration, has longer."""
        return max(self._settings.link_deadline, LEAST_BEATS * self._every.get(peer, 0.0))

    def in_a_message(self, peer: str, now: float) -> bool:
        """Whether bytes of this peer come and none of its beats: these wait behind a message that takes long.

        Of one that was set back to a release without beats there will be none.
        """
        if BEATS_FEATURE not in self._features.get(peer, ()):
            return False
        came_at, told_at = self._came_at.get(peer, -math.inf), self._told_at.get(peer, now)
        return now - came_at <= self._deadline(peer) < now - told_at

    def _give_up(self, peer: str, generation: int, now: float) -> tuple[str, float]:
        heard_at = self._heard_at.pop(peer)
        self._emit(LogLine(LinkSilent(peer, now - heard_at)))
        self._emit(Send(peer, Beat(generation, self._milliseconds, True)))
        self._emit(CloseLink(peer))
        return peer, heard_at

    @property
    def _milliseconds(self) -> int:
        return math.ceil(self._settings.beat_every * MILLISECONDS)
