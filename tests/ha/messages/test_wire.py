"""The bytes of messages: each kind keeps its number, and what is no message of a node that has greeted is refused."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from ha.messages.alarms import AlarmsInForce
from ha.messages.greeting import greeting
from ha.messages.stream import Commit
from ha.messages.wire import Told, decode, encode

NUMBERS = {
    1: "Probe",
    2: "ProbeReply",
    3: "Join",
    4: "AttachmentRefused",
    5: "Follow",
    6: "Entries",
    7: "Commit",
    8: "Ack",
    9: "Cancel",
    10: "Leave",
    11: "Granted",
    12: "ResyncBegin",
    14: "QueueSnapshot",
    15: "Missing",
    16: "QueueContent",
    17: "QueueChange",
    18: "ForwardTx",
    19: "SnapshotEnd",
    20: "HandoverRequest",
    21: "Promoted",
    22: "ForwardOutcomes",
    23: "Progress",
    24: "SnapshotConfiguration",
    25: "SnapshotQueues",
    26: "Outdated",
    27: "HandoverRefused",
    28: "TicketAsk",
    29: "TicketGranted",
    30: "CallRefused",
    31: "CallAppend",
    32: "TicketReturned",
    33: "SettleAsk",
    34: "SettleUpTo",
    35: "ControlAsk",
    36: "ControlDone",
    37: "CursorReport",
    38: "CallAsk",
    39: "CallStanding",
    40: "SnapshotCalls",
    41: "CursorsAsk",
    42: "CursorsTold",
    43: "Beat",
    50: "SnapshotAccess",
    51: "StepAsk",
    52: "StepTold",
    60: "AlarmsInForce",
    70: "ClientsClosed",
    71: "MemberAsk",
    72: "MemberTold",
}
"""Of version 5 of the peer protocol; 13 is one of before 0.1.0. From 28 on: of the feature ``calls`` only, 43 of
``beats``, from 50 on: of ``users``, 60 of ``alarms``, and 70 of ``handover``."""


def test_a_number_names_one_kind_for_as_long_as_its_version_is_spoken() -> None:
    """Another release takes it for what it says here."""
    assert {kind.__struct_config__.tag: kind.__name__ for kind in get_args(Told)} == NUMBERS


def test_a_message_is_read_as_it_was_written() -> None:
    assert decode(encode(Commit(1, 2, 3))) == Commit(1, 2, 3) and encode(Commit(1, 2, 3)) == b"\x94\x07\x01\x02\x03"


def test_a_later_version_may_tell_more_of_its_alarms() -> None:
    assert encode(AlarmsInForce(True, False)) == b"\x93\x3c\xc3\xc2"
    assert decode(msgspec.msgpack.encode([60, True, False, "another"])) == AlarmsInForce(True, False)
    with pytest.raises(ValueError, match="at least length 3"):
        decode(msgspec.msgpack.encode([60, True]))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (encode(greeting("c", "a", "h", 1)), "it greets twice"),
        (b"\x98\x18\x01\x01\x91\x95\x01\xa1q\xc2\x81\xa1a" + b"\x91" * 100_000 + b"\x90", "nested too deep"),
        (msgspec.msgpack.encode([13, 1, 1]), "Invalid value 13"),
        (b"\x94\x07\x01\x02\x03more", "trailing"),
    ],
    ids=["a greeting", "a depth", "a kind of before 0.1.0", "more than a message"],
)
def test_what_is_no_message_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        decode(data)
