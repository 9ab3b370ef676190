"""The registry of actions: which operations a cluster call may name, in which versions, and with what arguments.

No function goes over the wire: a record holds a name, a version and arguments, and every node looks them up in the
registry of its own release. One that does not know them refuses the record where it is received, before it is durable.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple

import msgspec

from txobserver.calls import CALL, ID_BYTES, LARGEST_ARGUMENTS, CallRecord
from txobserver.events import Configure

REDACTED = "(secret)"
LONGEST_NAME: Final = 255
"""Bytes of the name of what an operation is about."""
LOG_LEVEL: Final = "log_level"
LISTENER: Final = "listener"
HOOK: Final = "hook"
FLAG: Final = "flag"
CERTIFICATES: Final = "certificates"
CERTIFICATES_FEATURE: Final = "certificates"
"""What a node names that knows the action of this name."""
MEMBERS_FLAG: Final = "members"
FLAGS: dict[str, str] = {
    "calls": "every node takes part in cluster calls; one that does not is attached no more",
    MEMBERS_FLAG: "the coordination record may say who is a member; a node that cannot read that is attached no more",
}
"""The feature flags of this release, with what it means that one is raised. Each is a feature that nodes announce."""


class Action(NamedTuple):
    """``arguments``: what their msgpack decodes to. ``secrets``: the fields that are shown to no one.

    ``undone``: what was in force can be read, and running the operation with that undoes the action. An action that
    cannot be undone is recorded first and then run everywhere, and never aborts. ``named``: whether a call of it says
    what it is about; None: it may. ``feature``: what a node names that knows it; None: as old as calls themselves.
    """

    operation: str
    version: int
    arguments: type[msgspec.Struct]
    secrets: frozenset[str] = frozenset()
    undone: bool = True
    named: bool | None = None
    feature: str | None = None


class SetLogLevel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From which level on a node logs."""

    level: Literal["debug", "info", "warning", "error"]


class SetListener(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether a listener for clients is open, whose name each node's own configuration gives an address."""

    open: bool


class RunHook(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an operator's own executable is given; None: it is to leave things as they were before its first call."""

    arg: list[str] | None = None


class RaiseFlag(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A flag is raised for good, so there is nothing to say but its name."""


class ReloadCertificates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The files that each node's own configuration names are read again: there is nothing to say."""


class ActionRegistry:
    """What this release can run."""

    def __init__(self, actions: Iterable[Action] = ()) -> None:
        self._actions = {(each.operation, each.version): each for each in actions}

    def get(self, operation: str, version: int) -> Action | None:
        """The action, if it is known here in this version."""
        return self._actions.get((operation, version))

    def latest(self, operation: str) -> Action | None:
        """The action in the newest version that is known here."""
        known = [each for each in self._actions.values() if each.operation == operation]
        return max(known, key=lambda each: each.version, default=None)

    def operations(self) -> list[str]:
        """The names of all that is known here."""
        return sorted({operation for operation, _ in self._actions})

    def refusal(self, operation: str, version: int, arguments: bytes, name: str = "") -> str | None:
        """Why no call of this operation can be made, in one sentence; None if it can."""
        action = self.get(operation, version)
        if action is None:
            return f"the action {operation!r} in version {version} is unknown here: upgrade this node"
        if (wrong := _wrong_name(action, name)) is not None:
            return wrong
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
        return self.refusal(step.name, record.version, record.arguments, record.name)

    def shown(self, operation: str, version: int, arguments: bytes) -> str:
        """The arguments as JSON for people and logs, without secrets; of what is unknown here nothing is shown."""
        action = self.get(operation, version)
        if action is None:
            return REDACTED
        found: Any = msgspec.to_builtins(msgspec.msgpack.decode(arguments, type=action.arguments))
        fields = {name: REDACTED if name in action.secrets else value for name, value in found.items()}
        return msgspec.json.encode(fields).decode()


def _wrong_name(action: Action, name: str) -> str | None:
    if len(name.encode()) > LONGEST_NAME:
        return f"what {action.operation!r} is about has a name of {len(name.encode())} bytes; {LONGEST_NAME} at most"
    if action.named is not None and bool(name) != action.named:
        return f"{action.operation!r} {'needs a name: name=NAME' if action.named else 'takes no name'}"
    if action.operation == FLAG and name not in FLAGS:
        return f"no flag {name!r} is known here; known: {', '.join(sorted(FLAGS))}"
    return None


SHIPPED = ActionRegistry(
    [
        Action(LOG_LEVEL, 1, SetLogLevel, named=False),
        Action(LISTENER, 1, SetListener, named=True),
        Action(HOOK, 1, RunHook, named=True),
        Action(FLAG, 1, RaiseFlag, undone=False, named=True),
        Action(CERTIFICATES, 1, ReloadCertificates, named=False, feature=CERTIFICATES_FEATURE),
    ]
)
"""The actions of this release."""
