"""Messages in LMDB: read in pages and written in slices that are bounded by bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import txobserver.ports.store as store_module
import txobserver.state.messages as messages_module
from recovery.store import lmdb_entries, lmdb_state
from recovery.store.lmdb_state import LmdbState
from tests.recovery.store.test_lmdb_state import checkpoint
from tests.support.logs import message
from tests.support.operations import lines_of
from txobserver.ports.store import END, Above, At, Checkpoint, Ids, MemoryBase, Meta, QueueSummary
from txobserver.state.contents import Contents


def test_a_page_that_is_read_is_bounded_by_bytes(tmp_path: Path) -> None:
    """Or is one message. Whether there is more is said, also of the last page, which is just full."""
    state = LmdbState(tmp_path)
    state.write(checkpoint(*[(1, offset, "x" * 1000) for offset in (3, 5, 7)], (2, 4, "b")))
    for asked, offsets, more in (
        (Above(1, -1, 9, 4000), [3, 5, 7], False),
        (Above(1, -1, 9, 2900), [3, 5], True),
        (Above(1, -1, 9, 0), [3], True),
        (Above(1, -1, 2, 4000), [3, 5], True),
        (Above(1, 3, 2, 4000), [5, 7], False),
        (Above(1, 5, 9, 0), [7], False),
        (Above(1, 7, 9, 4000), [], False),
        (At(1, (3, 4, 7), 4000), [3, 7], False),
        (At(1, (5, 7), 1500), [5], True),
        (At(2, (3, 4), 0), [4], False),
    ):
        page = state.read(asked)
        assert ([offset for offset, _ in page.entries], page.more) == (offsets, more), asked
        assert all(entry == state.get(asked.queue, offset) for offset, entry in page.entries)
    assert [state.holds(1, offset) for offset in range(3, 6)] == [True, False, True] and not state.holds(3, 3)


def test_a_checkpoint_is_written_in_slices_of_bytes() -> None:
    """Forty-eight messages of 16 MiB were copied twice, and written in one call in which no other thread runs."""
    body, slices = "x" * (300 << 10), list[int]()
    changes = checkpoint(*[(1, offset, body) for offset in range(10)], deletes=((1, 3),)).changes[1]

    class Cursor:
        def putmulti(self, items: list[tuple[bytes, bytes]]) -> None:
            slices.append(len(items))

        def set_key(self, key: bytes) -> bool:
            return False

    cursor: Any = Cursor()
    lmdb_entries.write_changes(cursor, 1, changes)
    assert sum(slices) == 9 and max(slices) == lmdb_entries.SLICE_BYTES // len(body) + 1


def test_ids_of_large_messages_come_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each value that is looked at is read whole (``one_joiner_topples_every_primary``)."""
    monkeypatch.setattr(lmdb_entries, "IDS_BYTES", 5_000)
    state = LmdbState(tmp_path)
    state.write(checkpoint(*[(1, offset, "x" * 2_000) for offset in range(10)]))
    assert state.ids_page(1, -1, 100) == ([(0, 1000), (1, 1001), (2, 1002)], 2)
    assert state.ids_page(1, 2, 100, {3, 5}) == ([(4, 1004), (6, 1006), (7, 1007)], 7)
    assert state.ids_page(1, 6, 100) == ([(7, 1007), (8, 1008), (9, 1009)], END)
    monkeypatch.setattr(lmdb_entries, "IDS_BYTES", 1)
    assert state.ids_page(1, -1, 100) == ([(0, 1000)], 0), "one is looked at, however large it is"
    assert list(state.ids(1)) == [(offset, offset + 1000) for offset in range(10)]


class Asked(set[int]):
    """Places, and how often it was asked for one since the last look."""

    times = 0

    def __contains__(self, offset: object) -> bool:
        self.times += 1
        return super().__contains__(offset)


@pytest.mark.parametrize("kind", [LmdbState, MemoryBase])
def test_one_page_passes_over_what_has_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[LmdbState] | type[MemoryBase]
) -> None:
    """1.3 million settled messages in front of the rest held the event loop for most of a second: a page ends there."""
    for module in (lmdb_entries, store_module):
        monkeypatch.setattr(module, "IDS_PASSED", 10)
    state = LmdbState(tmp_path) if kind is LmdbState else MemoryBase()
    state.write(checkpoint(*[(1, offset, "x") for offset in range(100)]))
    gone = Asked({*range(5, 80), 90})
    pages, after = [], -1
    while after != END:
        gone.times = 0
        page = state.ids_page(1, after, 8, gone)
        assert page.through > after and gone.times <= 8 + 10 + 1
        pages.append(page)
        after = page.through
    assert pages[0] == ([(offset, offset + 1000) for offset in range(5)], 14) and pages[1] == ([], 24)
    assert [offset for page in pages for offset, _ in page.entries] == [*range(5), *range(80, 90), *range(91, 100)]


@pytest.mark.plain
def test_one_page_passes_over_what_has_gone_from_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What came and went since the checkpoint is passed over, too: in the layer that is being written and above it."""
    for module in (lmdb_entries, messages_module):
        monkeypatch.setattr(module, "IDS_PASSED", 50)
    costs: dict[int, list[int]] = {900: [], 9_000: []}
    for count, each in costs.items():
        state = LmdbState(tmp_path / str(count))
        state.write(checkpoint(*[(1, offset, "x") for offset in range(count // 3)]))
        meta = Meta(summaries={1: QueueSummary(count // 3, 0, -1)})
        contents = Contents(state, meta)
        for offset in range(count // 3, count):
            if offset == count * 2 // 3:
                contents.freeze()
            contents.queues.insert(1, offset, offset + 1000, message("x"))
        left = [count // 3, count * 2 // 3, count - 1]
        for offset in {*range(count)} - {*left}:
            contents.queues.remove(1, offset, offset + 1000)
        found: list[tuple[int, int]] = []
        pages = [Ids([], -1)]
        while pages[-1].more:
            each.append(lines_of(lambda: pages.append(contents.messages.ids_page(1, pages[-1].through, 10))))  # noqa: B023
            found += pages[-1].entries
        assert [offset for offset, _ in found] == left and len(pages) > count // 60
    assert max(costs[9_000]) < 1.1 * max(costs[900])


def test_a_purge_leaves_what_it_spared_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No value is looked at or written anew, by the purge or by the checkpoint behind it; other queues lose nothing."""
    state = LmdbState(tmp_path)
    contents = Contents(state, Meta())
    for queue in (1, 2, 3):
        contents.queues.add(queue)
        for offset in range(1, 9):
            contents.queues.insert(queue, offset, queue * 100 + offset, message("m"))

    def write() -> None:
        changes, dropped = contents.freeze()
        state.write(Checkpoint(contents.meta([]), changes, dropped, [], []))
        contents.thaw()

    write()
    with monkeypatch.context() as patched:
        for name in ("value_at", "values", "page_of"):
            patched.setattr(lmdb_state, name, None)
        for name in ("rid_of", "_encode"):
            patched.setattr(lmdb_entries, name, None)
        kept = {offset: 200 + offset for offset in (1, 4, 5, 8)}
        assert contents.queues.purge(2, (1 << 63) - 1, list(kept), kept) == 4
        contents.queues.drop(1)
        assert contents.queues.remove(2, 5, 205) and not contents.queues.remove(2, 6, 206)
        write()
    assert list(state.ids(2)) == contents.messages.ids(2) == [(1, 201), (4, 204), (8, 208)]
    assert not list(state.ids(1)) and len(list(state.ids(3))) == 8
    state.verify(state.load().meta)
    state.close()
