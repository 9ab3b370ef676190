"""What a step with parts comes to where it is applied: all of it, or the part that could not be (``txobserver.batch``).

A part is judged by what stands there with the parts before it. A queue or an exchange that is there already has to be
the one that the part declares: else an operator would be told that it is, and it is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from txobserver.access import PUT_USER, Access, user_put
from txobserver.configuration import (
    DECLARE_EXCHANGE,
    Configuration,
    ExchangeSpec,
    QueueArguments,
)
from txobserver.events import DECLARE_QUEUE, Configure
from txobserver.refusal import Refusal
from txobserver.rule_table import vhost_there, why_not_set
from txobserver.rules import RULES, rule_of
from txobserver.vhosts import vhost_of


class Failed(NamedTuple):
    """Which part could not be carried out, counted from 0, and why."""

    part: int
    refusal: Refusal


class Trial:
    """Carries out parts on copies of what there is; ``failed``: the first that could not be, None if all are done;
    ``replaced``: those in whose place something else stood."""

    def __init__(self, configuration: Configuration, access: Access) -> None:
        self.configuration = configuration.copy()
        self.users = dict(access.users)
        self.rules = dict(access.rules)
        self.failed: Failed | None = None
        self.replaced: list[Configure] = []

    def carry_out(self, parts: Sequence[Configure]) -> None:
        """All of them, or those before the first that cannot be."""
        for index, part in enumerate(parts):
            refusal = self._refusal_of(part)
            if refusal is not None:
                self.failed = Failed(index, refusal)
                return

    def _refusal_of(self, part: Configure) -> Refusal | None:
        if part.operation == PUT_USER:
            return self._user(part)
        if part.operation in RULES:
            return self._rule(part)
        if not vhost_there(self.rules, vhost_of(part.name)):
            return Refusal.NO_VHOST
        if part.operation == DECLARE_QUEUE:
            return self._queue(part)
        if part.operation == DECLARE_EXCHANGE:
            return self._exchange(part)
        return self.configuration.carry_out(part).refusal

    def _user(self, part: Configure) -> Refusal | None:
        user = user_put(self.users, part)
        if isinstance(user, Refusal):
            return user
        if self.users.get(part.name) not in (None, user):
            self.replaced.append(part)
        self.users[part.name] = user
        return None

    def _rule(self, part: Configure) -> Refusal | None:
        rule = rule_of(part)
        assert rule is not None, f"P13: {part.operation} takes something away"
        refusal = why_not_set(self.rules, rule, self.users)
        if refusal is None:
            if self.rules.get(rule.place) not in (None, rule):
                self.replaced.append(part)
            self.rules[rule.place] = rule
        return refusal

    def _queue(self, part: Configure) -> Refusal | None:
        there = self.configuration.queues.get(part.name)
        if there is None:
            return self.configuration.carry_out(part).refusal
        auto_delete, arguments = msgspec.msgpack.decode(part.arguments, type=QueueArguments)
        same = (there.auto_delete, there.arguments) == (auto_delete, arguments)
        return None if same else Refusal.EXISTS

    def _exchange(self, part: Configure) -> Refusal | None:
        there = self.configuration.exchanges.get(part.name)
        if there is None:
            return self.configuration.carry_out(part).refusal
        wanted = msgspec.msgpack.decode(part.arguments, type=ExchangeSpec)
        return None if msgspec.structs.replace(there, used=False) == wanted else Refusal.EXISTS
