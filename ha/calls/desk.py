"""The desk of the primary: who may initiate an action now, what is appended for it, and which nodes have which call.

The *ticket* serialises the initiations of actions. It names no number: a call gets its ``tnx_id`` when its record is
appended. It ends when that is done, when its initiator gives it back or asks for the call to be settled, with the
initiator's link, with the generation (the desk is the primary's) or after ``ticket_timeout`` seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from ha.apply.replica import Replica
from ha.calls.controls import Controls
from ha.calls.cursors import CallCursors
from ha.messages.calls import (
    CallAppend,
    CallAsk,
    CallRefused,
    ControlAsk,
    ControlDone,
    CursorReport,
    CursorsAsk,
    DeskAnswer,
    DeskRequest,
    SettleAsk,
    SettleUpTo,
    TicketAsk,
    TicketGranted,
    TicketReturned,
)
from ha.settings import Settings
from txobserver.actions import FLAG
from txobserver.calls import CALLS_FEATURE, CallRecord, call_step
from txobserver.events import Configure
from txobserver.ids import Member
from txobserver.ports.ledger import Done

MOST_WAITING = 10_000
"""Initiations that may wait for the ticket."""
ENDED = "its ticket has ended"
NOT_ACTIVE = "the primary is not active"


class CallTicket(NamedTuple):
    """Held by ``peer`` for the call ``id``."""

    number: int
    peer: str
    id: bytes


class TicketDesk:
    """Of one generation. ``append`` is the ledger's ``configure``, and ``last_id`` the last step that it has numbered;
    ``members`` are those of the ready set, ``lacking`` those that count and do not know a feature. ``reply`` sends an
    answer to a node, which may be the primary itself.

    Many methods: one for each request.
    """

    def __init__(
        self,
        generation: int,
        replica: Replica,
        settings: Settings,
        append: Callable[[Configure, Done], None],
        last_id: Callable[[], int],
        members: Callable[[], tuple[Member, ...]],
        lacking: Callable[[str], list[str]],
        reply: Callable[[str, DeskAnswer], None],
    ) -> None:
        self.ticket: CallTicket | None = None
        self.cursors = CallCursors(replica, members)
        self._controls = Controls(replica, self.cursors, members)
        self._generation = generation
        self._replica = replica
        self._settings = settings
        self._append_step = append
        self._last_id = last_id
        self._members = members
        self._lacking = lacking
        self._lacking_since: float | None = None
        self._reply = reply
        self._waiting: deque[tuple[str, bytes]] = deque()
        self._numbers = 0
        self._until = 0.0
        self._appended = 0
        self._active = False

    def take(self, peer: str, message: DeskRequest) -> None:
        """A node's request, or its report."""
        taken: Callable[..., None] = _TAKEN[type(message)]
        taken(self, peer, message)

    def unlinked(self, peer: str) -> None:
        """The link to this node is gone, and its ticket with it."""
        self.cursors.forget(peer)
        self._waiting = deque(each for each in self._waiting if each[0] != peer)
        if self.ticket is not None and self.ticket.peer == peer:
            self.ticket = None

    def turn(self, now: float, active: bool) -> bool:
        """Time has passed; ``active``: the primary serves. Returns whether a ticket was given."""
        self._active = active
        if self.ticket is not None and now >= self._until:
            self.ticket = None
        if self.ticket is None and self._waiting and active and self._all_know(now):
            self._grant(*self._waiting.popleft(), now)
            return True
        return False

    def _all_know(self, now: float) -> bool:
        """Whether every node that counts is known to take part in calls. One that has just gone leaves the ready set
        soon; else no ticket is given, so that no action runs whose record could not be appended."""
        lacking = self._lacking(CALLS_FEATURE)
        if not lacking:
            self._lacking_since = None
            return True
        since = self._lacking_since = now if self._lacking_since is None else self._lacking_since
        if now - since >= self._settings.prepare_timeout:
            reason = f"these nodes take no part in cluster calls, or cannot be reached: {', '.join(lacking)}"
            while self._waiting:
                self._refuse(*self._waiting.popleft(), reason)
        return False

    def _grant(self, peer: str, call_id: bytes, now: float) -> None:
        self._numbers += 1
        self.ticket = CallTicket(self._numbers, peer, call_id)
        self._until = now + self._settings.ticket_timeout
        self._tell_granted(self.ticket)

    def _tell_granted(self, ticket: CallTicket) -> None:
        through = max(self._appended, self._replica.contents.calls.last)
        self._reply(ticket.peer, TicketGranted(self._generation, ticket.id, ticket.number, through))

    # -- requests

    def _ask(self, peer: str, message: TicketAsk) -> None:
        if self._holds(peer, message.id):
            assert self.ticket is not None
            self._tell_granted(self.ticket)
        elif len(self._waiting) >= MOST_WAITING:
            self._refuse(peer, message.id, f"{MOST_WAITING} calls wait for their turn")
        elif (peer, message.id) not in self._waiting:
            self._waiting.append((peer, message.id))

    def _append(self, peer: str, message: CallAppend) -> None:
        ticket = self.ticket
        if not self._holds(peer, message.id) or ticket is None or ticket.number != message.number:
            self._refuse(peer, message.id, ENDED)
            return
        self.ticket = None
        if not self._active:
            self._refuse(peer, message.id, NOT_ACTIVE)
            return
        known = (message.operation, message.version, message.arguments, message.name)
        refusal = self._replica.actions.refusal(*known) or self._not_yet(message)
        if refusal is not None:
            self._refuse(peer, message.id, refusal)
            return
        record = CallRecord(
            message.id,
            message.version,
            message.name,
            message.arguments,
            peer,
            message.created_ms,
            [str(each) for each in self._members()],
            self._settings.calls_kept,
        )
        before = self._last_id()
        self._append_step(call_step(message.operation, record), lambda error: self._passed(peer, message.id, error))
        if self._last_id() > before:
            self._appended = self._last_id()

    def _not_yet(self, message: CallAppend) -> str | None:
        """Why this flag cannot be raised, or this action be recorded: every member has announced what it stands for, or
        it waits. A node that does not know an action could not take its record."""
        action = self._replica.actions.get(message.operation, message.version)
        feature = message.name if message.operation == FLAG else action and action.feature
        lacking = self._lacking(feature) if feature else []
        if not lacking:
            return None
        return f"these nodes have not announced {feature!r}, or cannot be reached: {', '.join(lacking)}"

    def _passed(self, peer: str, call_id: bytes, error: str | None) -> None:
        """The record has passed the commit point, as its initiator sees by itself, or was refused."""
        if error is not None:
            self._refuse(peer, call_id, error)

    def _returned(self, peer: str, message: TicketReturned) -> None:
        self._ends(peer, message.id)

    def _settle(self, peer: str, message: SettleAsk) -> None:
        self._ends(peer, message.id)
        self._reply(peer, SettleUpTo(self._generation, message.id, self._replica.tail.sequence))

    def _control(self, peer: str, message: ControlAsk) -> None:
        refusal = self._controls.refusal(message) if self._active else NOT_ACTIVE
        if refusal is not None:
            self._refuse(peer, message.id, refusal)
            return
        self._append_step(self._controls.step(message), lambda error: self._controlled(peer, message.id, error))

    def _controlled(self, peer: str, call_id: bytes, error: str | None) -> None:
        if error is None:
            self._reply(peer, ControlDone(self._generation, call_id))
        else:
            self._refuse(peer, call_id, error)

    # -- which nodes have what

    def _report(self, peer: str, message: CursorReport) -> None:
        self.cursors.report(peer, message)
        for asking, standing in self.cursors.news():
            self._reply(asking, standing)

    def _stands(self, peer: str, message: CallAsk) -> None:
        self._reply(peer, self.cursors.asked(peer, message))

    def _tell_cursors(self, peer: str, message: CursorsAsk) -> None:
        self._reply(peer, self.cursors.told(message))

    # -- inside

    def _holds(self, peer: str, call_id: bytes) -> bool:
        return self.ticket is not None and (self.ticket.peer, self.ticket.id) == (peer, call_id)

    def _ends(self, peer: str, call_id: bytes) -> None:
        if self._holds(peer, call_id):
            self.ticket = None
        if (peer, call_id) in self._waiting:
            self._waiting.remove((peer, call_id))

    def _refuse(self, peer: str, call_id: bytes, reason: str) -> None:
        self._reply(peer, CallRefused(self._generation, call_id, reason))


_TAKEN: dict[type[Any], Callable[..., None]] = {
    TicketAsk: TicketDesk._ask,
    CallAppend: TicketDesk._append,
    TicketReturned: TicketDesk._returned,
    SettleAsk: TicketDesk._settle,
    ControlAsk: TicketDesk._control,
    CursorReport: TicketDesk._report,
    CallAsk: TicketDesk._stands,
    CursorsAsk: TicketDesk._tell_cursors,
}
