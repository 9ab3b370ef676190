"""Rows of a log: nothing of an event is lost, and a range that begins anywhere says what the whole says of it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.pipeline import node
from recovery.pipeline.node import commit_point, node_table, rows_of
from recovery.pipeline.rows.builder import QueueNames, RowBuilder
from recovery.pipeline.rows.events import events_of
from recovery.pipeline.rows.message_ids import message_ids
from recovery.pipeline.rows.numbering import UNKNOWN
from recovery.pipeline.schema import ARROW, KINDS
from recovery.pipeline.selection import ColumnCondition, Selection
from recovery.reader.node_log import NodeLog
from recovery.store.lmdb_state import LmdbState
from tests.recovery.pipeline.events import BRANCH, EACH, EVENT, NAMED, PLAIN, STORY, message, write_node
from tests.support.examples import examples
from txobserver.configuration import Configuration, QueueSpec
from txobserver.events import (
    Delivered,
    Event,
    Message,
    Publish,
    TxOpen,
    TxPrepare,
)
from txobserver.frames import Frame, encode_frame
from txobserver.ids import Position
from txobserver.ports.store import Checkpoint, Meta


def built(frames: list[list[Event]]) -> list[pa.RecordBatch]:
    builder, first, batches = RowBuilder("n1", QueueNames(), lambda tx: UNKNOWN), 1, []
    for events in frames:
        batches += builder.add(encode_frame(3, first, events, 1000 + first))
        first += len(events)
    return [*batches, *builder.take()]


@examples(300)
@given(st.lists(st.lists(EVENT, min_size=1, max_size=4), max_size=4))
def test_events_come_back_as_they_were(frames: list[list[Event]]) -> None:
    batches = built(frames)
    assert all(batch.schema == ARROW for batch in batches)
    found = list(events_of(batches))
    firsts = [1 + sum(map(len, frames[:at])) for at in range(len(frames))]
    assert [each.event for each in found] == [event for events in frames for event in events]
    assert [each.position for each in found] == [Position(3, at + 1) for at in range(sum(map(len, frames)))]
    assert [each.time_ms for each in found] == [
        1000 + first for first, events in zip(firsts, frames, strict=True) for _ in events
    ]


@examples(5)
@given(st.tuples(*EACH.values()))
def test_every_kind_of_event_is_drawn_and_has_a_kind(drawn: tuple[Event, ...]) -> None:
    assert set(EACH) == set(get_args(Event))
    assert {row for batch in built([list(drawn)]) for row in batch["kind"].to_pylist()} == set(KINDS)


@pytest.mark.parametrize("missing", [0, 1])
def test_rows_that_are_missing_are_noticed(missing: int) -> None:
    table = pa.Table.from_batches(built([[Publish(1, (1, 2), message("a"))]]))
    with pytest.raises(ValueError, match=r"lacks rows|came after"):
        list(events_of(pa.concat_tables([table.slice(0, missing), table.slice(missing + 1), table.slice(0, 1)])))


@pytest.mark.parametrize("kept", [1, node.KEPT_BEHIND])
def test_a_range_that_begins_anywhere_says_what_the_whole_says(
    tmp_path: Path, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it stands so far behind that nothing more is kept of it."""
    monkeypatch.setattr(node, "KEPT_BEHIND", kept)
    write_node(tmp_path, STORY, segment_bytes=380)
    whole = node_table(tmp_path).to_pylist()
    assert len(list((tmp_path / "log").iterdir())) > 2
    assert [(row["xid"], row["number"]) for row in whole if row["transaction"] == BRANCH] == [
        ("7:g%2F1:", number) for number in range(4)
    ]
    assert [(row["xid"], row["number"]) for row in whole if row["transaction"] == NAMED] == [
        (None, 0),
        *(("token:my%2Ftoken", number) for number in range(1, 5)),
    ]
    assert [row["number"] for row in whole if row["transaction"] == PLAIN] == [0, 1, 1, 2, 2, 3, 4]
    end = whole[-1]["position"]
    for first in range(1, end + 1):
        for last in (first, end):
            rows = [row for batch in rows_of(NodeLog(tmp_path), "n1", first, last) for row in batch.to_pylist()]
            assert rows == [row for row in whole if first <= row["position"] <= last]


def test_what_is_left_out_by_its_time_still_counts(tmp_path: Path) -> None:
    """Of a transaction that goes on behind frames that are not read."""
    write_node(tmp_path, STORY)
    whole = node_table(tmp_path).to_pylist()
    for moment in {row["time"] for row in whole}:
        later = Selection((ColumnCondition("time", ">=", moment),))
        rows = [row for b in rows_of(NodeLog(tmp_path), "n1", 1, node.END, None, later) for row in b.to_pylist()]
        assert rows == [row for row in whole if row["time"] >= moment]


def test_what_stands_behind_is_read_once(tmp_path: Path) -> None:
    """However many transactions are open where a range begins."""
    opened, number = 300, 40
    transactions = range(1, number + 1)
    quiet: list[list[Event]] = [[Delivered(1, 1)] for _ in range(opened)]
    opens: list[Event] = [TxOpen(each) for each in transactions]
    write_node(tmp_path, [opens, *quiet, [TxPrepare(each, 0, []) for each in transactions]])
    read = []

    class Counted(NodeLog):
        def backwards(self, before: int) -> Iterator[Frame]:
            for frame in super().backwards(before):
                read.append(frame)
                yield frame

    batches = rows_of(Counted(tmp_path), "n1", number + opened + 1, node.END)
    assert [number for batch in batches for number in batch["number"].to_pylist()] == [1] * number
    assert len(read) == opened + 1


def test_what_the_log_no_longer_says_is_null(tmp_path: Path) -> None:
    write_node(tmp_path, STORY[2:], first=7)
    rows = node_table(tmp_path).to_pylist()
    assert {row["number"] for row in rows if row["transaction"] in (PLAIN, BRANCH)} == {None}
    assert [row["number"] for row in rows if row["transaction"] == NAMED] == [0, 1, 2, 3, 4]
    assert {row["queue"] for row in rows if row["queue_id"] is not None} == {None}


def test_the_state_knows_names_that_the_log_has_lost(tmp_path: Path) -> None:
    write_node(tmp_path, STORY[2:], first=7)
    configuration = Configuration(2, {"q": QueueSpec(1, "q", False, {})})
    state = LmdbState(tmp_path / "state")
    state.write(Checkpoint(Meta(Position(1, 11), configuration=configuration), {}, [], [], []))
    state.close()
    rows = node_table(tmp_path).to_pylist()
    assert {(row["queue_id"], row["queue"]) for row in rows if row["queue_id"]} == {(1, "q"), (2, None)}
    assert commit_point(tmp_path) == 11
    assert node_table(tmp_path, "commit").to_pylist() == [row for row in rows if row["position"] <= 11]


def test_a_log_without_a_checkpoint_has_no_sure_part(tmp_path: Path) -> None:
    write_node(tmp_path, STORY)
    assert commit_point(tmp_path) == 0
    assert node_table(tmp_path, "commit").num_rows == 0


def test_batches_are_bounded_and_lose_nothing() -> None:
    large = [Publish(each, (1, 2), Message("", "q", b"\0\0", bytes(3 << 20))) for each in range(20)]
    many: list[Event] = [Delivered(1, each) for each in range(25_000)]
    batches = built([list(large), many])
    assert max(batch.nbytes for batch in batches) < 30 << 20
    assert max(batch.num_rows for batch in batches) <= 10_000
    assert [each.event for each in events_of(batches)] == [*large, *many]


def _properties(values: dict[str, Any]) -> bytes:
    from pamqp.commands import Basic

    return bytes(Basic.Properties(**values).marshal())


def test_the_message_id_is_found_beside_any_other_property() -> None:
    every = {
        "content_type": "text/plain",
        "content_encoding": "utf-8",
        "headers": {"a": [1, {"b": "c"}]},
        "delivery_mode": 2,
        "priority": 3,
        "correlation_id": "corr",
        "reply_to": "reply",
        "expiration": "60000",
        "timestamp": None,
        "app_id": "app",
    }
    chance = random.Random(5)
    for _ in range(200):
        chosen = {name: value for name, value in every.items() if value and chance.random() < 0.5}
        whole = _properties({**chosen, "message_id": "the-id"})
        given = [_properties(chosen), whole, *(whole[:length] for length in range(len(whole)))]
        ends = np.cumsum([len(each) for each in given])
        data, begins = b"".join(given), ends - [len(each) for each in given]
        begins, ends, _there = message_ids(data, begins, ends)
        found = [data[begin:end] for begin, end in zip(begins, ends, strict=True)]
        assert found[:2] == [b"", b"the-id"]
        # cut behind it, it is there; cut within it or before, it is not
        assert found[2:] == [b"the-id" * (b"the-id" in each) for each in given[2:]]
