"""One message between nodes of each kind."""

from __future__ import annotations

from typing import Any

from ha.messages import wire
from txobserver.configuration import BindingSpec, Configuration, ExchangeSpec, QueueSpec
from txobserver.events import Message, TxDecision, TxEnqueue, TxOpen, TxPrepare
from txobserver.frames import encode_frame
from txobserver.ids import Member, Position
from txobserver.outcomes import Kind, OutcomesMeta, Remembered

TEXT = Message("", "q", b"\x00\x00", b"body")
POSITION = Position(1, 7)
CONFIGURATION = Configuration(1, {"q": QueueSpec(1, "q", False, {"a": [1, {"b": None}]})})
EXCHANGES = [ExchangeSpec("x", "direct", False, False, {})]
BINDINGS = [BindingSpec("x", "q", True, "k", {"a": 1})]
MESSAGES: list[Any] = [
    wire.Hello(1, "test", "b", "127.0.0.1", 5672),
    wire.Probe(1, 10_000),
    wire.ProbeReply(1, 10_000, Member("b", "b1"), POSITION),
    wire.Join(1, 900, Member("b", "b1"), [Position(1, 1)], POSITION, 5, False),
    wire.Refused(1, 800, "no"),
    wire.Follow(1, 800, 3, 3),
    wire.Entries(1, 800, 3, encode_frame(1, 8, [TxOpen(5), TxEnqueue(5, 1, (1,), TEXT), TxPrepare(5, 1, [])], 9).data),
    wire.Commit(1, 800, 1 << 40),
    wire.Ack(1, 800, 3),
    wire.Cancel(1, 800, 5, "no"),
    wire.Leave(1, 800, "no"),
    wire.Granted(1, 800),
    wire.ResyncBegin(1, 800, [Position(1, 1)], Position(1, 9)),
    wire.QueueSnapshot(1, 800, 1, -1, 1 << 40, [(1 << 20, 1), (2 << 20, 2)]),
    wire.Missing(1, 800, 1, [1 << 20]),
    wire.QueueContent(1, 800, 1, [(1 << 20, 1, TEXT)]),
    wire.QueueChange(1, 800, 1, [(1 << 20, 1, TEXT)], [(2 << 20, 2)]),
    wire.ForwardTx(1, 800, 5, [(8, TxOpen(5)), (9, TxEnqueue(5, 1, (1,), TEXT)), (10, TxDecision(5, True))]),
    wire.ForwardOutcomes(1, 800, [Remembered(Kind.HEURISTIC, 1, b"g", b"b", True, 7, 1000)]),
    wire.SnapshotConfiguration(1, 800, list(CONFIGURATION.queues.values()), EXCHANGES, BINDINGS),
    wire.SnapshotQueues(1, 800, [(1, 0, 0, 0)]),
    wire.SnapshotEnd(1, 800, POSITION, [Position(1, 1)], 1, (1, 0, 0), [(5, 3)], OutcomesMeta()),
    wire.Progress(1, 800, 3, True),
    wire.Promoted(1),
    wire.Handover(1, 800),
]
"""No node ever has so many attachments: 800 and above are nobody's."""
