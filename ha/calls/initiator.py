"""The initiator: a call that was asked for at this node gets the ticket, is run here, and is recorded.

Promise (P13): an aborted call leaves no trace on any node; one that was answered *not made* is never recorded.

Algorithm: with the ticket the node catches up, reads what is in force, keeps an *intent* that holds it, runs the
action, and asks the primary to append the record. It fails: what was in force is run, and nothing remains. A call that
cannot be undone has no intent: it is recorded first.

Why it is right: the primary appends for nothing but the ticket that it gave, and gives the next one when that has
ended. A node that does not know what became of a record (a lost attachment, a restart, another generation, a timeout)
asks the primary of the present generation to settle it (``SettleAsk``): it ends the ticket and says where its stream
ends. When that has been applied here the record is among the calls, or will never be. Until then this node runs nothing
else.

What would break a simpler version: ``initiator_dies_between_action_and_record``, ``ticket_outlives_its_generation``,
``number_cut_off_and_given_again``, ``first_call_fails_halfway``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ha.apply.replica import Replica
from ha.calls.answers import Answer, CallAnswers, CallNotMade, CallUnknown
from ha.calls.hands import Hands
from ha.calls.initiation import Attachment, Initiation, Phase
from ha.calls.runner import CallRunner
from ha.calls.settling import CallSettling
from ha.calls.standing import CallsStanding
from ha.effects import RunAction
from ha.messages.calls import CallRefused, DeskRequest, TicketAsk, TicketGranted, TicketReturned
from txobserver.calls import KeptCall, LocalCalls


class Initiator:
    """One call at a time; the others that were asked of this node wait in ``_asked``. ``send``: to the primary.
    ``not_undone``: what the last undoing failed with, while it is tried again.

    Many methods: one for each step of a call, and for each of its undoing.
    """

    def __init__(
        self,
        member: str,
        replica: Replica,
        hands: Hands,
        runner: CallRunner,
        answers: CallAnswers,
        limits: tuple[float, float],
        send: Callable[[DeskRequest], None],
    ) -> None:
        self.present: Initiation | None = None
        self._asked: deque[Initiation] = deque()
        self._member = member
        self._replica = replica
        self._hands = hands
        self._runner = runner
        self._answers = answers
        self._retry, self._ticket_timeout = limits
        self._send = send
        self.settling = CallSettling(replica, self._retry, send)
        self.not_undone = ""
        self._undo_at = 0.0
        self._undo_failed = False

    def ask(self, initiation: Initiation) -> None:
        """Initiate this call, after all before it."""
        self._asked.append(initiation)

    @property
    def waiting(self) -> int:
        """How many calls wait for their turn."""
        return len(self._asked)

    # -- what the primary says

    def granted(self, message: TicketGranted) -> None:
        """The ticket is this node's; one that it does not wait for any more goes back."""
        present = self.present
        if present is None or present.call.id != message.id:
            self._send(TicketReturned(message.generation, message.id))
        elif present.phase is Phase.BEGUN and present.at is not None and present.at.generation == message.generation:
            present.phase = Phase.GRANTED
            present.ticket, present.through = message.number, message.through

    def refused(self, message: CallRefused) -> None:
        """No ticket, or no record."""
        present = self.present
        if present is None or present.call.id != message.id:
            return
        if present.phase in (Phase.BEGUN, Phase.GRANTED):
            self._end(present, CallNotMade(message.reason))
        else:
            present.reason = message.reason
            if present.phase is Phase.SENT:
                present.phase = Phase.LOST

    # -- turns

    def expire(self, standing: CallsStanding) -> None:
        """Answer those whose time is up, also while an action hangs: what has begun goes on to its end."""
        for each in [each for each in self._asked if standing.now >= each.deadline]:
            self._asked.remove(each)
            waits = f": it cannot undo an earlier call: {self.not_undone}" if self.not_undone else ""
            _answer(each, CallNotMade(f"the time was up before this node could begin{waits}"))
        present = self.present
        if present is None or present.done is None or standing.now < present.deadline:
            return
        if present.phase in (Phase.BEGUN, Phase.GRANTED):
            self._send(TicketReturned(standing.generation, present.call.id))
            self._end(present, CallNotMade("the time was up before this node had the ticket and had caught up"))
        elif present.phase is Phase.FAILED:
            self._not_made(present, f"{present.reason}; it is still being undone here")
        else:
            _answer(present, CallUnknown(present.call.id))

    def settle(self, standing: CallsStanding) -> bool:
        """Go on with a call of which an intent is kept, or whose record is waited for; False if there is none."""
        intent, present = self._hands.local.intent, self.present
        if present is not None and present.phase not in (Phase.RAN, Phase.SENT, Phase.FAILED, Phase.LOST):
            present = None
        if intent is None and present is None:
            return False
        call_id = intent.id if intent is not None else present.call.id if present is not None else b""
        recorded = self._runner.calls.by_id(call_id)
        if recorded is not None:
            self._recorded(recorded)
        elif present is not None and self._goes_on(present, standing):
            return True
        elif (present is not None and present.phase is Phase.FAILED) or self.settling.settled(call_id, standing):
            self._undo(standing)
        return True

    def go_on(self, standing: CallsStanding) -> None:
        """This node has run all that it could: go on with a call that has not begun to be run."""
        if self.present is None and self._asked:
            self.present = self._asked.popleft()
        present = self.present
        if present is None or not standing.ready or standing.primary is None:
            return
        at = Attachment(standing.generation, standing.session)
        if present.at != at:
            present.at, present.phase, present.since = at, Phase.BEGUN, standing.now
            self._send(TicketAsk(standing.generation, present.call.id))
        elif present.phase is Phase.BEGUN and standing.now - present.since >= self._retry:
            present.since = standing.now
            self._send(TicketAsk(standing.generation, present.call.id))
        elif present.phase is Phase.GRANTED:
            self._catch_up(present, standing)

    def _catch_up(self, present: Initiation, standing: CallsStanding) -> None:
        failing = self._runner.failing
        if failing is not None:
            self._send(TicketReturned(standing.generation, present.call.id))
            self._end(present, CallNotMade(f"this node lags behind: call {failing.tnx_id} fails here"))
        elif self._runner.at_head() and self._runner.calls.last >= present.through:
            self._begin(present, standing)

    # -- the call

    def _begin(self, present: Initiation, standing: CallsStanding) -> None:
        call = present.call
        action = self._replica.actions.get(call.operation, call.version)
        present.after = self._runner.cursor.tnx_id
        if action is not None and not action.undone:
            present.phase = Phase.RAN
            return
        present.phase = Phase.AT_WORK
        self._hands.read(call.operation, call.version, call.name, self._read)

    def _read(self, before: bytes | None, error: str) -> None:
        present = self.present
        assert present is not None
        if before is None:
            self._not_made(present, error or "what is in force could not be read")
            return
        cursor = self._runner.cursor
        self._hands.keep(LocalCalls(cursor, present.intent(before, cursor.tnx_id)), self._kept)

    def _kept(self) -> None:
        """The intent is durable. The ticket may have run out meanwhile: then another call may have come before this."""
        present = self.present
        assert present is not None
        call = present.call
        if not self._runner.at_head():
            self._forget(sure=True)
            return
        action = (call.operation, call.version, call.name, call.arguments)
        self._hands.run(RunAction(0, call.id, 0, *action), self._ran)

    def _ran(self, error: str | None) -> None:
        present = self.present
        assert present is not None
        present.phase = Phase.RAN if error is None else Phase.FAILED
        present.reason = error or present.reason

    def _goes_on(self, present: Initiation, standing: CallsStanding) -> bool:
        """Whether the ticket counts still, and the record may be on its way."""
        holds = present.at == (standing.generation, standing.session)
        if present.phase is Phase.RAN and holds and standing.primary is not None:
            present.phase, present.since = Phase.SENT, standing.now
            self._send(present.append(standing.generation))
            return True
        if present.phase is Phase.SENT and holds and standing.now - present.since < self._ticket_timeout:
            return True
        if present.phase is not Phase.FAILED:
            present.phase = Phase.LOST
        return False

    def _recorded(self, call: KeptCall) -> None:
        """The record has passed the commit point. This node has run it, if it holds its intent."""
        intent, cursor = self._hands.local.intent, self._runner.cursor
        if intent is None:
            self._record_found(call)
            return
        following = self._runner.calls.next_for(self._member, cursor.tnx_id)
        came = following is not None and following.tnx_id == call.tnx_id
        local = LocalCalls(call.mark if came else cursor)
        self._hands.keep(local, lambda: self._record_found(call))

    def _record_found(self, call: KeptCall) -> None:
        present = self.present
        if present is not None and present.call.id == call.record.id:
            self.present = None
            if present.done is not None:
                self._answers.wait(call, present.need, present.deadline, present.done)

    # -- undoing

    def _undo(self, standing: CallsStanding) -> None:
        """The record is not among the calls and never will be: run what was in force, until that succeeds.

        The record may have been among them, and be remembered no more: then a later call of its name is run after this,
        unless an operator lets the node off that one (``what_was_to_undo_an_intent_is_let_go``).
        """
        intent = self._hands.local.intent
        if intent is None:
            self._undone(self.present is not None and self._runner.calls.purged_to <= self.present.after)
            return
        if self._undo_failed:
            self._undo_failed, self._undo_at = False, standing.now + self._retry
        if standing.now < self._undo_at:
            return
        action = (intent.operation, intent.version, intent.name, intent.before)
        self._hands.run(RunAction(0, intent.id, 0, *action, undo=True), self._ran_undo)

    def _ran_undo(self, error: str | None) -> None:
        intent, present = self._hands.local.intent, self.present
        assert intent is not None
        nothing_sent = present is not None and present.phase is Phase.FAILED
        sure = nothing_sent or not self.settling.superseded(intent)
        if error is None:
            self._forget(sure)
            return
        self._undo_failed, self.not_undone = True, error
        if present is not None and sure:  # who has asked learns of it, and others get the ticket
            self._not_made(present, f"{_why(present)}; it could not be undone here yet, and is tried again: {error}")

    def _forget(self, sure: bool) -> None:
        self._hands.keep(LocalCalls(self._runner.cursor), lambda: self._undone(sure))

    def _undone(self, sure: bool) -> None:
        """Nothing of the call is here; ``sure``: it was not recorded."""
        self.not_undone = ""
        present = self.present
        if present is None:
            return
        if sure:
            self._not_made(present, _why(present))
        else:
            self._give_back(present)
            self._end(present, CallUnknown(present.call.id))

    def _not_made(self, present: Initiation, reason: str) -> None:
        self._give_back(present)
        self._end(present, CallNotMade(reason))

    def _give_back(self, present: Initiation) -> None:
        if present.at is not None:
            self._send(TicketReturned(present.at.generation, present.call.id))

    def _end(self, initiation: Initiation, answer: Answer) -> None:
        if self.present is initiation:
            self.present = None
        _answer(initiation, answer)


def _why(initiation: Initiation) -> str:
    return initiation.reason or "its ticket had ended before it could be recorded"


def _answer(initiation: Initiation, answer: Answer) -> None:
    done, initiation.done = initiation.done, None
    if done is not None:
        done(answer)
