"""Each kind of invariant of the store fails on a state that is broken on purpose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recovery.store import log as log_module
from recovery.store import open_segment
from recovery.store import store as store_module
from recovery.store.group_invariants import check_group_header
from recovery.store.groups import GroupHeader
from recovery.store.invariants import check_begun, check_counts, check_cut, check_group, check_meta, check_order
from recovery.store.lmdb_state import LmdbState
from recovery.store.log import Log
from recovery.store.retention import Retention
from tests.support.logs import Posts, frame, message, meta_of, open_log, open_store
from txobserver.ids import Position
from txobserver.invariants import CHECKS, InvariantBroken, checking
from txobserver.ports.store import Checkpoint, Entry, Meta, QueueSummary


def put(target: Any, **values: Any) -> None:
    for name, value in values.items():
        setattr(target, name, value)


LOG: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "an end before the last segment": ("P7", lambda log: put(log, tail=Position(1, 1))),
    "an end of no generation": ("P10", lambda log: put(log, tail=Position(-1, 12))),
    "segments out of order": ("P7", lambda log: log._segments.firsts.reverse()),
    "a segment that is not there": ("P11", lambda log: log._segments.firsts.clear()),
    "an index of no segment": ("P7", lambda log: log._segments._index.update({99: []})),
    "an index out of order": ("P7", lambda log: log._segments._index[log._segments.firsts[-1]].append((1, 1))),
    "an index beyond the end": (
        "P11",
        lambda log: log._segments._index[log._segments.firsts[-1]].append((99, 1 << 30)),
    ),
    "a segment without a header": ("P11", lambda log: put(log._open, size=0)),
    "another segment is written": ("P7", lambda log: put(log._open, _path=Path("00000000000000000099.log"))),
    "cut less than never": ("P6", lambda log: put(log, _cuts=-1)),
}


@pytest.mark.parametrize("kind", LOG)
def test_a_broken_log_is_found(kind: str, tmp_path: Path) -> None:
    promise, do = LOG[kind]
    log, _ = open_log(tmp_path / "log", 300)
    for number in range(4):
        log.append([frame(1 + 3 * number)])
    log.check_invariants()
    do(log)
    with pytest.raises(InvariantBroken) as found:
        log.check_invariants()
    assert found.value.promise == promise


META = Meta(Position(1, 5), [Position(1, 1)], summaries={1: QueueSummary(2, 3, 4)})
BACK = Checkpoint(Meta(Position(1, 4), [Position(1, 1)]), {}, [], [], [])
ONE = frame(1)
WRONG: dict[str, tuple[str, Callable[[], Any]]] = {
    "a frame behind a hole": ("P7", lambda: check_group([frame(5)], Position(1, 3), Position(1, 7))),
    "a generation that falls": ("P10", lambda: check_group([frame(1)], Position(2, 0), Position(1, 3))),
    "an end that was not written": ("P11", lambda: check_group([frame(1)], Position(1, 0), Position(1, 9))),
    "a frame that says less": ("P7", lambda: check_group([replace(ONE, count=2)], Position(1, 0), Position(1, 2))),
    "no group header": ("P11", lambda: check_group_header(None, 5, 5)),
    "a group of other bytes": ("P11", lambda: check_group_header(GroupHeader(5, 6, 0), 5, 5)),
    "a group elsewhere": ("P11", lambda: check_group_header(GroupHeader(6, 5, 0), 5, 5)),
    "a cut that was none": ("P6", lambda: check_cut(5, Position(1, 6), Position(1, 5))),
    "a cut to another position": ("P6", lambda: check_cut(5, Position(2, 5), Position(1, 5))),
    "a beginning elsewhere": ("P7", lambda: check_begun(Position(1, 5), Position(1, 6), [6])),
    "a beginning of two": ("P7", lambda: check_begun(Position(1, 5), Position(1, 5), [6, 7])),
    "another position": ("P7", lambda: check_meta(META, BACK)),
    "another history": ("P10", lambda: check_meta(META, BACK._replace(meta=Meta(META.applied)))),
    "not marked": (
        "P9",
        lambda: check_meta(META, BACK._replace(meta=Meta(META.applied, META.history, resyncing=True))),
    ),
    "other counts": ("P7", lambda: check_meta(META, BACK._replace(meta=Meta(META.applied, META.history)))),
    "more messages than counted": ("P7", lambda: check_counts(META, 3, 0, 0, 0)),
    "more outcomes than counted": ("P7", lambda: check_counts(META, 2, 1, 0, 0)),
    "more open events than counted": ("P1", lambda: check_counts(META, 2, 0, 1, 0)),
    "a checkpoint that goes back": ("P6", lambda: check_order(META, BACK)),
    "a checkpoint of another stream": (
        "P6",
        lambda: check_order(META, BACK._replace(meta=Meta(Position(2, 9), [Position(2, 1)]))),
    ),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_was_not_written_as_asked_is_found(kind: str) -> None:
    promise, do = WRONG[kind]
    with pytest.raises(InvariantBroken) as found, checking("a test"):
        do()
    assert found.value.promise == promise


def test_a_state_that_is_not_its_checkpoint_is_found(tmp_path: Path) -> None:
    state = LmdbState(tmp_path / "state")
    changes = {1: {offset: Entry(offset, message(f"{offset}")) for offset in range(1, 6)}}
    checkpoint = Checkpoint(meta_of(Position(1, 9), changes), changes, [], [], [])
    state.write(checkpoint)
    state.check_invariants(checkpoint)
    state.write(checkpoint._replace(meta=meta_of(Position(1, 9), {1: {}}), changes={}))
    with pytest.raises(InvariantBroken, match="P7: the queue state holds 5 messages, and counts 0"):
        state.check_invariants(checkpoint._replace(meta=meta_of(Position(1, 9), {1: {}})))
    state.close()


def test_a_hold_that_never_ends_is_found() -> None:
    retention = Retention(60.0, lambda: 1000.0, lambda: 50.0)
    retention.check_invariants()
    retention._held_until = 1e9
    with pytest.raises(InvariantBroken, match="P12"):
        retention.check_invariants()


CALLED_BY = {
    log_module: ("check_group", "check_cut", "check_begun"),
    open_segment: ("check_group_header",),
    store_module: ("check_order",),
    Log: ("check_invariants",),
    LmdbState: ("check_invariants",),
    Retention: ("check_invariants",),
}


@pytest.mark.parametrize("on", [True, False])
def test_what_is_written_is_checked_where_that_is_on(on: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the threads of the store, right behind each write; a node that does not ask for it pays nothing."""
    called: Counter[str] = Counter()
    for place, names in CALLED_BY.items():
        for name in names:
            said = f"{place.__name__.rpartition('.')[2]}.{name}"
            monkeypatch.setattr(place, name, lambda *words, said=said: called.update([said]))
    monkeypatch.setattr(CHECKS, "on", on)
    posts = Posts()
    store = open_store(tmp_path / "node", posts)
    called.clear()
    applied = Meta(Position(1, 3), [Position(1, 1)])
    for write in (
        lambda: store.append(frame(1), posts.done),
        lambda: store.append(frame(4), posts.done),
        lambda: store.checkpoint(Checkpoint(applied, {}, [], [], []), posts.done),
        lambda: store.truncate(3, Position(1, 3), posts.done),
        lambda: store.reset(Position(2, 9), posts.done),
    ):
        write()  # type: ignore[no-untyped-call]
        assert posts.wait() == [None]
    store.close()
    assert called == ({
        "log.check_group": 2, "open_segment.check_group_header": 2, "log.check_cut": 1, "log.check_begun": 1,
        "store.check_order": 1, "LmdbState.check_invariants": 1, "Retention.check_invariants": 1,
        "Log.check_invariants": 4,
    } if on else {})  # fmt: skip
