"""Interpreter: carries a core's effects out through an Io, and reports to the core what came of them.

The node's shell, the cluster in memory and the simulator use this one; each brings an Io of its own. "Persist, then
send" is kept here: an acknowledgement leaves when the write that it waits for has been completed (PROTOCOL, P11).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, get_args

from ha.core import NodeCore
from ha.effects import (
    Acknowledge,
    CloseLink,
    CompareAndSet,
    Effect,
    KeepCalls,
    LogLine,
    Persist,
    ReadAction,
    ReadLog,
    ReadQueue,
    ReadRecord,
    ResetLog,
    RunAction,
    Send,
    Stop,
    Truncate,
    WriteCheckpoint,
)
from ha.membership.record import Record
from ha.messages.stream import Ack
from txobserver.frames import Frame
from txobserver.ports.store import Page

Write = Persist | Truncate | ResetLog | WriteCheckpoint


class Io(Protocol):
    """What carries effects out. What is asked for is answered by the interpreter's methods, or never.

    What a disk fails with is reported to the core by what runs it (``NodeCore.on_store_error``).
    """

    def write(self, effect: Write) -> None:
        """Change the store durably; answered by ``written``. Writes are carried out in order."""

    def read_log(self, effect: ReadLog) -> None:
        """Answered by ``log_read``; no frames where the log no longer holds them."""

    def read_queue(self, effect: ReadQueue) -> None:
        """Answered by ``queue_read``."""

    def read_record(self) -> None:
        """Answered by ``record_read``."""

    def compare_and_set(self, effect: CompareAndSet) -> None:
        """Answered by ``stored``, ``conflict`` or ``cas_failed``."""

    def send(self, peer: str, message: object) -> None:
        """Give a message to the network, which may lose it."""

    def close_link(self, peer: str) -> None:
        """End the connections with a peer; it is dialled anew. That it is gone may be reported again."""

    def log(self, line: LogLine) -> None:
        """A line for people."""

    def stop(self, reason: str) -> None:
        """End the node."""


class Surroundings(Protocol):
    """What a node's actions work on. Each is answered by the interpreter's method, or never."""

    def run(self, effect: RunAction) -> None:
        """Run an action: what it has done is done for good when it is answered by ``action_ran``."""

    def read(self, effect: ReadAction) -> None:
        """Answered by ``action_read``."""

    def keep(self, effect: KeepCalls) -> None:
        """Answered by ``calls_kept`` when it is durable; a crash before leaves this or what was kept before."""


class Reports(Protocol):
    """How the core is told: after the clock, and with a turn of the core to follow."""

    def report(self, call: Callable[[], None]) -> None:
        """Something happened; the core looks at the clock first."""

    def answered(self, call: Callable[[], None]) -> None:
        """The coordination store has answered: the core is told before it looks at the clock."""

    def stored(self, record: Record, call: Callable[[], None]) -> None:
        """The same, for a change of the record that has been made."""


class Interpreter:
    """Of one node. ``run`` is to be called at the end of each turn."""

    def __init__(self, core: NodeCore, io: Io, reports: Reports, surroundings: Surroundings | None = None) -> None:
        self._core = core
        self._io = io
        self._reports = reports
        self._surroundings = surroundings

    def run(self) -> None:
        """Carry out, in order, what the core has asked for."""
        for effect in self._core.take_effects():
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        kind = type(effect)
        if kind in _ACTIONS:
            assert self._surroundings is not None, "P13: an action is asked of a node that has none"
            _ACTIONS[kind](self._surroundings, effect)
            return
        if kind in _WRITES:
            self._core.feed.changes(effect)  # type: ignore[arg-type]
        _CARRY_OUT[kind](self._io, effect)

    # -- answers

    def written(self, effect: Write) -> None:
        """The write is durable: send the acknowledgement that waits for it, and tell the core."""
        core = self._core
        if isinstance(effect, ResetLog):
            self._reports.report(lambda: core.on_reset(effect))
            return
        self._acknowledge(effect.then)
        if isinstance(effect, Persist):
            self._reports.report(lambda: core.on_durable(effect.frame.last))
        elif isinstance(effect, WriteCheckpoint):
            self._reports.report(core.on_checkpoint)

    def _acknowledge(self, then: Acknowledge | None) -> None:
        if then is not None:
            self._io.send(then.peer, Ack(then.generation, then.session, then.sequence))

    def log_read(self, effect: ReadLog, frames: list[Frame]) -> None:
        """These frames were read."""
        self._reports.report(lambda: self._core.on_log_read(effect.peer, effect.session, frames))

    def queue_read(self, effect: ReadQueue, page: Page) -> None:
        """These messages were read."""
        self._reports.report(lambda: self._core.on_queue_read(effect, page))

    def action_ran(self, effect: RunAction, error: str | None) -> None:
        """The action has returned."""
        self._reports.report(lambda: self._core.on_action(effect.number, error))

    def action_read(self, effect: ReadAction, arguments: bytes | None, error: str = "") -> None:
        """These arguments are in force."""
        self._reports.report(lambda: self._core.on_action_read(effect.number, arguments, error))

    def calls_kept(self, effect: KeepCalls) -> None:
        """This is durable."""
        self._reports.report(lambda: self._core.on_calls_kept(effect.local))

    def record_read(self, record: Record | None) -> None:
        """This is the coordination record."""
        self._reports.answered(lambda: self._core.on_record(record))

    def stored(self, effect: CompareAndSet, record: Record) -> None:
        """The change has been made, and synced."""
        self._reports.stored(record, lambda: self._core.on_stored(effect, record))

    def conflict(self, effect: CompareAndSet, current: Record | None) -> None:
        """The change found another version."""
        self._reports.report(lambda: self._core.on_conflict(effect, current))

    def cas_failed(self, effect: CompareAndSet) -> None:
        """Whether the change was made is unknown."""
        self._reports.report(lambda: self._core.on_cas_failed(effect))


def _send(io: Io, effect: Send) -> None:
    io.send(effect.peer, effect.message)


def _write(io: Io, effect: Write) -> None:
    io.write(effect)


_ACTIONS: dict[type, Callable[..., None]] = {
    RunAction: lambda surroundings, effect: surroundings.run(effect),
    ReadAction: lambda surroundings, effect: surroundings.read(effect),
    KeepCalls: lambda surroundings, effect: surroundings.keep(effect),
}
_WRITES = frozenset(get_args(Write))
_CARRY_OUT: dict[type, Callable[..., None]] = {
    Persist: _write,
    Truncate: _write,
    ResetLog: _write,
    WriteCheckpoint: _write,
    Send: _send,
    CloseLink: lambda io, effect: io.close_link(effect.peer),
    ReadLog: lambda io, effect: io.read_log(effect),
    ReadQueue: lambda io, effect: io.read_queue(effect),
    ReadRecord: lambda io, effect: io.read_record(),
    CompareAndSet: lambda io, effect: io.compare_and_set(effect),
    LogLine: lambda io, effect: io.log(effect),
    Stop: lambda io, effect: io.stop(effect.reason),
}
