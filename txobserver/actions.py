"""The registry of actions: which operations a cluster call may name, in which versions, and with what arguments.

No function goes over the wire: a record holds a name, a version and arguments, and every node looks them up in the
registry of its own release. One that does not know them refuses the record where it is received, before it is durable.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from txobserver.calls import CALL, ID_BYTES, LARGEST_ARGUMENTS, CallRecord
from txobserver.events import Configure

REDACTED = "(secret)"


class Action(NamedTuple):
    """``arguments``: what their msgpack decodes to. ``secrets``: the fields that are shown to no one.

    ``undone``: what was in force can be read, and running the operation with that undoes the action. An action that
    cannot be undone is recorded first and then run everywhere, and never aborts.
    """

    operation: str
    version: int
    arguments: type[msgspec.Struct]
    secrets: frozenset[str] = frozenset()
    undone: bool = True


class ActionRegistry:
    """What this release can run."""

    def __init__(self, actions: Iterable[Action] = ()) -> None:
        self._actions = {(each.operation, each.version): each for each in actions}

    def get(self, operation: str, version: int) -> Action | None:
        """The action, if it is known here in this version."""
        return self._actions.get((operation, version))

    def refusal(self, operation: str, version: int, arguments: bytes) -> str | None:
        """Why no call of this operation can be made, in one sentence; None if it can."""
        action = self.get(operation, version)
        if action is None:
            return f"the action {operation!r} in version {version} is unknown here: upgrade this node"
        if len(arguments) > LARGEST_ARGUMENTS:
            return f"the arguments of {operation!r} take {len(arguments)} bytes; a call has {LARGEST_ARGUMENTS} at most"
        try:
            msgspec.msgpack.decode(arguments, type=action.arguments)
        except (ValueError, RecursionError) as error:
            return f"the arguments of {operation!r} cannot be: {error}"
        return None

    def refusal_of(self, step: Configure) -> str | None:
        """Why a step of ``CALLS`` cannot be taken here. Raises ValueError for one whose record cannot be decoded."""
        if step.operation != CALL:
            return None
        record = msgspec.msgpack.decode(step.arguments, type=CallRecord)
        if len(record.id) != ID_BYTES:
            return f"a call has an id of {len(record.id)} bytes, not {ID_BYTES}"
        if record.kept < 1:
            return f"a call lets the history hold {record.kept} calls"
        return self.refusal(step.name, record.version, record.arguments)

    def shown(self, operation: str, version: int, arguments: bytes) -> str:
        """The arguments as JSON for people and logs, without secrets; of what is unknown here nothing is shown."""
        action = self.get(operation, version)
        if action is None:
            return REDACTED
        found: Any = msgspec.to_builtins(msgspec.msgpack.decode(arguments, type=action.arguments))
        fields = {name: REDACTED if name in action.secrets else value for name, value in found.items()}
        return msgspec.json.encode(fields).decode()


SHIPPED = ActionRegistry()
"""The actions of this release: none yet, since no node's shell runs any."""
