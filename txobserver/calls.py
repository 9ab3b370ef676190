"""Cluster calls: what the stream holds of them, and what its applied prefix leads to (seed 000, P13).

An *action* changes a node's surroundings, and each node runs it by itself. Its record is a step of configuration like
any other: the ``config_id`` of that step is the call's ``tnx_id``, so state and actions have one numbering. So are the
records by which an operator lets a node skip a call, moves a node forward, or lets all nodes begin anew.

``KeptCalls`` is what every node holds alike as of a position: the history, of a length that the records themselves say,
and before it the last call of each (operation, name). A node that joins, or is behind the history, takes those.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec

from txobserver.events import Configure
from txobserver.ids import Position

CALL: Final = "call.run"
SKIP: Final = "call.skip"
FAST_FORWARD: Final = "call.fast_forward"
RESET: Final = "call.reset"
CONTROLS = frozenset({SKIP, FAST_FORWARD, RESET})
CALLS = CONTROLS | {CALL}
"""The steps of configuration that are about calls."""
CALLS_FEATURE: Final = "calls"
"""What a node names that can take part in calls."""
ID_BYTES: Final = 16
"""Of the id that the initiator of a call draws."""
LARGEST_ARGUMENTS: Final = 16 << 10
"""Bytes of the arguments of one call."""

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class CallMark(NamedTuple):
    """All calls up to ``tnx_id`` are dealt with; ``position``: up to where the stream says what that takes."""

    tnx_id: int
    position: Position


NO_MARK = CallMark(0, Position(0, 0))


class CallRecord(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The arguments of a step ``CALL``, whose name is the action's operation.

    ``name``: what the operation is about, such as a listener. ``members``: those that count where the record stands.
    ``kept``: how many calls the history holds from here on.
    """

    id: bytes
    version: int
    name: str
    arguments: bytes
    initiator: str
    created_ms: int
    members: list[str]
    kept: int


class CallControl(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The arguments of a step of ``CONTROLS``: ``member`` skips the call ``tnx_id``, or is moved forward to it.

    A reset names neither, and is about all members.
    """

    id: bytes
    member: str
    tnx_id: int


class KeptCall(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A call that is remembered, with its number and its place in the stream."""

    tnx_id: int
    position: Position
    operation: str
    record: CallRecord

    @property
    def key(self) -> tuple[str, str]:
        """A later call of the same (operation, name) takes its place."""
        return self.operation, self.record.name

    @property
    def mark(self) -> CallMark:
        """This call, and all before it."""
        return CallMark(self.tnx_id, self.position)


class CallIntent(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A call that its initiator may have run, and whose record may not have been appended.

    ``before``: the arguments that were in force; to run the operation with them undoes the call. ``after``: the last
    call that the initiator had run.
    """

    id: bytes
    operation: str
    version: int
    name: str
    before: bytes
    after: int


class LocalCalls(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """What one node keeps durably of calls, beside its part of the stream: how far it has run them."""

    cursor: CallMark = NO_MARK
    intent: CallIntent | None = None


def call_step(operation: str, record: CallRecord) -> Configure:
    """The record of a call. The tnx_id is given by the stream."""
    return Configure(0, CALL, operation, _encode(record))


def control_step(operation: str, control: CallControl) -> Configure:
    """The record of a skip, a fast-forward or a reset."""
    return Configure(0, operation, control.member or "*", _encode(control))


class KeptCalls(msgspec.Struct, array_like=True):
    """``kept``: by rising tnx_id, the history and before it the last call of each (operation, name).

    The history begins behind ``purged_to``. ``reset``: no node runs anything up to there. ``forwarded``: the same, for
    one member each; ``skips``: single calls that a member does not run. ``last``: the tnx_id of the last call;
    ``events``: how many steps about calls have been applied.
    """

    kept: list[KeptCall] = []
    purged_to: int = 0
    reset: CallMark = NO_MARK
    forwarded: dict[str, CallMark] = {}
    skips: dict[str, list[int]] = {}
    last: int = 0
    events: int = 0

    def copy(self) -> KeptCalls:
        """The same, independent of this one."""
        return KeptCalls(self.kept, self.purged_to, self.reset, self.forwarded, self.skips, self.last, self.events)

    def digest(self) -> int:
        """64 bits over all of it; 0 where there never was a call."""
        return int.from_bytes(blake2b(_encode(self), digest_size=8).digest(), "big") if self.events else 0

    def apply(self, step: Configure, position: Position) -> None:
        """The step of ``CALLS`` at this position. What is held is replaced, never changed: copies share it."""
        self.events += 1
        if step.operation == CALL:
            record = msgspec.msgpack.decode(step.arguments, type=CallRecord)
            self.kept = [*self.kept, KeptCall(step.config_id, position, step.name, record)]
            self.last = step.config_id
            self._trim(record.kept)
            return
        control = msgspec.msgpack.decode(step.arguments, type=CallControl)
        if step.operation == RESET:
            self.reset = CallMark(step.config_id, position)
        elif step.operation == FAST_FORWARD:
            before = self.forwarded.get(control.member, NO_MARK)
            if control.tnx_id > before.tnx_id:
                self.forwarded = {**self.forwarded, control.member: CallMark(control.tnx_id, position)}
        elif control.tnx_id in {each.tnx_id for each in self.kept}:
            skipped = {*self.skips.get(control.member, ()), control.tnx_id}
            self.skips = {**self.skips, control.member: sorted(skipped)}

    def by_id(self, call_id: bytes) -> KeptCall | None:
        """The call with this id, if it is remembered."""
        for each in self.kept:
            if each.record.id == call_id:
                return each
        return None

    def numbered(self, tnx_id: int) -> KeptCall | None:
        """The call with this number, if it is remembered."""
        return next((each for each in self.kept if each.tnx_id == tnx_id), None)

    def names_of(self, operation: str) -> list[str]:
        """What there was a call of this operation about, such as the flags that are raised."""
        return sorted({each.record.name for each in self.kept if each.operation == operation})

    def last_of(self, operation: str, name: str) -> int:
        """The tnx_id of the last call of this (operation, name); 0 if there was none."""
        return max((each.tnx_id for each in self.kept if each.key == (operation, name)), default=0)

    def next_for(self, member: str, tnx_id: int) -> KeptCall | None:
        """The first call that this member, which has dealt with all up to ``tnx_id``, is to run."""
        return next(self._due(member, tnx_id), None)

    def behind(self, member: str, tnx_id: int) -> int:
        """How many calls this member, which has dealt with all up to ``tnx_id``, is to run yet."""
        return sum(1 for _ in self._due(member, tnx_id))

    def due(self, member: str, tnx_id: int) -> list[int]:
        """The numbers of those, in order."""
        return [each.tnx_id for each in self._due(member, tnx_id)]

    def passed_over(self, member: str, tnx_id: int) -> bool:
        """Whether this member is let off this call: it does not run it any more, unless it has before."""
        floor = max(self.reset.tnx_id, self.forwarded.get(member, NO_MARK).tnx_id)
        return tnx_id <= floor or tnx_id in self.skips.get(member, ())

    def covered(self, member: str, cursor: CallMark) -> CallMark:
        """Up to where this member, whose cursor is there, has nothing to run."""
        following = self.next_for(member, cursor.tnx_id)
        passed = [each.mark for each in self.kept if following is None or each.tnx_id < following.tnx_id]
        return max(cursor, self.reset, self.forwarded.get(member, NO_MARK), passed[-1] if passed else NO_MARK)

    def _due(self, member: str, tnx_id: int) -> Iterator[KeptCall]:
        """In order, what this member is to run behind ``tnx_id``."""
        return (each for each in self.kept if each.tnx_id > tnx_id and not self.passed_over(member, each.tnx_id))

    def _trim(self, most: int) -> None:
        """What is older than the history goes, but for the last of each (operation, name)."""
        history = [each.tnx_id for each in self.kept if each.tnx_id > self.purged_to]
        if len(history) > most:
            self.purged_to = history[-most - 1]
        last = set({each.key: each.tnx_id for each in self.kept}.values())
        kept = [each for each in self.kept if each.tnx_id > self.purged_to or each.tnx_id in last]
        if len(kept) == len(self.kept):
            return
        self.kept = kept
        known = {each.tnx_id for each in kept}
        left = {member: [each for each in skipped if each in known] for member, skipped in self.skips.items()}
        self.skips = {member: skipped for member, skipped in left.items() if skipped}
        first = kept[0].tnx_id
        self.forwarded = {member: mark for member, mark in self.forwarded.items() if mark.tnx_id >= first}


def arguments_of(operation: str) -> Any:
    """The type of what stands in the arguments of a step of ``CALLS``."""
    return CallRecord if operation == CALL else CallControl
