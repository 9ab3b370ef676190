"""The contents of queues while a checkpoint of what was there before is being written."""

from __future__ import annotations

from collections.abc import Container, Iterator

import pytest

import txobserver.state.shown as shown_module
from txobserver.events import Message, Terms
from txobserver.ports.store import END, PAGE, Checkpoint, Dropped, Entry, Ids, MemoryBase, Meta
from txobserver.state.contents import Contents
from txobserver.state.offsets import Offsets


def test_a_purge_while_a_checkpoint_is_written_shows_nothing_of_before() -> None:
    """Neither while it is written nor afterwards; what was spared stays."""
    contents = Contents(MemoryBase(), Meta())
    assert contents.dirty_bytes == 0, "nothing waits for a checkpoint"
    contents.queues.add(1)
    for number in (1, 2, 3):
        contents.queues.insert(1, number, number, Message("", "q", b"", b"m"))
    contents.freeze()
    assert contents.queues.purge(1, 3, [2]) == 2
    assert contents.messages.get(1, 1) is None and contents.messages.get(1, 2) is not None
    assert contents.messages.ids(1) == contents.messages.ids_page(1, -1, 10).entries == [(2, 2)]
    contents.thaw()
    assert contents.messages.ids(1) == contents.messages.ids_page(1, -1, 10).entries == [(2, 2)]


def test_what_is_put_over_a_removed_message_and_removed_shows_nothing_of_before() -> None:
    """A copy of the queues does that, while a checkpoint of what was there before is being written."""
    contents = Contents(MemoryBase(), Meta())
    contents.queues.add(1)
    contents.queues.insert(1, 5, 5, Message("", "q", b"", b"before"))
    contents.freeze()
    for body in (b"", b"again"):
        if body:
            contents.queues.insert(1, 5, 6, Message("", "q", b"", body))
        assert contents.queues.remove(1, 5, 6 if body else 5)
        assert contents.messages.get(1, 5) is None and contents.messages.ids(1) == []


def test_places_that_come_out_of_order_are_found_in_order() -> None:
    offsets = Offsets()
    for offset, found in ((5, [5]), (3, [3, 5]), (4, [3, 4, 5]), (9, [3, 4, 5, 9])):
        offsets.add(offset)
        assert list(offsets.above(0)) == found
    assert list(offsets.above(4)) == [5, 9]


def test_a_queue_that_is_dropped_is_not_known_and_begins_anew() -> None:
    contents = Contents(MemoryBase(), Meta())
    for _ in range(2):
        contents.queues.add(1)
        assert contents.queues.knows(1) and contents.queues.summary(1).count == 0 and contents.messages.ids(1) == []
        contents.queues.insert(1, 1, 1, Message("", "q", b"", b"m"))
        contents.queues.drop(1)
        assert not contents.queues.knows(1)


class Unread(MemoryBase):
    """No message may be looked at, while ``closed``."""

    closed = False

    def _look(self) -> None:
        assert not self.closed, "a message is read from the store while everything waits"

    def get(self, queue: int, offset: int) -> Entry | None:
        self._look()
        return super().get(queue, offset)

    def page(self, queue: int, after: int, limit: int) -> list[tuple[int, Entry]]:
        found = super().page(queue, after, limit)
        if found:
            self._look()
        return found

    def ids(self, queue: int) -> Iterator[tuple[int, int]]:
        self._look()
        return super().ids(queue)


def stored(*offsets: int) -> tuple[Contents, Unread]:
    """A queue with messages at these offsets, in a checkpoint."""
    base = Unread()
    contents = Contents(base, Meta())
    contents.queues.add(1)
    for offset in offsets:
        contents.queues.insert(1, offset, offset + 100, Message("", "q", b"", b"%d" % offset))
    write(contents, base)
    return contents, base


def write(contents: Contents, base: MemoryBase) -> None:
    changes, dropped = contents.freeze()
    base.write(Checkpoint(contents.meta([]), changes, dropped, [], []))
    contents.thaw()


def test_a_purge_reads_what_it_spares() -> None:
    """Forty-eight messages of 16 MiB in a client's hands were read in the event loop, on every node, and were dirty."""
    contents, base = stored(*range(1, 100))
    contents.queues.insert(1, 100, 200, Message("", "q", b"", b"recent"))
    kept = {offset: offset + 100 for offset in range(2, 98, 2)}
    before, base.closed = contents.dirty_bytes, True
    assert contents.queues.purge(1, 1 << 62, [*kept, 500], {**kept, 500: 600}) == 100 - len(kept)
    assert contents.dirty_bytes == before, "what is spared is to be written anew"
    assert contents.messages.ids(1) == contents.messages.ids_page(1, -1, 100).entries == list(kept.items())
    assert contents.holds(1, Terms(True, list(kept)[1:])) and not contents.holds(1, Terms(True, list(kept)))
    assert contents.messages.recent(1, 2) is None and contents.messages.recent(1, 100) is None
    assert (
        contents.queues.remove(1, 4, 104)
        and not contents.queues.remove(1, 4, 104)
        and not contents.queues.remove(1, 3, 103)
    )
    del kept[4]
    assert contents.queues.purge(1, 1 << 62, [offset for offset in kept if offset > 50], kept) == 24
    kept = {offset: rid for offset, rid in kept.items() if offset > 50}
    write(contents, base)
    base.closed = False
    assert sorted(base.queues[1]) == list(kept) and contents.messages.ids(1) == list(kept.items())
    assert [(offset, entry.message.body) for offset, entry in contents.messages.page(1, 60, 2)] == [
        (62, b"62"),
        (64, b"64"),
    ]


def test_what_a_purge_spared_shows_while_checkpoints_come_and_go() -> None:
    """Of the base, of a checkpoint on its way, and of what came since: each before, while and after it is written."""
    contents, base = stored(1, 2, 3)
    contents.queues.insert(1, 4, 104, Message("", "q", b"", b"4"))
    changes, dropped = contents.freeze()
    first = Checkpoint(contents.meta([]), changes, dropped, [], [])
    contents.queues.insert(1, 5, 105, Message("", "q", b"", b"5"))
    shown = [(offset, offset + 100) for offset in (2, 4, 5)]
    assert contents.queues.purge(1, 1 << 62, [2, 4, 5, 9], dict(shown)) == 2
    assert contents.messages.ids(1) == shown == [(at, entry.rid) for at, entry in contents.messages.page(1, -1, 10)]
    base.write(first)
    assert contents.messages.ids(1) == shown == [(at, entry.rid) for at, entry in contents.messages.page(1, -1, 10)]
    contents.thaw()
    assert contents.messages.ids(1) == shown == [(at, entry.rid) for at, entry in contents.messages.page(1, -1, 10)]
    changes, dropped = contents.freeze()
    assert dropped == [Dropped(1, {2: 102})]
    assert contents.messages.ids(1) == shown == [(at, entry.rid) for at, entry in contents.messages.page(1, -1, 10)]
    assert not contents.holds(1, Terms(True, [2, 4, 5])) and not contents.queues.remove(1, 3, 103)
    base.write(Checkpoint(contents.meta([]), changes, dropped, [], []))
    contents.thaw()
    assert contents.messages.ids(1) == shown and {at: entry.rid for at, entry in base.queues[1].items()} == dict(shown)


def test_what_a_purge_spares_is_named_in_the_order_in_which_clients_hold_it() -> None:
    """What was given back and handed out again stands last in the event; it is found by its offset all the same."""
    contents, base = stored(*range(1, 10))
    assert contents.queues.purge(1, 1 << 62, [7, 9, 2, 4], {offset: offset + 100 for offset in (7, 9, 2, 4)}) == 5
    for _ in range(2):
        assert contents.messages.ids_page(1, 2, 2) == ([(4, 104), (7, 107)], 7)
        assert [offset for offset, _ in contents.messages.page(1, 4, 9)] == [7, 9]
        write(contents, base)


def test_what_was_spared_and_settled_since_fills_no_page_of_ids() -> None:
    """A page that holds nothing, with more behind it, would not say from where to go on."""
    contents, _ = stored(*range(1, 10))
    contents.queues.purge(1, 1 << 62, [2, 4, 6, 8], {offset: offset + 100 for offset in (2, 4, 6, 8)})
    assert contents.queues.remove(1, 2, 102) and contents.queues.remove(1, 4, 104)
    assert contents.messages.ids_page(1, -1, 2) == ([(6, 106), (8, 108)], END)
    assert contents.messages.ids_page(1, -1, 1) == ([(6, 106)], 6)


@pytest.mark.plain
def test_one_page_passes_over_what_a_purge_spared_and_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends there, and the next goes on: were it taken for the last one, a joiner's copy would lack the rest."""
    monkeypatch.setattr(shown_module, "IDS_PASSED", 3)
    contents, base = stored(*range(1, 60))
    spared = list(range(2, 60))
    contents.queues.purge(1, 1 << 62, spared, {offset: offset + 100 for offset in spared})
    gone = [*range(10, 30), *range(33, 35), *range(40, 55)]
    for offset in gone:
        assert contents.queues.remove(1, offset, offset + 100)
    left = [(offset, offset + 100) for offset in spared if offset not in gone]
    for limit in (1, 4, 100):
        found, page, pages = list[tuple[int, int]](), Ids([], -1), 0
        while page.more:
            before = page.through
            page = contents.messages.ids_page(1, before, limit)
            assert page.through > before and all(before < offset <= page.through for offset, _ in page.entries)
            found, pages = found + page.entries, pages + 1
        assert found == left and pages > len(gone) // 4
    write(contents, base)
    assert contents.messages.ids(1) == left


def test_what_a_purge_spares_was_handed_out_before() -> None:
    """So the next primary hands it out as redelivered (P3)."""
    contents, _ = stored(1, 2, 3)
    contents.queues.raise_watermark(1, 2)
    contents.queues.purge(1, 1 << 62, [1, 2], {1: 101, 2: 102})
    assert contents.queues.summary(1).watermark == 2


def test_a_purge_up_to_an_offset_leaves_what_stands_above_it() -> None:
    """However much that is."""
    contents, _ = stored(*range(1, 2 * PAGE + 10))
    assert contents.queues.purge(1, 3, [2], {2: 102}) == 2
    assert contents.messages.ids(1) == [(2, 102), *((offset, offset + 100) for offset in range(4, 2 * PAGE + 10))]


def test_a_purge_of_an_earlier_version_names_no_ids() -> None:
    """Those of what it spares are looked for; the digest is the same."""
    contents, _ = stored(1, 2, 3, 4)
    other, _ = stored(1, 2, 3, 4)
    assert contents.queues.purge(1, 3, [2]) == other.queues.purge(1, 3, [2], {2: 102}) == 2
    assert contents.queues.summary(1) == other.queues.summary(1)
    assert contents.messages.ids(1) == other.messages.ids(1) == [(2, 102), (4, 104)]


def test_whether_a_queue_holds_more_than_is_spared_is_known_without_a_look_at_any_message() -> None:
    """Large ones that clients hold would be read from the disk in the event loop, and the lease would end meanwhile."""

    class Base(MemoryBase):
        def ids_page(self, queue: int, after: int, limit: int, hidden: Container[int] = ()) -> Ids:
            raise AssertionError("messages are looked at")

    base = Base()
    contents = Contents(base, Meta())
    contents.queues.add(1)
    for number in (1, 2, 3):
        contents.queues.insert(1, number, number, Message("", "q", b"", b"m"))
    changes, _ = contents.freeze()
    base.queues[1] = {offset: entry for offset, entry in changes[1].items() if entry is not None}
    contents.thaw()
    assert (
        contents.holds(1, Terms(True, [1, 2]))
        and not contents.holds(1, Terms(True, [1, 2, 3]))
        and not contents.holds(1, Terms(True, [3, 9, 2, 1]))
    )
    assert contents.holds(1, Terms(True, [1, 2, 9, 10])), "others are spared than are there"
    contents.queues.remove(1, 3, 3)
    assert not contents.holds(1, Terms(True, [1, 2, 9])) and contents.holds(1, Terms(True, [2, 3]))
    contents.queues.insert(1, 4, 4, Message("", "q", b"", b"m"))
    assert contents.holds(1, Terms(True, [1, 2, 9])) and not contents.holds(1, Terms(True, [1, 2, 4]))


def test_whether_a_queue_holds_more_behind_what_clients_hold() -> None:
    """``deletion_if_empty_of_what_clients_hold``: what stands up to an offset is neither looked at nor counted."""
    contents, _ = stored(1, 2, 3)
    assert not contents.holds(1, Terms(True, through=3)) and contents.holds(1, Terms(True, through=2))
    contents.queues.insert(1, 9, 109, Message("", "q", b"", b"m"))
    assert contents.holds(1, Terms(True, through=3)) and not contents.holds(1, Terms(True, through=9))
    assert not contents.holds(1, Terms(True, [9], through=3))
    assert contents.queues.remove(1, 9, 109)
    assert not contents.holds(1, Terms(True, through=3))
