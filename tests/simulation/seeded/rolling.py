"""Faults of an upgrade: something new is used, sent or made final though a node does not know it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from ha.core import NodeCore
from ha.effects import Send
from ha.messages.calls import DeskRequest
from ha.primary.attachments import Attachments
from ha.primary.joins import Joins
from tests.simulation.seeded.planting import replace, seeded


@seeded("P12", rolling=True, first=4)
def no_node_lacks_a_feature(stack: ExitStack) -> None:
    """A feature is used while a follower does not name it."""
    replace(stack, Attachments, "lacking", lambda original: lambda self, feature: [])


@seeded("P12", rolling=True)
def flags_are_raised_without_members_that_are_down(stack: ExitStack) -> None:
    """Only those that are attached are asked; a member that is down may come back as it was before."""

    def make(original: Any) -> Any:
        def lacking(self: Attachments, feature: str) -> list[str]:
            return sorted(node for node in self.sessions if not self.has(node, feature))

        return lacking

    replace(stack, Attachments, "lacking", make)


@seeded("P12", rolling=True)
def requests_go_to_a_desk_of_any_release(stack: ExitStack) -> None:
    """A message is sent to a primary that cannot read it."""

    def make(original: Any) -> Any:
        def take_to_desk(self: NodeCore, request: DeskRequest) -> None:
            desk_at = self.role.desk_at
            if self.leading is not None:
                self.leading.desk.take(desk_at, request)
            elif desk_at in self.features:
                self.emit(Send(desk_at, request))

        return take_to_desk

    replace(stack, NodeCore, "_take_to_desk", make)


@seeded("P12", rolling=True)
def flags_keep_no_node_out(stack: ExitStack) -> None:
    """A copy of the queues tells a joiner of calls, which it cannot read."""
    replace(stack, Joins, "_unknown_flags", lambda original: lambda self, node: [])
