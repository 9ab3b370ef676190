"""Messages between a node and its host broker: they come back as they were, and any other bytes are a ValueError."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_plugin.host import from_broker, from_node, wire
from tests.support.examples import examples
from txobserver.configuration import Configuration, queue_step
from txobserver.events import Message
from txobserver.outcomes import BranchOutcome, PreparedBranch
from txobserver.ports.store import QueueSummary
from txobserver.xid import Xid

pytestmark = pytest.mark.fuzz

MESSAGE = Message("x", "k", b"p", b"body")
XID = Xid(1, b"g", b"b")
BRANCH = PreparedBranch(XID, 9, 2, 1000, {3: 1}, {3: [(4, 5)]})
CONFIGURATION = Configuration()
CONFIGURATION.apply(msgspec.structs.replace(queue_step("q", False, {"x": 1}), config_id=1))
FROM_BROKER: list[from_broker.FromBroker] = [
    from_broker.Attach(1, "tiny", "127.0.0.1", 5672),
    from_broker.AskConfigure(1, 2, queue_step("q", False, {})),
    from_broker.AskPublish(1, 0, [1, 2], MESSAGE),
    from_broker.AskSettle(1, 0, 1, [(2, 3)], 1),
    from_broker.AskPurge(1, 2, 1, 9, [(2, 3)]),
    from_broker.AskWatermark(1, 0, 1, 9),
    from_broker.GrantCredit(1, 0, 1, 9, 3),
    from_broker.AskPage(1, 2, 1, -1, 10, 1000),
    from_broker.AskMessages(1, 2, 1, [3, 4], 1000),
    from_broker.BeginWork(1, 2, 3, b"token"),
    from_broker.BeginWork(1, 2, 3, None, XID),
    from_broker.NameWork(1, 2, 3, b"token"),
    from_broker.EnqueueWork(1, 0, 3, [1], MESSAGE),
    from_broker.DequeueWork(1, 0, 3, 1, [(2, 3)], 2),
    from_broker.EndWork(1, 2, 3, from_broker.WorkEnd.PREPARE),
    from_broker.DecideBranch(1, 2, XID, True, False),
    from_broker.ForgetBranch(1, 2, XID),
    from_broker.DecideGlobal(1, 2, 0, b"g", True),
    from_broker.ForgetGlobalDecision(1, 2, 0, b"g"),
    from_broker.AskBranch(1, 2, XID, 7),
    from_broker.AskToken(1, 2, b"token", 7),
    from_broker.AskGlobal(1, 2, 0, b"g"),
]
FROM_NODE: list[from_node.FromNode] = [
    from_node.Welcome(1, "c", "n"),
    from_node.Activated(1, 7, CONFIGURATION, {1: QueueSummary(2, 3, 4)}, [BRANCH]),
    from_node.Deactivated(1, "why"),
    from_node.LeaseUntil(12.5),
    from_node.StepConfigured(queue_step("q", False, {}), 3, ["x"], ""),
    from_node.MessageEnqueued(1, 2, 3, MESSAGE),
    from_node.MessagesRemoved(1, [(2, 3)], 1),
    from_node.QueuePurged(1, 9, [2], 4),
    from_node.WatermarkRaised(1, 9),
    from_node.BranchPrepared(BRANCH),
    from_node.BranchEnded(BRANCH, True),
    from_node.Answer(2, "why", True, 7),
    from_node.PageRead(2, [(3, 4, MESSAGE)], 9),
    from_node.MessagesArriving(1, 2),
    from_node.OutcomeTold(2, BranchOutcome.COMMITTED, BranchOutcome.UNKNOWN),
]


def test_there_is_one_of_each_kind() -> None:
    assert {type(each) for each in FROM_BROKER} == set(get_args(from_broker.FromBroker))
    assert {type(each) for each in FROM_NODE} == set(get_args(from_node.FromNode))


@pytest.mark.parametrize("message", FROM_BROKER + FROM_NODE, ids=lambda m: type(m).__name__)
def test_they_come_back_as_they_were(message: Any) -> None:
    decode = wire.decode_from_broker if message in FROM_BROKER else wire.decode_from_node
    buffer = bytearray(wire.framed(message) * 2 + b"\0")
    found = [decode(data) for data in wire.messages_in(buffer, wire.MAX_MESSAGE)]
    assert [type(each) for each in found] == [type(message)] * 2
    assert [wire.framed(each) for each in found] == [wire.framed(message)] * 2
    assert buffer == b"\0"


@examples(300)
@given(st.binary(max_size=80) | st.builds(lambda tag, rest: bytes((0x93, tag)) + rest, st.integers(0, 30), st.binary()))
def test_any_bytes_are_a_message_or_a_value_error(data: bytes) -> None:
    for decode in (wire.decode_from_broker, wire.decode_from_node):
        try:
            decode(data)
        except ValueError:
            continue


def test_nesting_that_is_too_deep_is_a_value_error() -> None:
    with pytest.raises(ValueError):
        wire.decode_from_broker(b"\x91" * 100_000)


def test_a_message_that_is_too_long_is_refused_before_it_has_come() -> None:
    with pytest.raises(ValueError, match="a message of 513 bytes, and 512 are the most"):
        list(wire.messages_in(bytearray(wire.LENGTH.pack(513)), wire.MAX_ATTACH))
