"""Faults in the users of the cluster: a node lets in whom others do not, or an operator is told what is not so."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import msgspec

from ha.catchup.queue_replicator import QueueReplicator
from ha.catchup.snapshot_end import Ending
from ha.messages.steps import NOT_APPENDED
from ha.refusals import NO_PRIMARY
from ha.relay import StepRelay
from tests.simulation.seeded.planting import replace, seeded
from txobserver.access import ADD_USER, DELETE_USER, Access
from txobserver.audited import plain_step
from txobserver.refusal import Refusal
from txobserver.rules import OF_USERS, rule_of
from txobserver.state.contents import Contents


@seeded("P7", users=True)
def a_user_is_applied_at_one_node_only(stack: ExitStack) -> None:
    """A backup keeps what comes about users, and does nothing with it; the primary, which answers, does."""

    def make(original: Any) -> Any:
        seen: dict[int, int] = {}

        def apply(self: Access, step: Any, *more: Any) -> Any:
            times = seen[step.config_id] = seen.get(step.config_id, 0) + 1
            if step.operation == ADD_USER and times > 1:
                self.events, self.last = self.events + 1, step.config_id
                return None
            return original(self, step, *more)

        return apply

    replace(stack, Access, "apply", make)


@seeded("P7", users=True)
def a_change_is_remembered_where_it_was_answered_only(stack: ExitStack) -> None:
    """The primary, which carries an operator's step out first, keeps whose it was; a backup only carries it out."""

    def make(original: Any) -> Any:
        seen: dict[int, int] = {}

        def apply(self: Access, step: Any, *more: Any) -> Any:
            times = seen[step.config_id] = seen.get(step.config_id, 0) + 1
            return original(self, plain_step(step) if times > 1 else step, *more)

        return apply

    replace(stack, Access, "apply", make)


@seeded("P7", users=True)
def a_refused_change_is_not_remembered(stack: ExitStack) -> None:
    """The history tells what was done, and not what an operator has tried."""

    def make(original: Any) -> Any:
        def audited(self: Access, step: Any) -> Any:
            before, refusal = self.changes, original(self, step)
            if refusal is not None:
                self.changes = before
            return refusal

        return audited

    replace(stack, Access, "_audited", make)


@seeded("P7", users=True, first=7)
def a_copy_leaves_users_out(stack: ExitStack) -> None:
    """A joiner begins without any, and goes on by the stream."""
    replace(stack, Ending, "_let_in", lambda original: lambda self: iter(()))


@seeded("P7", users=True)
def a_checkpoint_leaves_users_out(stack: ExitStack) -> None:
    """A node that starts again has those of the steps behind its checkpoint."""

    def make(original: Any) -> Any:
        def meta(self: Contents, *args: Any) -> Any:
            return msgspec.structs.replace(original(self, *args), access=Access())

        return meta

    replace(stack, Contents, "meta", make)


@seeded("P7", users=True, first=95)
def a_hash_made_anew_takes_the_place_of_a_new_password(stack: ExitStack) -> None:
    """What a login has verified is not compared with what stands there."""

    def make(original: Any) -> Any:
        def apply(self: Access, step: Any, *more: Any) -> Any:
            refusal = original(self, step, *more)
            if refusal is Refusal.CHANGED:
                hash_ = msgspec.msgpack.decode(plain_step(step).arguments)[0]
                self._put(msgspec.structs.replace(self.users[step.name], hash=hash_))
                return None
            return refusal

        return apply

    replace(stack, Access, "apply", make)


@seeded("P7", users=True)
def an_operator_is_told_before_the_stream_has_decided(stack: ExitStack) -> None:
    """The answer comes when the step has been passed on."""

    def make(original: Any) -> Any:
        def at(self: StepRelay, primary: str, generation: int, step: Any, done: Any) -> None:
            original(self, primary, generation, step, lambda error: None)
            done(None)

        return at

    replace(stack, StepRelay, "at", make)


@seeded("P7", users=True)
def a_refusal_is_told_as_done(stack: ExitStack) -> None:
    """The relay knows that a step has passed the commit point, and not what became of it."""

    def make(original: Any) -> Any:
        def answered(self: StepRelay, message: Any) -> None:
            error = None if message.error in set(Refusal) else message.error
            original(self, msgspec.structs.replace(message, error=error))

        return answered

    replace(stack, StepRelay, "answered", make)


@seeded("P7", users=True)
def an_unknown_outcome_is_told_as_refused(stack: ExitStack) -> None:
    """The primary changed before it answered, and the step is in its log."""

    def make(original: Any) -> Any:
        def lost(self: StepRelay) -> None:
            for number in list(self.waiting):
                self._end(number, NO_PRIMARY)

        return lost

    replace(stack, StepRelay, "lost", make)


@seeded("P7", users=True)
def an_operator_is_told_before_it_is_applied_where_he_asked(stack: ExitStack) -> None:
    """A backup passes the primary's answer on at once, and who looks there sees what was before."""

    def make(original: Any) -> Any:
        def answered(self: StepRelay, message: Any) -> None:
            original(self, msgspec.structs.replace(message, applied=NOT_APPENDED))

        return answered

    replace(stack, StepRelay, "answered", make)


@seeded("P12", users=True, first=1)
def nobody_answers_when_the_primary_has_changed(stack: ExitStack) -> None:
    replace(stack, StepRelay, "lost", lambda original: lambda self: None)


@seeded("P7", users=True, first=4)
def the_rules_of_a_deleted_user_stay(stack: ExitStack) -> None:
    """A user that is added anew under the name may do what the former one might."""

    def make(original: Any) -> Any:
        def carry_out(self: Access, step: Any, *more: Any) -> Any:
            before, refusal = self.rules, original(self, step, *more)
            if step.operation == DELETE_USER:
                self.rules = before
            return refusal

        return carry_out

    replace(stack, Access, "_carry_out", make)


@seeded("P7", users=True)
def a_rule_is_set_for_a_user_that_is_gone(stack: ExitStack) -> None:
    """Whether there is such a user is looked at when the step is asked for, and not where it is applied."""

    def make(original: Any) -> Any:
        def rule(self: Access, step: Any, vacant: bool) -> Any:
            refusal, new = original(self, step, vacant), rule_of(step)
            if refusal is Refusal.GONE and new is not None and new.kind in OF_USERS:
                self.rules = {**self.rules, new.place: new}
                return None
            return refusal

        return rule

    replace(stack, Access, "_rule", make)


@seeded("P7", users=True)
def a_rule_is_cleared_where_it_was_answered_only(stack: ExitStack) -> None:
    """The primary carries it out first; a backup keeps the rule."""

    def make(original: Any) -> Any:
        seen: dict[int, int] = {}

        def rule(self: Access, step: Any, vacant: bool) -> Any:
            times = seen[step.config_id] = seen.get(step.config_id, 0) + 1
            return original(self, step, vacant) if times == 1 or rule_of(step) is not None else None

        return rule

    replace(stack, Access, "_rule", make)


@seeded("P7", users=True, first=11)
def a_copy_leaves_rules_out(stack: ExitStack) -> None:
    """A joiner has the users, none of whom may do anything, and its digest does not show it."""

    def take(original: Any) -> Any:
        return lambda self, message: original(self, msgspec.structs.replace(message, rules=[]))

    def digest(original: Any) -> Any:
        return lambda self: original(msgspec.structs.replace(self, rules={}))

    replace(stack, QueueReplicator, "_let_in", take)
    replace(stack, Access, "digest", digest)


@seeded("P7", users=True)
def a_virtual_host_goes_at_one_node_only(stack: ExitStack) -> None:
    """A backup does not know that nothing is declared there any more."""

    def make(original: Any) -> Any:
        seen: dict[int, int] = {}

        def rule(self: Access, step: Any, vacant: bool) -> Any:
            times = seen[step.config_id] = seen.get(step.config_id, 0) + 1
            return original(self, step, vacant and times == 1)

        return rule

    replace(stack, Access, "_rule", make)


@seeded("P7", users=True)
def a_virtual_host_is_added_while_it_is_deleted(stack: ExitStack) -> None:
    """What is left of the former one would be found in it."""

    def make(original: Any) -> Any:
        def rule(self: Access, step: Any, vacant: bool) -> Any:
            refusal, new = original(self, step, vacant), rule_of(step)
            if refusal is Refusal.GOING and new is not None:
                self.rules = {**self.rules, new.place: new}
                return None
            return refusal

        return rule

    replace(stack, Access, "_rule", make)
