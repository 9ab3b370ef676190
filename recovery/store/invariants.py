"""What must be so of the store on disk: its segments, and the queue state beside its meta (``txobserver.invariants``).

Threads of the store check their own part, right behind what they have written. Nothing is read for it but what LMDB
keeps at the head of its tables, and after every ``DEEP_EVERY``-th checkpoint a state of up to ``WALKED`` messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from recovery.store.open_segment import OpenSegment
from txobserver.event_invariants import check_frame
from txobserver.frames import Frame
from txobserver.ids import LAST_GENERATION, LAST_SEQUENCE, Position
from txobserver.invariants import rises
from txobserver.ports.store import Checkpoint, Meta

SMALLEST_FRAME = 50
"""Bytes: its header, an empty array and the trailer."""


def check_log(
    firsts: Sequence[int],
    tail: Position,
    index: Mapping[int, Sequence[tuple[int, int]]],
    log: OpenSegment | None,
    cuts: int,
) -> None:
    """A log's segments by their first sequences, what is known of where frames stand, and the one that is written."""
    assert 0 <= tail.sequence <= LAST_SEQUENCE, f"P7: the log ends at {tail}"
    assert 0 <= tail.generation <= LAST_GENERATION, f"P10: the log ends at {tail}"
    assert cuts >= 0, f"P6: the log was cut {cuts} times"
    assert rises(firsts), f"P7: the segments begin at {firsts}"
    assert firsts or log is None, "P11: a segment is written that the log does not have"
    assert index.keys() <= set(firsts), f"P7: the offsets of frames are known in {sorted(index.keys() - set(firsts))}"
    if firsts:
        assert firsts[0] >= 1, f"P7: the log begins at {firsts[0]}"
        assert firsts[-1] <= tail.sequence + 1, f"P7: a segment begins at {firsts[-1]}, and the log ends at {tail}"
    for first, known in list(index.items())[-2:]:
        assert rises(sequence for sequence, _ in known), f"P7: the index of segment {first} is not in order"
        assert rises(offset for _, offset in known), f"P7: the index of segment {first} goes back"
        if known:
            assert known[0][0] >= first, f"P7: segment {first} is said to hold {known[0][0]}"
            assert known[0][1] > 0, f"P7: a frame of segment {first} stands at its header"
            assert known[-1][0] <= tail.sequence, f"P11: {known[-1][0]} is in the index, and the log ends at {tail}"
    if log is not None:
        check_open(log, firsts[-1], index.get(firsts[-1], ()))


def check_open(log: OpenSegment, first: int, known: Sequence[tuple[int, int]]) -> None:
    """The segment that is written."""
    assert log._path.stem.lstrip("0") == str(first), f"P7: {log._path} is written as the segment of {first}"
    assert log.size > 0, f"P11: {log._path} is written without a header"
    assert log._descriptor >= 0, f"P11: {log._path} is not open"
    last = known[-1][1] if known else 0
    assert last < log.size, f"P11: a frame of {log._path} is said to stand at {last} of {log.size}"


def check_group(frames: Sequence[Frame], before: Position, tail: Position) -> None:
    """What has been written and synced in one go."""
    end = before
    for frame in frames:
        check_frame(frame)
        assert frame.first == end.sequence + 1, f"P7: the frame at {frame.first} was written behind {end}"
        assert frame.generation >= end.generation, f"P10: generation {frame.generation} was written behind {end}"
        assert len(frame.data) >= SMALLEST_FRAME, f"P11: a frame of {len(frame.data)} bytes was written"
        end = frame.position
    assert tail == end, f"P11: {end} was written, and the log is said to end at {tail}"


def check_cut(last: int, tail: Position, asked: Position) -> None:
    """A log that was cut behind a sequence."""
    assert tail.sequence <= last, f"P6: the log was cut behind {last}, and ends at {tail}"
    assert tail == asked or tail.sequence < last, f"P6: the log was cut to {asked}, and ends at {tail}"


def check_begun(before: Position, tail: Position, firsts: Sequence[int]) -> None:
    """A log that was begun anew."""
    assert tail == before, f"P7: the log was begun behind {before}, and ends at {tail}"
    assert list(firsts) == [before.sequence + 1], f"P7: the log was begun behind {before}, and begins at {firsts}"


def check_meta(meta: Meta, checkpoint: Checkpoint) -> None:
    """What the state says of itself is what was to be written."""
    written = checkpoint.meta
    assert meta.applied == written.applied, f"P7: a checkpoint at {written.applied} says that it is at {meta.applied}"
    assert meta.history == written.history, f"P10: a checkpoint of {written.history} says {meta.history}"
    assert meta.resyncing == written.resyncing, "P9: a checkpoint does not say whether it is being overwritten"
    assert meta.outcomes == written.outcomes, "P7: a checkpoint remembers other outcomes than were written"
    assert meta.summaries == written.summaries, "P7: a checkpoint counts other messages than were written"
    assert meta.configuration == written.configuration, "P7: a checkpoint declares something else than was written"
    assert meta.access == written.access, "P7: a checkpoint lets other users in than were written"
    for one, other in pairwise(meta.history):
        assert one.generation < other.generation, f"P10: generation {other} follows {one}"
        assert one.sequence < other.sequence, f"P10: generation {other} begins before {one}"


def check_counts(meta: Meta, entries: int, outcomes: int, transactions: int, open_events: int) -> None:
    """How many keys LMDB has in each table, beside what ``meta`` and the sums count."""
    counted = sum(each.count for each in meta.summaries.values())
    assert open_events == transactions, f"P1: {transactions} events of open transactions, and {open_events} are counted"
    assert open_events >= 0, f"P1: {open_events} events of open transactions are counted"
    if not meta.resyncing:
        assert entries == counted, f"P7: the queue state holds {entries} messages, and counts {counted}"
        remembered = meta.outcomes.count
        assert outcomes == remembered, f"P7: the queue state holds {outcomes} outcomes, and counts {remembered}"


def check_order(before: Meta, checkpoint: Checkpoint) -> None:
    """A checkpoint takes the place of an earlier one: only that of a copy may be of another stream."""
    applied = checkpoint.meta.applied
    later = before.resyncing or before.applied <= applied
    assert later, f"P6: a checkpoint at {applied} takes the place of one at {before.applied}"
    known = (
        before.resyncing
        or checkpoint.meta.resyncing
        or before.history == checkpoint.meta.history[: len(before.history)]
    )
    assert known, f"P6: a checkpoint of {checkpoint.meta.history} takes the place of one of {before.history}"
    for queue, changed in checkpoint.changes.items():
        assert queue >= 1, f"P5: a checkpoint changes queue {queue}"
        assert all(offset >= 0 for offset in changed), f"P8: a checkpoint puts a message of queue {queue} at no offset"
