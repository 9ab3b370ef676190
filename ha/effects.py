"""Effects: what a pure state machine asks of the shell around it.

"Persist, then send" is a type here: an acknowledgement that promises durability exists only as a part of the
``Persist`` whose completion it waits for (HOUSE, P11). The shell carries effects out in the order of the list.
"""

from __future__ import annotations

from typing import NamedTuple

from ha.log_events import LogEvent
from txobserver.calls import LocalCalls
from txobserver.frames import Frame
from txobserver.ids import Position
from txobserver.ports.store import Asked, Checkpoint


class Acknowledge(NamedTuple):
    """To ``peer``, in ``session`` of ``generation``: my log is durable up to ``sequence``."""

    peer: str
    generation: int
    session: int
    sequence: int


class Persist(NamedTuple):
    """Write and sync a frame; then send the acknowledgement, if there is one, and report ``on_durable``."""

    frame: Frame
    then: Acknowledge | None = None


class Truncate(NamedTuple):
    """Cut the log after sequence ``last``, durably; then send the acknowledgement. Nothing is reported."""

    last: int
    then: Acknowledge | None = None


class ResetLog(NamedTuple):
    """Begin the log anew at sequence ``following``: a snapshot stands for all before it. Reported to ``on_reset``."""

    following: int
    history: tuple[Position, ...]


class WriteCheckpoint(NamedTuple):
    """Bring the queue state forward in one atomic step; then acknowledge, if asked, and report ``on_checkpoint``."""

    checkpoint: Checkpoint
    then: Acknowledge | None = None


class Send(NamedTuple):
    """A message to a peer. It promises nothing about durability."""

    peer: str
    message: object


class CloseLink(NamedTuple):
    """End the connections with a peer of which nothing comes, and dial anew. What was sent to it may be lost."""

    peer: str


class ReadLog(NamedTuple):
    """Read frames from sequence ``first`` on for a backup that lags; reports ``on_log_read``."""

    peer: str
    session: int
    first: int
    max_bytes: int


class ReadQueue(NamedTuple):
    """Read messages from the queue state, in a thread that nothing else waits for; reports ``on_queue_read``.

    ``generation``: of the primary whose broker asks; ``number``: which of its readings it is.
    """

    generation: int
    number: int
    asked: Asked


class CompareAndSet(NamedTuple):
    """Change the coordination record; reports ``on_stored``, ``on_conflict`` or ``on_cas_failed``."""

    expected: int
    record: object


class ReadRecord(NamedTuple):
    """Read the coordination record now, whatever is watched; reports ``on_record``."""


class RunAction(NamedTuple):
    """Run an action on this node's surroundings; reports ``on_action`` with this ``number``.

    ``call_id`` and ``tnx_id`` say for which call, the latter 0 before it has a number; ``undo``: what was in force
    before is run, to undo the call.
    """

    number: int
    call_id: bytes
    tnx_id: int
    operation: str
    version: int
    name: str
    arguments: bytes
    undo: bool = False


class ReadAction(NamedTuple):
    """Read the arguments of an operation that are in force; reports ``on_action_read`` with this ``number``."""

    number: int
    operation: str
    version: int
    name: str


class KeepCalls(NamedTuple):
    """Keep durably how far this node has run the calls; reports ``on_calls_kept``."""

    local: LocalCalls


class LogLine(NamedTuple):
    """One event for people, such as a change of state. ``warning``: an operator must act."""

    event: LogEvent
    warning: bool = False


class Stop(NamedTuple):
    """The node cannot go on, for this reason. It ends with an error."""

    reason: str


Effect = (
    Persist
    | Truncate
    | ResetLog
    | WriteCheckpoint
    | Send
    | CloseLink
    | ReadLog
    | ReadQueue
    | ReadRecord
    | CompareAndSet
    | RunAction
    | ReadAction
    | KeepCalls
    | LogLine
    | Stop
)
