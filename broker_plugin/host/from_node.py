"""What a node says to its host broker: what the core tells a host, and answers."""

from __future__ import annotations

from broker_plugin.host.shapes import Count, HostMessage, Number, Pairs
from txobserver.configuration import Configuration
from txobserver.events import Configure, Message, Reason
from txobserver.outcomes import BranchOutcome, PreparedBranch
from txobserver.ports.store import QueueSummary


class Welcome(HostMessage, tag=0):
    """The answer to Attach."""

    version: int
    cluster: str
    node: str


class Activated(HostMessage, tag=1):
    """``Host.on_active``: serve clients. All that a broker must know before it reads a message."""

    activation: Count
    applied: Number
    """The sequence of the last event that has been applied"""
    configuration: Configuration
    summaries: dict[int, QueueSummary]
    """Of each durable queue, by its number"""
    branches: list[PreparedBranch]


class Deactivated(HostMessage, tag=2):
    """``Host.on_inactive``"""

    activation: Count
    reason: str


class LeaseUntil(HostMessage, tag=3):
    """Until then, in seconds of this machine's clock that counts suspension (CLOCK_BOOTTIME), the broker may say
    something to its clients. 0: not any more."""

    boottime: float


class StepConfigured(HostMessage, tag=4):
    """``Host.on_configured``. ``refusal`` is empty where the step was carried out."""

    step: Configure
    deleted: int | None
    lapsed: list[str]
    refusal: str


class MessageEnqueued(HostMessage, tag=5):
    """``Host.on_enqueued``"""

    queue: Number
    offset: Number
    rid: Number
    message: Message


class MessagesRemoved(HostMessage, tag=6):
    """``Host.on_removed``"""

    queue: Number
    entries: Pairs
    reason: Reason


class QueuePurged(HostMessage, tag=7):
    """``Host.on_purged``"""

    queue: Number
    offset: Number
    spared: list[Number]
    count: Number


class WatermarkRaised(HostMessage, tag=8):
    """``Host.on_watermark``"""

    queue: Number
    offset: Number


class BranchPrepared(HostMessage, tag=9):
    """``Host.on_branch_prepared``"""

    branch: PreparedBranch


class BranchEnded(HostMessage, tag=10):
    """``Host.on_branch_ended``"""

    branch: PreparedBranch
    committed: bool


class Answer(HostMessage, tag=11):
    """What became of a request. ``error`` is empty for done; ``refused``: the step's condition was not met where it was
    applied (``txobserver.configuration.Refusal``)."""

    request: Count
    error: str
    refused: bool
    applied: Number
    """The sequence of the last event that had been applied then: ``since`` of later questions for an outcome"""


class PageRead(HostMessage, tag=12):
    """``Found``: messages (offset, replication id, message)"""

    request: Count
    entries: list[tuple[Number, Number, Message]]
    through: Number


class OutcomeTold(HostMessage, tag=13):
    """What is known of a branch, a token or a global transaction; ``decision``: that of a global one."""

    request: Count
    outcome: BranchOutcome
    decision: BranchOutcome


class MessagesArriving(HostMessage, tag=14):
    """``Host.on_arriving``: they count as announced"""

    queue: Number
    messages: Count


FromNode = (
    Welcome
    | Activated
    | Deactivated
    | LeaseUntil
    | StepConfigured
    | MessageEnqueued
    | MessagesRemoved
    | QueuePurged
    | WatermarkRaised
    | BranchPrepared
    | BranchEnded
    | Answer
    | PageRead
    | OutcomeTold
    | MessagesArriving
)
