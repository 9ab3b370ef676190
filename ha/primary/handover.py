"""Handover: a primary that gives its lease up on purpose, to a chosen backup or to any.

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
from collections.abc import Callable

from ha.apply.checkpointing import behind
from ha.apply.replica import Replica
from ha.effects import Effect, LogLine, Send
from ha.log_events import HandingOver, SuccessorRefused
from ha.membership.record_keeper import RecordKeeper
from ha.messages.election import HandoverRefused
from ha.primary.backups import Backups
from ha.primary.primary import Primary
from ha.settings import Settings
from txobserver.ids import Member
from txobserver.ports.ledger import Host

CHECKPOINT_TIMEOUTS = 10
"""How many times as long as a write a checkpoint may keep clients waiting: one that is slow, and ends, is no reason."""


class Handover:
    """Clients are closed and nothing more is taken, but the node stays primary until the lease is given up."""

    def __init__(self, host: Host, settings: Settings, emit: Callable[[Effect], None]) -> None:
        self._host = host
        self._settings = settings
        self._stood_at = 0.0
        self._durable = -1
        self._room_at = math.inf
        self._emit = emit
        self._successor: str | None = None

    def asked(self, primary: Primary, node: str, ready: bool, active: bool) -> None:
        """A backup, ``ready`` or not, asks to be the successor; it is answered with a sentence if it cannot be."""
        refused = self._refuses(ready, active)
        if refused is None:
            self.begin(primary, node, f"handing over to {node}")
        else:
            self._emit(LogLine(SuccessorRefused(node, refused)))
            self._emit(Send(node, HandoverRefused(primary.generation, refused)))

    def _refuses(self, ready: bool, active: bool) -> str | None:
        if self._successor is not None:
            return f"this node hands over already, to {self._successor or 'any node that stands'}"
        if not ready:
            return "only a ready backup can take over without losing data, and this one is none at the moment"
        return None if active else "this node has been promoted and is not active yet; ask again when it is"

    def begin(self, primary: Primary, successor: str, reason: str) -> None:
        """Close the clients; no ``successor`` means any backup."""
        self._emit(LogLine(HandingOver(successor, reason)))
        self._successor = successor
        primary.point.serving = False
        self._host.on_inactive(reason)

    def tick(self, primary: Primary, backups: Backups, keeper: RecordKeeper, replica: Replica, now: float) -> None:
        """Time has passed at the primary, and its backups have been told so before."""
        self._stood_at += backups.watch.passed_over
        self._room_at = min(self._room_at + backups.watch.passed_over, now)
        self._release_if_quiet(backups, keeper, replica.tail.sequence, now)
        self._leave_if_hung(primary, backups, keeper, replica, now)

    def _release_if_quiet(self, backups: Backups, keeper: RecordKeeper, tail: int, now: float) -> None:
        """Give the lease up when the chosen one has everything up to ``tail``, or is gone."""
        if not self._successor:
            return
        session = backups.sessions.get(self._successor)
        if session is None or session.acknowledged >= tail:
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
            self.begin(primary, "", reason)
            keeper.release("", now, holders)
