"""Handover: a primary that gives its lease up on purpose, to a chosen backup or to any.

First it drains (``ha.primary.drain``): what its clients have begun is decided and answered, and nothing more is begun.
Then it closes them, and tells those for which nothing is undecided that what was not answered was not done. Only then
it gives its lease up: until then no other node decides anything. All of it is bounded: a drain that does not end, or a
successor that goes, leaves what there was without them, clients whose last outcome is unknown, and a lease that any
ready node may take.

A primary whose own disk hangs answers nothing, and no node takes it out of the ready set: it renews its lease in time.
So when a write takes longer than any backup may owe one, it leaves the ready set and gives its lease up, if a ready
backup holds everything that has been told (``primary_with_a_hung_disk``). A primary whose checkpoints hang reads no
clients in the end, and then has nothing to write, so that is looked at too (``primary_with_a_hung_checkpoint``).

Both hold until the lease is being given up, also when the clients have been closed for a chosen successor: it is waited
for until it has the whole stream, and what a disk that hangs does not take never reaches it
(``handover_from_a_hung_disk``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping

from ha.apply.checkpointing import behind
from ha.apply.replica import Replica
from ha.effects import Effect, LogLine, Send
from ha.log_events import ClientsHandedOver, HandingOver, SuccessorRefused
from ha.membership.record_keeper import RecordKeeper
from ha.messages.election import HANDOVER_FEATURE, MOST_DRAINED, ClientsClosed, HandoverRefused
from ha.messages.greeting import NO_PEERS
from ha.primary.backups import Backups
from ha.primary.drain import Drain
from ha.primary.primary import Primary
from ha.settings import Settings
from txobserver.ids import Member
from txobserver.ports.ledger import Host

CHECKPOINT_TIMEOUTS = 10
"""How many times as long as a write a checkpoint may keep clients waiting: one that is slow, and ends, is no reason."""


class Handover:
    """Clients are drained and closed, and nothing more is taken, but the node stays primary until the lease is given
    up. ``features``: of each peer that can be reached, what both it and this node know; ``wake`` asks for a turn."""

    def __init__(
        self,
        host: Host,
        settings: Settings,
        emit: Callable[[Effect], None],
        features: Mapping[str, Collection[str]] = NO_PEERS,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self._host = host
        self._settings = settings
        self._stood_at = 0.0
        self._durable = -1
        self._room_at = math.inf
        self._emit = emit
        self._features = features
        self._wake = wake
        self._successor: str | None = None
        self._reason = ""
        self._stops = False
        self._drain: Drain | None = None

    @property
    def draining(self) -> bool:
        """Whether clients are connected still, and nothing more is begun for them."""
        return self._drain is not None

    def asked(self, primary: Primary, node: str, ready: bool, active: bool, now: float) -> None:
        """A backup, ``ready`` or not, asks to be the successor; it is answered with a sentence if it cannot be."""
        refused = self._refuses(ready, active)
        if refused is None:
            self._begin(primary, node, f"handing over to {node}", now)
        else:
            self._emit(LogLine(SuccessorRefused(node, refused)))
            self._emit(Send(node, HandoverRefused(primary.generation, refused)))

    def resign(self, primary: Primary, keeper: RecordKeeper, reason: str, now: float) -> None:
        """This node is about to stop: any ready node may be the successor, also where one was chosen before."""
        self._stops = True
        if self._successor is None and primary.point.serving:
            self._begin(primary, "", reason, now)
            return
        self._successor = ""
        if self._drain is None:
            self._close(primary, reason, now)
            keeper.release("", now)

    def _refuses(self, ready: bool, active: bool) -> str | None:
        if self._successor is not None:
            return f"this node hands over already, to {self._successor or 'any node that stands'}"
        if not ready:
            return "only a ready backup can take over without losing data, and this one is none at the moment"
        return None if active else "this node has been promoted and is not active yet; ask again when it is"

    def _begin(self, primary: Primary, successor: str, reason: str, now: float) -> None:
        """Drain the clients; no ``successor`` means any backup."""
        self._emit(LogLine(HandingOver(successor, reason)))
        self._successor, self._reason = successor, reason
        self._drain = Drain(self._host, self._settings.drain_seconds, self._wake, now)
        self._wake()

    def _close(self, primary: Primary, reason: str, now: float) -> None:
        """Close the clients, and tell the nodes that may be the next primary how they stood."""
        drain = self._drain
        if drain is not None and (served := drain.served) is not None:
            seconds = drain.seconds(now)
            self._emit(LogLine(ClientsHandedOver(*served, seconds)))
            closed = ClientsClosed(primary.generation, *served, min(seconds, MOST_DRAINED), self._stops)
            for node in sorted(self._features):
                if HANDOVER_FEATURE in self._features[node]:
                    self._emit(Send(node, closed))
        primary.point.serving = False
        self._host.on_inactive(reason)
        self._drain = None

    def settle(
        self, primary: Primary, backups: Backups, keeper: RecordKeeper, tail: int, waiting: bool, now: float
    ) -> None:
        """A turn of the primary ends: close the clients when they are drained, and give the lease up behind that.

        ``waiting``: operators of this node wait for an outcome.
        """
        if self._drain is not None:
            if not self._drain.over(primary.point.sequence, waiting, now):
                return
            self._close(primary, self._reason, now)
            if not self._successor:
                keeper.release("", now)
        if self._successor:
            self._release_if_quiet(backups, keeper, tail, now)

    def tick(self, primary: Primary, backups: Backups, keeper: RecordKeeper, replica: Replica, now: float) -> None:
        """Time has passed at the primary, and its backups have been told so before."""
        self._stood_at += backups.watch.passed_over
        self._room_at = min(self._room_at + backups.watch.passed_over, now)
        self._leave_if_hung(primary, backups, keeper, replica, now)

    def _release_if_quiet(self, backups: Backups, keeper: RecordKeeper, tail: int, now: float) -> None:
        """Give the lease up when the chosen one has everything up to ``tail``; to any node, when it is gone."""
        assert self._successor
        session = backups.sessions.get(self._successor)
        if session is None:
            self._successor = ""
            keeper.release("", now)
        elif session.acknowledged >= tail and not keeper.releasing:
            keeper.release(self._successor, now)

    def _leave_if_hung(
        self, primary: Primary, backups: Backups, keeper: RecordKeeper, replica: Replica, now: float
    ) -> None:
        timeout = self._settings.prepare_timeout
        if not primary.writer.writing or replica.durable != self._durable:
            self._durable, self._stood_at = replica.durable, now
        if not behind(replica, self._settings):
            self._room_at = now
        if keeper.releasing or backups.watch.unread:
            return
        if now - self._stood_at > timeout:
            holders = backups.attachments.holders(primary.point.sequence)
            self._leave(primary, keeper, holders, f"the disk has not written for {timeout:g} s", now)
        elif now - self._room_at > CHECKPOINT_TIMEOUTS * timeout:
            holders = backups.attachments.holders(primary.point.sequence)
            room = [each for each in holders if not backups.sessions[each.node].full]
            waited = f"the checkpoints have been behind for {CHECKPOINT_TIMEOUTS * timeout:g} s"
            self._leave(primary, keeper, room, waited, now)

    def _leave(self, primary: Primary, keeper: RecordKeeper, holders: list[Member], reason: str, now: float) -> None:
        if holders:
            self._emit(LogLine(HandingOver("", reason)))
            self._successor, self._drain = "", None
            self._close(primary, reason, now)
            keeper.release("", now, holders)


def take_out_who_stops(keeper: RecordKeeper, former: str, closed: ClientsClosed, now: float) -> None:
    """At a new primary: the one before it has said that it is about to end, so it is not waited for.

    That would take ``link_down_grace``, and lead to the same. It is a member as any until the record says otherwise.
    """
    if closed.stops and closed.generation + 1 == keeper.record.generation:
        for member in keeper.record.ready:
            if member.node == former:
                keeper.remove(member, now)
