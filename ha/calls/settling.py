"""Settling: the record of a call that this node initiated is in the stream, or will never be."""

from __future__ import annotations

from collections.abc import Callable

from ha.apply.replica import Replica
from ha.calls.standing import CallsStanding
from ha.messages.calls import DeskRequest, SettleAsk, SettleUpTo
from txobserver.calls import CallIntent


class CallSettling:
    """Asks the primary of each generation anew: what an earlier one has appended may have been cut off."""

    def __init__(self, replica: Replica, retry: float, send: Callable[[DeskRequest], None]) -> None:
        self._replica = replica
        self._retry = retry
        self._send = send
        self._told: SettleUpTo | None = None
        self._asked: tuple[bytes, int, int] | None = None
        self._asked_at = 0.0

    def told(self, message: SettleUpTo) -> None:
        """The primary's word."""
        self._told = message

    def settled(self, call_id: bytes, standing: CallsStanding) -> bool:
        """Whether the record would be among the calls by now, if it ever will; asks for it where that is not known."""
        if standing.primary is None:
            return False
        told = self._told
        if told is not None and (told.id, told.generation) == (call_id, standing.generation):
            return self._replica.applied.sequence >= told.sequence and not self._replica.resyncing
        asked = call_id, standing.generation, standing.session
        if self._asked != asked or standing.now - self._asked_at >= self._retry:
            self._asked, self._asked_at = asked, standing.now
            self._send(SettleAsk(standing.generation, call_id))
        return False

    def superseded(self, intent: CallIntent) -> bool:
        """Whether the record may have been, and is remembered no more: then there is a later call of its name."""
        calls = self._replica.contents.calls
        return calls.purged_to > intent.after and calls.last_of(intent.operation, intent.name) > intent.after
