"""One message between nodes of each kind."""

from __future__ import annotations

from typing import Any

from ha.messages.attaching import AttachmentRefused, Follow, Granted, Join, Leave, Progress
from ha.messages.beats import Beat
from ha.messages.calls import (
    CallAppend,
    CallAsk,
    CallRefused,
    CallStanding,
    ControlAsk,
    ControlDone,
    CursorReport,
    CursorsAsk,
    CursorsTold,
    NodeCursor,
    SettleAsk,
    SettleUpTo,
    TicketAsk,
    TicketGranted,
    TicketReturned,
)
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
from ha.messages.election import ClientsClosed, HandoverRefused, HandoverRequest, Outdated, Probe, ProbeReply, Promoted
from ha.messages.greeting import Hello
from ha.messages.member_asks import MemberAsk, MemberTold
from ha.messages.steps import StepAsk, StepTold
from ha.messages.stream import Ack, Cancel, Commit, Entries
from txobserver.access import Access, User
from txobserver.calls import CallMark, CallRecord, KeptCall, KeptCalls
from txobserver.configuration import BindingSpec, Configuration, ExchangeSpec, QueueSpec
from txobserver.events import Message, TxDecision, TxEnqueue, TxOpen, TxPrepare
from txobserver.frames import encode_frame
from txobserver.ids import Member, Position
from txobserver.outcomes import Kind, OutcomesMeta, Remembered

TEXT = Message("", "q", b"\x00\x00", b"body")
POSITION = Position(1, 7)
CONFIGURATION = Configuration(1, {"q": QueueSpec(1, "q", False, {"a": [1, {"b": None}]})})
EXCHANGES = [ExchangeSpec("x", "direct", False, False, {})]
ID = bytes(16)
RECORD = CallRecord(ID, 1, "x", b"\x90", "a", 7, ["a/a1"], 100)
BINDINGS = [BindingSpec("x", "q", True, "k", {"a": 1})]
MESSAGES: list[Any] = [
    Hello(2, "test", "b", "127.0.0.1", 5672, "feed", 1, ["a", "b"]),
    Probe(1, 10_000),
    ProbeReply(1, 10_000, Member("b", "b1"), POSITION),
    Join(1, 900, Member("b", "b1"), [Position(1, 1)], POSITION, 5, False),
    AttachmentRefused(1, 800, "no"),
    Follow(1, 800, 3, 3),
    Entries(1, 800, 3, encode_frame(1, 8, [TxOpen(5), TxEnqueue(5, 1, (1,), TEXT), TxPrepare(5, 1, [])], 9).data),
    Commit(1, 800, 1 << 40),
    Ack(1, 800, 3),
    Cancel(1, 800, 5, "no"),
    Leave(1, 800, "no"),
    Granted(1, 800),
    ResyncBegin(1, 800, [Position(1, 1)], Position(1, 9)),
    QueueSnapshot(1, 800, 1, -1, 1 << 40, [(1 << 20, 1), (2 << 20, 2)]),
    Missing(1, 800, 1, [1 << 20]),
    QueueContent(1, 800, 1, [(1 << 20, 1, TEXT)]),
    QueueChange(1, 800, 1, [(1 << 20, 1, TEXT)], [(2 << 20, 2)]),
    ForwardTx(1, 800, 5, [(8, TxOpen(5)), (9, TxEnqueue(5, 1, (1,), TEXT)), (10, TxDecision(5, True))]),
    ForwardOutcomes(1, 800, [Remembered(Kind.HEURISTIC, 1, b"g", b"b", True, 7, 1000)]),
    SnapshotConfiguration(1, 800, list(CONFIGURATION.queues.values()), EXCHANGES, BINDINGS),
    SnapshotQueues(1, 800, [(1, 0, 0, 0)]),
    SnapshotEnd(1, 800, POSITION, [Position(1, 1)], 1, (1, 0, 0), [(5, 3)], OutcomesMeta()),
    Progress(1, 800, 3, True),
    Promoted(1),
    HandoverRequest(1, 800),
    Outdated(1),
    HandoverRefused(1, "no"),
    ClientsClosed(1, 2, 1, 0.5, True),
    SnapshotCalls(1, 800, 7, [KeptCall(1, POSITION, "level", RECORD)], KeptCalls(last=1, events=1)),
    SnapshotAccess(1, 800, 7, [User("u", "hash", ("t",), 1)], Access(events=1, last=1)),
    StepAsk(1, 3, "user.delete", "u", b""),
    StepTold(1, 3, None),
    MemberAsk(1, 3, "add", "d", "h", 5801),
    MemberTold(1, 3, None),
    MemberTold(1, 4, "there is no member d"),
    Beat(1, 200),
    TicketAsk(1, ID),
    TicketGranted(1, ID, 3, 1),
    CallRefused(1, ID, "no"),
    CallAppend(1, ID, 3, "level", 1, "x", b"\x90", 7),
    TicketReturned(1, ID),
    SettleAsk(1, ID),
    SettleUpTo(1, ID, 9),
    ControlAsk(1, ID, "call.skip", "b", 1),
    ControlDone(1, ID),
    CursorReport(1, Member("b", "b1"), CallMark(1, POSITION)),
    CallAsk(1, ID, 1, ["a/a1"]),
    CallStanding(1, ID, 1, [Member("a", "a1")], [Member("b", "b1")]),
    CursorsAsk(1, ID),
    CursorsTold(1, ID, [NodeCursor(Member("b", "b1"), True, CallMark(1, POSITION), 2, "no")]),
]
"""No node ever has so many attachments: 800 and above belong to none."""
