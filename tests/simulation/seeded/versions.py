"""Faults where nodes run different releases, one of which does not know what another writes."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from broker_plugin.node import peer_protocol
from ha.apply import replica
from ha.apply.replica import Replica
from ha.core import NodeCore
from ha.messages.greeting import Agreed, Hello
from ha.primary.attachments import Attachments
from ha.primary.client_ledger import ClientLedger
from tests.simulation.seeded.planting import replace, seeded
from txobserver.configuration import OPERATIONS


@seeded("P12", "error", first=6, mixed=True)
def unknown_steps_are_taken(stack: ExitStack) -> None:
    """What is received is not looked at: it is persisted and acknowledged, and ends the node where it is applied."""
    stack.enter_context(patch.object(replica, "check_step", lambda step, operations, actions: None))


@seeded("P12", "error", first=66, mixed=True)
def unknown_steps_are_read_from_the_log(stack: ExitStack) -> None:
    """An older release starts on what a newer one has written."""

    def make(original: Any) -> Any:
        def restore(self: Replica, frame: Any) -> None:
            known, self._operations = self._operations, OPERATIONS
            try:
                original(self, frame)
            finally:
                self._operations = known

        return restore

    replace(stack, Replica, "restore", make)


@seeded("P12", mixed=True)
def new_steps_are_written_at_once(stack: ExitStack) -> None:
    """The primary does not ask whether those that follow know them."""
    replace(stack, ClientLedger, "_unknown", lambda original: lambda self, operation: None)


@seeded("P12", mixed=True)
def features_of_either_side_count(stack: ExitStack) -> None:
    def agreed(ours: Hello, theirs: Hello) -> Agreed:
        return Agreed(min(ours.version, theirs.version), frozenset(ours.features) | frozenset(theirs.features))

    stack.enter_context(patch.object(peer_protocol, "agreed", agreed))


@seeded("P12", first=3, mixed=True)
def no_common_version_is_needed(stack: ExitStack) -> None:
    def agreed(ours: Hello, theirs: Hello) -> Agreed:
        return Agreed(min(ours.version, theirs.version), frozenset(ours.features) & frozenset(theirs.features))

    stack.enter_context(patch.object(peer_protocol, "agreed", agreed))


@seeded("P12", first=12, mixed=True)
def the_first_greeting_counts_for_ever(stack: ExitStack) -> None:
    """What a node knew when it was first linked: it may have been set back since, or upgraded."""

    def make(original: Any) -> Any:
        def on_link(self: NodeCore, node: str, up: bool, features: frozenset[str] = frozenset()) -> None:
            known = self.features.get(node, features)
            original(self, node, up, known)
            self.features[node] = known

        return on_link

    replace(stack, NodeCore, "on_link", make)


@seeded("P12", mixed=True)
def one_follower_that_knows_is_enough(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def lacking(self: Attachments, feature: str) -> list[str]:
            found: list[str] = original(self, feature)
            return [] if any(self.has(node, feature) for node in self.sessions) else found

        return lacking

    replace(stack, Attachments, "lacking", make)
