"""Faults in cluster calls: tickets, intents, cursors, skips, answers."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from ha.calls import desk
from ha.calls.answers import CallAnswers
from ha.calls.desk import CallTicket, TicketDesk
from ha.calls.hands import Hands
from ha.calls.initiation import Phase
from ha.calls.initiator import Initiator
from ha.calls.runner import CallRunner
from ha.calls.settling import CallSettling
from ha.messages.calls import CallAppend, CallStanding
from tests.simulation.seeded.planting import replace, seeded
from txobserver.calls import CallMark, KeptCalls, LocalCalls


@seeded("P13", first=7, calls=True)
def a_failed_action_is_not_undone(stack: ExitStack) -> None:
    """The initiator forgets the call, as if an action that fails had done nothing."""
    replace(stack, Initiator, "_undo", lambda original: lambda self, standing: self._forget(sure=True))


@seeded("P13", calls=True, first=4)
def the_record_is_not_looked_for(stack: ExitStack) -> None:
    """An initiator that does not know what became of its record undoes the call at once."""
    replace(stack, CallSettling, "settled", lambda original: lambda self, call_id, standing: True)


@seeded("P13", calls=True, first=4)
def settled_where_the_stream_ends_here(stack: ExitStack) -> None:
    """What this node has applied is taken for all that could be, whatever the primary's stream holds."""

    def make(original: Any) -> Any:
        def told(self: CallSettling, message: Any) -> None:
            message.sequence = 0
            original(self, message)

        return told

    replace(stack, CallSettling, "told", make)


@seeded("P13", calls=True)
def no_intent_is_kept(stack: ExitStack) -> None:
    """The action runs before anything is durable of it."""

    def make(original: Any) -> Any:
        def keep(self: Hands, local: LocalCalls, then: Any) -> None:
            if local.intent is not None and self.local.intent is None:
                self.local = local
                then()
            else:
                original(self, local, then)

        return keep

    replace(stack, Hands, "keep", make)


@seeded("P13", calls=True)
def the_cursor_moves_before_the_action_has_succeeded(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def ran(self: CallRunner, call: Any, applied: Any, error: str | None) -> None:
            original(self, call, applied, None)

        return ran

    replace(stack, CallRunner, "_ran", make)


@seeded("P13", calls=True)
def the_cursor_counts_before_it_is_durable(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def keep(self: Hands, local: Any, then: Any) -> None:
            original(self, local, then)
            self.local = local

        return keep

    replace(stack, Hands, "keep", make)


@seeded("P13", first=1, calls=True)
def a_failing_call_is_passed_over(stack: ExitStack) -> None:
    """The next call runs while the one before is to be tried again."""

    def make(original: Any) -> Any:
        def next_for(self: KeptCalls, member: str, tnx_id: int) -> Any:
            found = original(self, member, tnx_id)
            later = found is not None and original(self, member, found.tnx_id)
            return later or found

        return next_for

    replace(stack, KeptCalls, "next_for", make)


@seeded("P13", calls=True)
def a_ticket_is_given_to_all_who_ask(stack: ExitStack) -> None:
    """And what is appended is not compared with it: two initiators run their actions at once."""

    def make_turn(original: Any) -> Any:
        def turn(self: TicketDesk, now: float, active: bool) -> bool:
            given = original(self, now, active)
            while self._waiting and active:
                self._grant(*self._waiting.popleft(), now)
            return bool(given)

        return turn

    def make_append(original: Any) -> Any:
        def append(self: TicketDesk, peer: str, message: Any) -> None:
            self.ticket = _ticket(message, peer)
            original(self, peer, message)

        return append

    replace(stack, TicketDesk, "turn", make_turn)
    _replace_taken(stack, "_append", make_append)


@seeded("P13", first=24, calls=True)
def a_record_is_appended_without_its_ticket(stack: ExitStack) -> None:
    """Of a generation that is over, or a time that has run out."""

    def make(original: Any) -> Any:
        def append(self: TicketDesk, peer: str, message: Any) -> None:
            self.ticket = _ticket(message, peer)
            original(self, peer, message)

        return append

    _replace_taken(stack, "_append", make)


@seeded("P13", first=24, calls=True)
def a_ticket_counts_in_every_generation(stack: ExitStack) -> None:
    """At its initiator, and at the desk of the next primary."""

    def make_goes_on(original: Any) -> Any:
        def goes_on(self: Initiator, present: Any, standing: Any) -> bool:
            present.at = present.at and present.at._replace(generation=standing.generation, session=standing.session)
            return bool(original(self, present, standing))

        return goes_on

    replace(stack, Initiator, "_goes_on", make_goes_on)
    a_record_is_appended_without_its_ticket(stack)


@seeded("P13", first=1, calls=True)
def the_initiator_does_not_catch_up(stack: ExitStack) -> None:
    """With the ticket it runs its action at once."""

    def make(original: Any) -> Any:
        def granted(self: Initiator, message: Any) -> None:
            message.through = 0
            original(self, message)

        return granted

    replace(stack, Initiator, "granted", make)


@seeded("P13", first=8, calls=True)
def a_new_store_begins_at_the_last_call(stack: ExitStack) -> None:
    """As the first design did: a node without a cursor takes it that it has run all but the last."""

    def make(original: Any) -> Any:
        def step(self: CallRunner, now: float, ready: bool) -> bool:
            kept = self.calls.kept
            if self.cursor.tnx_id == 0 and len(kept) > 1 and not self._hands.busy:
                self._move(kept[-2].mark)
                return True
            return bool(original(self, now, ready))

        return step

    replace(stack, CallRunner, "step", make)


@seeded("P13", first=16, calls=True)
def the_history_keeps_no_last_of_each(stack: ExitStack) -> None:
    """What is older than the history is gone for those that are behind it."""

    def make(original: Any) -> Any:
        def trim(self: KeptCalls, most: int) -> None:
            original(self, most)
            self.kept = [each for each in self.kept if each.tnx_id > self.purged_to]

        return trim

    replace(stack, KeptCalls, "_trim", make)


@seeded("P13", first=12, calls=True)
def a_skip_is_for_all_nodes(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def next_for(self: KeptCalls, member: str, tnx_id: int) -> Any:
            skipped = {each for of_member in self.skips.values() for each in of_member}
            found = original(self, member, tnx_id)
            while found is not None and found.tnx_id in skipped:
                found = original(self, member, found.tnx_id)
            return found

        return next_for

    replace(stack, KeptCalls, "next_for", make)


@seeded("P13", calls=True)
def done_when_the_initiator_has_it(stack: ExitStack) -> None:
    """Whatever number of nodes was asked for."""

    def make(original: Any) -> Any:
        def stands(self: CallAnswers, message: CallStanding) -> None:
            message.behind = []
            message.has = message.has * 9
            original(self, message)

        return stands

    replace(stack, CallAnswers, "stands", make)


@seeded("P13", calls=True)
def a_failed_call_is_appended_all_the_same(stack: ExitStack) -> None:
    """The initiator tells that the call was not made, and its record is on its way."""

    def make(original: Any) -> Any:
        def ran(self: Initiator, error: str | None) -> None:
            present = self.present
            original(self, error)
            if error is not None and present is not None and present.at is not None:
                self._send(present.append(present.at.generation))

        return ran

    replace(stack, Initiator, "_ran", make)


@seeded("P13", first=5, calls=True)
def the_time_of_a_call_ends_it(stack: ExitStack) -> None:
    """When the operator's time is up the call counts as not made, though its action may be running."""

    def make(original: Any) -> Any:
        def expire(self: Initiator, standing: Any) -> None:
            present = self.present
            late = present is not None and present.done is not None and standing.now >= present.deadline
            if present is not None and late and present.phase in (Phase.AT_WORK, Phase.RAN, Phase.SENT):
                phase, present.phase = present.phase, Phase.BEGUN
                original(self, standing)
                present.phase, self.present = phase, present
            else:
                original(self, standing)

        return expire

    replace(stack, Initiator, "expire", make)


@seeded("P13", calls=True)
def the_cursor_passes_over_the_next_number(stack: ExitStack) -> None:
    """The initiator's cursor goes one step too far when its record has passed."""

    def make(original: Any) -> Any:
        def recorded(self: Initiator, call: Any) -> None:
            mark = CallMark(call.tnx_id + 1, call.position)
            self._hands.keep(LocalCalls(mark), lambda: self._record_found(call))

        return recorded

    replace(stack, Initiator, "_recorded", make)


def _ticket(message: Any, peer: str) -> Any:
    return CallTicket(message.number, peer, message.id)


def _replace_taken(stack: ExitStack, name: str, make: Any) -> None:
    """The table of requests names functions: let it name the changed one."""
    changed = make(getattr(TicketDesk, name))
    stack.enter_context(patch.dict(desk._TAKEN, {CallAppend: changed}))
