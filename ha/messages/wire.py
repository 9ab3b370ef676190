"""Messages between nodes that have greeted, and their bytes (PROTOCOL, "Messages").

Every message that the core takes carries the generation; a receiver refuses a lower one. ``session`` numbers the
attachments of one backup: what belongs to an earlier attachment is ignored.
"""

from __future__ import annotations

import msgspec

from ha.messages.alarms import AlarmsInForce
from ha.messages.attaching import AttachmentRefused, Follow, Granted, Join, Leave, Progress
from ha.messages.beats import Beat
from ha.messages.calls import DeskAnswer, DeskRequest
from ha.messages.copying import (
    ForwardOutcomes,
    ForwardTx,
    Missing,
    QueueChange,
    QueueContent,
    QueueSnapshot,
    ResyncBegin,
    SnapshotAccess,
    SnapshotCalls,
    SnapshotConfiguration,
    SnapshotEnd,
    SnapshotQueues,
)
from ha.messages.election import (
    ClientsClosed,
    HandoverRefused,
    HandoverRequest,
    Outdated,
    Probe,
    ProbeReply,
    Promoted,
)
from ha.messages.greeting import Hello
from ha.messages.member_asks import MemberAsk, MemberTold
from ha.messages.steps import StepAsk, StepTold
from ha.messages.stream import Ack, Cancel, Commit, Entries

Peer = (
    Probe
    | ProbeReply
    | Promoted
    | Outdated
    | HandoverRequest
    | HandoverRefused
    | ClientsClosed
    | Join
    | AttachmentRefused
    | Follow
    | Granted
    | Progress
    | Leave
    | Entries
    | Commit
    | Ack
    | Cancel
    | ResyncBegin
    | QueueSnapshot
    | Missing
    | QueueContent
    | QueueChange
    | ForwardTx
    | ForwardOutcomes
    | SnapshotConfiguration
    | SnapshotQueues
    | SnapshotCalls
    | SnapshotAccess
    | SnapshotEnd
    | DeskRequest
    | DeskAnswer
    | StepAsk
    | StepTold
    | Beat
    | MemberAsk
    | MemberTold
)
"""What the core takes"""
Told = Peer | AlarmsInForce
"""What a node takes from a peer that has greeted"""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Told | Hello)


def encode(message: object) -> bytes:
    """The bytes of one message, without a length prefix."""
    return _encoder.encode(message)


def decode(data: bytes | memoryview) -> Told:
    """The message in these bytes. Raises ValueError (msgspec.DecodeError) for anything else, and for a second Hello."""
    try:
        message: Told | Hello = _decoder.decode(data)
    except RecursionError:
        raise ValueError("configuration that is nested too deep") from None
    if isinstance(message, Hello):
        raise ValueError("it greets twice")
    return message
