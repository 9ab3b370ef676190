"""What a host broker says to its node: ``Attach``, then requests."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

import msgspec

from broker_plugin.host.shapes import Count, HostMessage, Number, Pairs
from txobserver.events import Configure, Message, Reason
from txobserver.xid import FormatId, Gtrid, Token, Xid


class WorkEnd(IntEnum):
    """How a transaction or a branch that has not been prepared ends."""

    COMMIT = 1
    """Of a branch: in one phase"""
    ROLLBACK = 2
    PREPARE = 3


class Attach(HostMessage, tag=0):
    """The first message: which version the broker speaks, what it is called in the node's log, and where it listens for
    clients."""

    version: int
    broker: Annotated[str, msgspec.Meta(max_length=100)]
    host: Annotated[str, msgspec.Meta(max_length=255)]
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]


class _Request(HostMessage):
    activation: Count
    request: Number
    """Names the answer; 0, where that is allowed: no answer is wanted"""


class AskConfigure(_Request, tag=1):
    """``Ledger.configure``"""

    step: Configure


class AskPublish(_Request, tag=2):
    """``Ledger.publish``; request 0 asks for no confirm"""

    queues: list[Number]
    message: Message


class AskSettle(_Request, tag=3):
    """``Ledger.settle``; has no answer"""

    queue: Number
    entries: Pairs
    reason: Reason


class AskPurge(_Request, tag=4):
    """``Ledger.purge``"""

    queue: Number
    offset: Number
    spared: Pairs


class AskWatermark(_Request, tag=5):
    """``Ledger.raise_watermark``; has no answer but ``WatermarkRaised``"""

    queue: Number
    offset: Number


class GrantCredit(_Request, tag=6):
    """``Ledger.grant``; has no answer"""

    queue: Number
    messages: Number
    announced: Number


class AskPage(_Request, tag=7):
    """``Ledger.read`` of what stands above an offset"""

    queue: Number
    after: int
    limit: Count
    max_bytes: Count


class AskMessages(_Request, tag=8):
    """``Ledger.read`` of the messages at these offsets"""

    queue: Number
    offsets: list[Number]
    max_bytes: Count


class BeginWork(_Request, tag=9):
    """``Ledger.begin``, or ``begin_branch`` where there is an xid. ``work`` names it until it has ended."""

    work: Count
    token: Token | None = None
    xid: Xid | None = None


class NameWork(_Request, tag=10):
    """``Observer.name``"""

    work: Count
    token: Token


class EnqueueWork(_Request, tag=11):
    """``Work.enqueue``; has no answer"""

    work: Count
    queues: list[Number]
    message: Message


class DequeueWork(_Request, tag=12):
    """``Work.dequeue``; has no answer"""

    work: Count
    queue: Number
    entries: Pairs
    reason: Reason


class EndWork(_Request, tag=13):
    """Commit, roll back or prepare"""

    work: Count
    ending: WorkEnd


class DecideBranch(_Request, tag=14):
    """``Ledger.decide_branch``"""

    xid: Xid
    commit: bool
    heuristic: bool


class ForgetBranch(_Request, tag=15):
    """``Ledger.forget_branch``"""

    xid: Xid


class DecideGlobal(_Request, tag=16):
    """``Ledger.decide_global``"""

    format_id: FormatId
    gtrid: Gtrid
    commit: bool


class ForgetGlobalDecision(_Request, tag=17):
    """``Ledger.forget_global``"""

    format_id: FormatId
    gtrid: Gtrid


class AskBranch(_Request, tag=18):
    """``Content.outcome``"""

    xid: Xid
    since: Number = 0


class AskToken(_Request, tag=19):
    """``Content.outcome_of_token``; ACTIVE for one that has not been closed"""

    token: Token
    since: Number = 0


class AskGlobal(_Request, tag=20):
    """``Content.global_outcome``"""

    format_id: FormatId
    gtrid: Gtrid


FromBroker = (
    Attach
    | AskConfigure
    | AskPublish
    | AskSettle
    | AskPurge
    | AskWatermark
    | GrantCredit
    | AskPage
    | AskMessages
    | BeginWork
    | NameWork
    | EnqueueWork
    | DequeueWork
    | EndWork
    | DecideBranch
    | ForgetBranch
    | DecideGlobal
    | ForgetGlobalDecision
    | AskBranch
    | AskToken
    | AskGlobal
)
