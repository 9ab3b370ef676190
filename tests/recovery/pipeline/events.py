"""Events of every kind, as hypothesis draws them, and logs of events for tests of the pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hypothesis import strategies as st

from recovery.store.identity import FORMAT_VERSION, Identity, create_identity
from recovery.store.lmdb_state import LmdbState
from recovery.store.log import Log
from recovery.store.segment import SegmentInfo
from txobserver import events as e
from txobserver.frames import encode_frame
from txobserver.ids import Position, generated_id, offset_of
from txobserver.ports.store import Checkpoint, Meta
from txobserver.xid import Xid

ID = st.integers(0, (1 << 63) - 1)
QUEUE = st.integers(1, (1 << 32) - 1)
NAME = st.text(max_size=8)
PART = st.binary(min_size=1, max_size=64)
FORMAT = st.integers(0, (1 << 31) - 1)
XID = st.builds(Xid, FORMAT, PART, st.binary(max_size=64))
PROPERTIES = st.binary(max_size=20) | st.just(b"\x00\x80\x02id")
MESSAGE = st.builds(e.Message, NAME, NAME, PROPERTIES, st.binary(max_size=40))
QUEUES = st.lists(QUEUE, max_size=3).map(tuple)
ENTRIES = st.lists(st.tuples(ID, ID), max_size=3)
REASON = st.sampled_from([int(each) for each in e.Removal])
TX = st.integers(0, 3)
AT = st.integers(0, 1 << 41)
TERMS = st.none() | st.builds(e.Terms, st.booleans(), st.lists(ID, max_size=3), st.booleans())
EACH: dict[type, st.SearchStrategy[e.Event]] = {
    e.GenerationStart: st.builds(e.GenerationStart, ID, NAME, st.lists(NAME, max_size=3)),
    e.Configure: st.builds(
        e.Configure, ID, NAME | st.sampled_from(["queue.declare", "queue.delete"]), NAME, st.binary(max_size=9), TERMS
    ),
    e.Publish: st.builds(e.Publish, ID, QUEUES, MESSAGE),
    e.Settle: st.builds(e.Settle, QUEUE, ENTRIES, REASON),
    e.Delivered: st.builds(e.Delivered, QUEUE, ID),
    e.Purge: st.builds(e.purge_of, QUEUE, ID, st.lists(st.tuples(ID, ID), max_size=3)),
    e.TxOpen: st.builds(e.TxOpen, TX),
    e.TxEnqueue: st.builds(e.TxEnqueue, TX, ID, QUEUES, MESSAGE),
    e.TxDequeue: st.builds(e.TxDequeue, TX, QUEUE, ENTRIES, REASON),
    e.TxPrepare: st.builds(e.TxPrepare, TX, QUEUE, st.lists(NAME, max_size=3)),
    e.TxDecision: st.builds(e.TxDecision, TX, st.booleans()),
    e.DtxOpen: st.builds(e.DtxOpen, TX, XID),
    e.DtxPrepare: st.builds(e.DtxPrepare, TX, QUEUE, st.lists(NAME, max_size=3), AT),
    e.DtxDecision: st.builds(e.DtxDecision, TX, st.booleans(), st.booleans(), AT),
    e.GlobalDecision: st.builds(e.GlobalDecision, FORMAT, PART, st.booleans(), AT),
    e.Forget: st.builds(e.Forget, XID),
    e.GlobalForget: st.builds(e.GlobalForget, FORMAT, PART),
    e.TxToken: st.builds(e.TxToken, TX, PART),
}
EVENT = st.one_of(*EACH.values())


def message(body: str, key: str = "q") -> e.Message:
    return e.Message("", key, b"\x00\x80" + bytes([len(body)]) + body.encode(), body.encode())


PLAIN, BRANCH, NAMED = (generated_id(1, count) for count in (1, 2, 3))
STORY: list[list[e.Event]] = [
    [
        e.GenerationStart(1, "n1", ["n1/i"]),
        e.Configure(1, "queue.declare", "q", b""),
        e.Configure(2, "queue.declare", "r", b""),
    ],
    [e.TxOpen(PLAIN), e.TxEnqueue(PLAIN, 1, (1, 2), message("a")), e.DtxOpen(BRANCH, Xid(7, b"g/1", b""))],
    [e.TxDequeue(PLAIN, 1, [(5, 6), (7, 8)], 1), e.TxEnqueue(BRANCH, 2, (1,), message("b")), e.Delivered(1, 9)],
    [e.DtxPrepare(BRANCH, 1, ["n1", "n2"], 5), e.TxOpen(NAMED), e.TxToken(NAMED, b"my/token")],
    [e.TxPrepare(PLAIN, 2, ["n1"]), e.TxDecision(PLAIN, True), e.Configure(3, "queue.delete", "r", b"")],
    [
        e.TxEnqueue(NAMED, 3, (1,), message("c")),
        e.DtxDecision(BRANCH, False, True, 6),
        e.Publish(4, (2, 1), message("d")),
    ],
    [e.TxPrepare(NAMED, 1, []), e.DtxDecision(NAMED, True, False, 7), e.Settle(1, [(offset_of(18), 4)], 1)],
]
"""Three transactions, interleaved: a plain one that commits, a branch that an operator rolls back, one with a token."""


def write_node(
    directory: Path,
    frames: Sequence[Sequence[e.Event]],
    node: str = "n1",
    *,
    first: int = 1,
    generation: int = 1,
    segment_bytes: int = 1 << 20,
    cluster: str = "c",
) -> None:
    """A node's directory with a log of these frames, the first event of which is ``first``; or more for its log.

    The time of a frame is the sequence of its first event, in seconds.
    """
    fresh = not (directory / "identity.json").exists()
    (directory / "log").mkdir(parents=True, exist_ok=True)
    if fresh:
        create_identity(directory, Identity(FORMAT_VERSION, cluster, node, "i"))
    log = Log(
        directory / "log", lambda at: SegmentInfo(cluster, node, "i", at, 0), segment_bytes, Position(0, first - 1)
    )
    if not fresh:
        list(log.recover(Position(0, 0)))
        first = log.tail.sequence + 1
    for events in frames:
        log.append([encode_frame(generation, first, list(events), first * 1000)])
        first += len(events)
    log.close()


def apply_up_to(directory: Path, sequence: int) -> None:
    """Let the last checkpoint of a node that is down stand at this event: so far nothing will be cut."""
    state = LmdbState(directory / "state")
    state.write(Checkpoint(Meta(Position(1, sequence)), {}, [], [], []))
    state.close()
