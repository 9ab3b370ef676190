"""NodeCalls: a node's part in cluster calls, whatever its role: it initiates them, runs them, and reports how far.

The node's core calls ``turn`` at the end of each turn, and takes the requests of ``outbox`` to the primary's desk,
which may be its own. What the shell is asked to run, read and keep, it reports to ``hands``.
"""

from __future__ import annotations

from collections.abc import Callable

from ha.apply.replica import Replica
from ha.calls.answers import Answered, CallAnswers, CallNotMade, CallUnknown
from ha.calls.hands import Hands
from ha.calls.initiation import Initiation, NewCall
from ha.calls.initiator import Initiator
from ha.calls.runner import CallRunner
from ha.calls.standing import CallsStanding
from ha.effects import Effect
from ha.messages.calls import (
    CallRefused,
    CallStanding,
    ControlAsk,
    ControlDone,
    CursorReport,
    CursorsAsk,
    CursorsTold,
    DeskAnswer,
    DeskRequest,
    NodeCursor,
    SettleUpTo,
    TicketGranted,
)
from ha.settings import Settings
from txobserver.calls import CallMark, LocalCalls
from txobserver.ids import Member

MOST_ASKED = 1000
"""Calls that may wait at one node."""
Controlled = Callable[[str | None], None]
"""Called with why an operator's control was refused, None when its record has passed the commit point."""
Told = Callable[[list[NodeCursor] | None], None]
"""Called with how far each node is, as the primary says; None: it has not said so in time."""
LONGEST_REASON = 1000
"""Characters of what an action failed with, as the primary is told."""


class NodeCalls:
    """``local``: what the node has kept durably."""

    def __init__(
        self,
        member: Member,
        replica: Replica,
        settings: Settings,
        emit: Callable[[Effect], None],
        local: LocalCalls,
    ) -> None:
        self.outbox: list[DeskRequest] = []
        self._member = member
        self._replica = replica
        send = self.outbox.append
        self.hands = Hands(local, emit)
        self.runner = CallRunner(str(member), replica, self.hands, settings.call_retry)
        self._answers = CallAnswers(send)
        limits = settings.call_retry, settings.ticket_timeout
        common = (self.hands, self.runner, self._answers, limits)
        self.initiator = Initiator(str(member), replica, *common, send)
        self._controls: dict[bytes, tuple[float, Controlled]] = {}
        self._questions: dict[bytes, tuple[float, Told]] = {}
        self._reported: tuple[int, int, CallMark, int, str] | None = None
        self._used = local != LocalCalls()

    # -- what operators ask

    def call(self, call: NewCall, need: int, deadline: float, done: Answered) -> None:
        """Make this call; ``need`` nodes are to run it, or all that count (``ALL``), by the deadline in seconds.

        An operation or a version that is unknown here is refused at once.
        """
        self._used = True
        refusal = self._replica.actions.refusal(call.operation, call.version, call.arguments, call.name)
        if refusal is None and self.initiator.waiting >= MOST_ASKED:
            refusal = f"{MOST_ASKED} calls wait at this node"
        if refusal is not None:
            done(CallNotMade(refusal))
        else:
            self.initiator.ask(Initiation(call, need, deadline, done))

    def ask_again(self, call_id: bytes, need: int, deadline: float, done: Answered) -> None:
        """What became of the call with this id? As ``call``, for one that is recorded, else at once that it is
        unknown."""
        self._used = True
        found = self.runner.calls.by_id(call_id)
        if found is None:
            done(CallUnknown(call_id))
        else:
            self._answers.wait(found, need, deadline, done)

    def control(self, asked: ControlAsk, deadline: float, done: Controlled) -> None:
        """Let a node skip a call, move it forward, or let all begin anew."""
        self._used = True
        self._controls[asked.id] = deadline, done
        self.outbox.append(asked)

    def cursors(self, asked: CursorsAsk, deadline: float, done: Told) -> None:
        """How far is each node?"""
        self._used = True
        self._questions[asked.id] = deadline, done
        self.outbox.append(asked)

    # -- what the primary's desk says

    def take(self, message: DeskAnswer) -> None:
        """An answer of the desk of this node's generation."""
        if isinstance(message, TicketGranted):
            self.initiator.granted(message)
        elif isinstance(message, CallRefused):
            self._controlled(message.id, message.reason)
            self.initiator.refused(message)
        elif isinstance(message, SettleUpTo):
            self.initiator.settling.told(message)
        elif isinstance(message, ControlDone):
            self._controlled(message.id, None)
        elif isinstance(message, CallStanding):
            self._answers.stands(message)
        elif isinstance(message, CursorsTold):
            self._told(message.id, message.cursors)

    def _told(self, question: bytes, cursors: list[NodeCursor] | None) -> None:
        found = self._questions.pop(question, None)
        if found is not None:
            found[1](cursors)

    def _controlled(self, call_id: bytes, error: str | None) -> None:
        found = self._controls.pop(call_id, None)
        if found is not None:
            found[1](error)

    # -- turns

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do in a turn: this node has never been asked, and knows of no call."""
        return not self._used and not self.runner.calls.events

    def turn(self, standing: CallsStanding) -> None:
        """The node's turn ends, and it is not ``idle``: begin the next thing, if nothing is under way."""
        self.initiator.expire(standing)
        for call_id in [each for each, (until, _) in self._controls.items() if standing.now >= until]:
            self._controlled(call_id, "no answer has come in time; see what became of it in the status of calls")
        for question in [each for each, (until, _) in self._questions.items() if standing.now >= until]:
            self._told(question, None)
        busy = self.hands.busy or self.initiator.settle(standing)
        if not busy and not self.runner.step(standing.now, standing.ready):
            self.initiator.go_on(standing)
        self._report(standing)
        self._answers.turn(standing)  # behind the report: what this node has just run counts in the answer

    def _report(self, standing: CallsStanding) -> None:
        """How far this node is, to each primary that it is attached to, and whenever that has changed."""
        failing, undoing = self.runner.failing, self.initiator.not_undone
        reason = (undoing or (self.hands.failed or "" if failing else ""))[:LONGEST_REASON]
        tnx_id = failing.tnx_id if failing and not undoing else 0
        cursor = self.hands.local.cursor
        report = standing.generation, standing.session, cursor, tnx_id, reason
        known = self.runner.calls.events or undoing or self._reported is not None
        if standing.primary is not None and report != self._reported and known:
            self._reported = report
            self.outbox.append(CursorReport(standing.generation, self._member, cursor, tnx_id, reason))
