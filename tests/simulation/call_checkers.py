"""P13: each node runs every call behind its snapshot in the order of the numbers, from its own durable cursor, without
a gap but for recorded skips; an aborted call leaves no trace on any node. A breach raises ``Broken``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ha.calls.answers import ALL, Answer, CallDone, CallLagging, CallNotMade
from ha.effects import RunAction
from ha.membership.record import Record
from tests.simulation.call_reference import CallReference, ReferenceCall
from tests.simulation.checker import Checker
from tests.simulation.disk import Disk
from tests.simulation.surroundings import INITIAL
from txobserver.calls import CALL, LocalCalls
from txobserver.events import Configure
from txobserver.ids import Position

if TYPE_CHECKING:
    from tests.simulation.seen import Process, Truth


class CallsInOrder(Checker):
    """``_ran``: of each disk, the ids of the calls that have succeeded on it and are not undone. ``_since``: of each
    call that an initiator runs before it is recorded, the last number that there was then. ``_absent``: how often the
    coordination record had changed when it last did not list a member as ready; ``_appended``: the same, when a primary
    last appended the record of a call."""

    promise = "P13"

    def __init__(self, truth: Truth) -> None:
        super().__init__(truth)
        self.stream = CallReference()
        self._ran: dict[Disk, dict[bytes, None]] = {}
        self._running: dict[Process, RunAction] = {}
        self._since: dict[tuple[Disk, bytes], int] = {}
        self._refused: set[bytes] = set()
        self._members: set[str] = set()
        self._changes = 0
        self._absent: dict[str, int] = {}
        self._appended: dict[bytes, int] = {}
        self._digests: dict[int, int] = {}
        self._stood: dict[Process, int] = {}

    # -- the stream

    def changed(self, change: object) -> None:
        for call in self.stream.take(self.truth.canonical):
            if call.id in self._refused:
                self.fail(f"call {call.tnx_id} is recorded, and was told to be not made")
            disk = self.truth.cluster.disks[call.initiator]
            since = self._since.get((disk, call.id))
            between = [each.tnx_id for each in self.stream.calls if since is not None and since < each.tnx_id]
            if since is not None and between != [call.tnx_id]:
                self.fail(f"{call.initiator} ran its call {call.tnx_id} before {between}")

    def record_changed(self, record: Record) -> None:
        """Who is no member of the ready set is waited for no more."""
        listed = {str(member) for member in record.ready}
        self._changes += 1
        self._members |= listed
        for member in self._members - listed:
            self._absent[member] = self._changes

    def configuring(self, process: Process, step: Configure) -> None:
        """The members that a call counts are those where its record is appended: it may be long on its way."""
        if step.operation == CALL:
            call_id: bytes = msgspec.msgpack.decode(step.arguments)[0]
            self._appended[call_id] = self._changes

    def settling(self, process: Process) -> None:
        """What a node decides in a turn goes by what it has applied by then."""
        self._stood[process] = process.core.replica.applied.sequence

    def turned(self, process: Process) -> None:
        """Where a node says that it is, it would be after a power cut."""
        local, durable = process.core.calls.hands.local, process.disk.machine.durable
        if local.cursor.tnx_id > durable.cursor.tnx_id:
            self.fail(f"{process.name} counts as having run {local.cursor}, and durable is {durable.cursor}")

    def stands_at(self, process: Process, applied: Position) -> None:
        """P7: nodes at one position hold the same of calls."""
        calls = process.core.replica.contents.calls
        if not process.core.replica.resyncing and not process.core.replica.in_parts:
            digest = calls.digest()
            if self._digests.setdefault(applied.sequence, digest) != digest:
                self.fail(f"{process.name} at {applied} holds other calls than another node held there")

    # -- what a node runs

    def action_begins(self, process: Process, action: RunAction) -> None:
        disk, member = process.disk, str(process.disk.member)
        if process in self._running:
            self.fail(f"{process.name} runs an action beside another")
        self._running[process] = action
        applied, durable = self._stood.get(process, 0), disk.machine.durable
        if action.tnx_id:
            call = next((each for each in self.stream.calls if each.tnx_id == action.tnx_id), None)
            if call is None or (call.id, call.value) != (action.call_id, action.arguments):
                self.fail(f"{process.name} runs call {action.tnx_id}, which has not passed the commit point")
                return
            if call.tnx_id <= durable.cursor.tnx_id:
                self.fail(f"{process.name} runs call {call.tnx_id} again, behind its cursor {durable.cursor}")
            if self.stream.excused(member, call, applied) and call.id not in self._held(disk):
                skipped = [each for each in self.stream.controls if each[1] <= applied]
                self.fail(f"{process.name} runs call {call.tnx_id}, which it is not to run: {skipped}")
            self._check_gap(process, call.tnx_id, applied)
            if durable.intent is not None:
                self.fail(f"{process.name} runs call {call.tnx_id} before its own is settled")
        elif durable.intent is None or durable.intent.id != action.call_id:
            self.fail(f"{process.name} runs an action without a durable intent")
        elif not action.undo:
            known = [each.tnx_id for each in self.stream.calls if each.at <= applied]
            self._check_gap(process, known[-1] + 1 if known else 1, applied)
            self._since[disk, action.call_id] = known[-1] if known else 0
        else:
            call = self.stream.by_id(action.call_id)
            if call is not None and not self.stream.excused(member, call, applied):
                self.fail(f"{process.name} undoes call {call.tnx_id}, which is recorded")

    def _held(self, disk: Disk) -> dict[bytes, None]:
        return self._ran.setdefault(disk, {})

    def _check_gap(self, process: Process, tnx_id: int, applied: int) -> None:
        """Whether this node has dealt with every call before this one."""
        for each in self.stream.calls:
            if each.tnx_id < tnx_id and each.at <= applied and not self._dealt_with(process.disk, each, applied):
                self.fail(f"{process.name} goes on at call {tnx_id}, and has not run {each.tnx_id}")

    def _dealt_with(self, disk: Disk, call: ReferenceCall, applied: int) -> bool:
        return call.id in self._held(disk) or self.stream.excused(str(disk.member), call, applied)

    def action_ran(self, process: Process, action: RunAction, error: str | None) -> None:
        self._running.pop(process, None)
        held = self._held(process.disk)
        if action.undo and error is None:
            held.pop(action.call_id, None)
            self._since.pop((process.disk, action.call_id), None)
        elif error is None:
            held[action.call_id] = None

    # -- what it keeps

    def calls_kept(self, process: Process, local: LocalCalls) -> None:
        cursor, applied = local.cursor, process.core.replica.applied.sequence
        at = cursor.position.sequence
        if at > len(self.truth.canonical) or self.truth.generation_at(at) != cursor.position.generation:
            self.fail(f"{process.name} keeps the cursor {cursor}, which has not passed the commit point")
        self._check_gap(process, cursor.tnx_id + 1, max(applied, at))

    # -- what it tells

    def call_answered(self, process: Process, call_id: bytes, need: int, answer: Answer) -> None:
        call = self.stream.by_id(call_id)
        if isinstance(answer, CallNotMade):
            self._refused.add(call_id)
            if call is not None:
                self.fail(f"{process.name} tells that call {call.tnx_id} was not made: {answer.reason}")
        elif isinstance(answer, CallDone | CallLagging):
            if call is None or call.tnx_id != answer.tnx_id:
                self.fail(f"{process.name} tells of call {answer.tnx_id}, which is in no stream")
            elif isinstance(answer, CallDone):
                self._check_done(process, call, need)

    def _check_done(self, process: Process, call: ReferenceCall, need: int) -> None:
        """A disk that had it counts, though it may be lost since."""
        end, disks = len(self.truth.canonical), {*self.truth.cluster.disks.values(), *self._ran}
        has = sorted(str(disk.member) for disk in disks if self._dealt_with(disk, call, end))
        if need != ALL:
            if len(has) < need:
                self.fail(f"{process.name} tells that {need} nodes have call {call.tnx_id}, and {has} have")
            return
        for member in call.members:
            if member not in has and self._absent.get(member, -1) < self._appended[call.id]:
                self.fail(f"{process.name} tells that all have call {call.tnx_id}, and {member} has not")

    def finished(self) -> None:
        """Everything is healed: each node has run all, and nothing else is in force."""
        for process in self.truth.cluster.running():
            disk, applied = process.disk, process.core.replica.applied.sequence
            last = self.stream.calls[-1].tnx_id if self.stream.calls else 0
            self._check_gap(process, last + 1, applied)
            if disk.machine.durable.intent is not None:
                self.fail(f"{process.name} has a call that is not settled")
            for key in sorted({each.key for each in self.stream.calls} | disk.machine.in_force.keys()):
                self._check_in_force(process, key)

    def _check_in_force(self, process: Process, key: tuple[str, str]) -> None:
        """What the last call that the node has run leads to, or one that it was let skip when it had begun with it."""
        disk = process.disk
        calls = [each for each in self.stream.calls if each.key == key]
        ran = [each for each in calls if each.id in self._held(disk)]
        expected = ran[-1].value if ran else INITIAL
        found = disk.machine.in_force.get(key, INITIAL)
        if found != expected and found not in [each.value for each in calls if each not in ran]:
            self.fail(f"{process.name} has {found!r} in force for {key}, and the calls lead to {expected!r}")
