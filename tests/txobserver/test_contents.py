"""The contents of queues while a checkpoint of what was there before is being written."""

from __future__ import annotations

from collections.abc import Container

from txobserver.contents import Contents
from txobserver.events import Message
from txobserver.places import Places
from txobserver.store import Ids, MemoryBase, Meta


def test_a_purge_while_a_checkpoint_is_written_shows_nothing_of_before() -> None:
    """Neither while it is written nor afterwards; what was spared stays."""
    contents = Contents(MemoryBase(), Meta())
    assert contents.dirty_bytes == 0, "nothing waits for a checkpoint"
    contents.add_queue(1)
    for number in (1, 2, 3):
        contents.insert(1, number, number, Message("", "q", b"", b"m"))
    contents.freeze()
    assert contents.purge(1, 3, [2]) == 2
    assert contents.get(1, 1) is None and contents.get(1, 2) is not None
    assert contents.ids(1) == contents.ids_page(1, -1, 10).entries == [(2, 2)]
    contents.thaw()
    assert contents.ids(1) == contents.ids_page(1, -1, 10).entries == [(2, 2)]


def test_what_is_put_over_a_removed_message_and_removed_shows_nothing_of_before() -> None:
    """A copy of the queues does that, while a checkpoint of what was there before is being written."""
    contents = Contents(MemoryBase(), Meta())
    contents.add_queue(1)
    contents.insert(1, 5, 5, Message("", "q", b"", b"before"))
    contents.freeze()
    for body in (b"", b"again"):
        if body:
            contents.insert(1, 5, 6, Message("", "q", b"", body))
        assert contents.remove(1, 5, 6 if body else 5)
        assert contents.get(1, 5) is None and contents.ids(1) == []


def test_places_that_come_out_of_order_are_found_in_order() -> None:
    places = Places()
    for place, found in ((5, [5]), (3, [3, 5]), (4, [3, 4, 5]), (9, [3, 4, 5, 9])):
        places.add(place)
        assert list(places.above(0)) == found
    assert list(places.above(4)) == [5, 9]


def test_a_queue_that_is_dropped_is_not_known_and_begins_anew() -> None:
    contents = Contents(MemoryBase(), Meta())
    for _ in range(2):
        contents.add_queue(1)
        assert contents.knows(1) and contents.summary(1).count == 0 and contents.ids(1) == []
        contents.insert(1, 1, 1, Message("", "q", b"", b"m"))
        contents.drop_queue(1)
        assert not contents.knows(1)


def test_whether_a_queue_holds_more_than_is_spared_is_known_without_a_look_at_any_message() -> None:
    """Large ones that clients hold would be read from the disk in the event loop, and the lease would end meanwhile."""

    class Base(MemoryBase):
        def ids_page(self, queue: int, after: int, limit: int, hidden: Container[int] = ()) -> Ids:
            raise AssertionError("messages are looked at")

    base = Base()
    contents = Contents(base, Meta())
    contents.add_queue(1)
    for number in (1, 2, 3):
        contents.insert(1, number, number, Message("", "q", b"", b"m"))
    changes, _ = contents.freeze()
    base.queues[1] = {place: entry for place, entry in changes[1].items() if entry is not None}
    contents.thaw()
    assert contents.holds(1, [1, 2]) and not contents.holds(1, [1, 2, 3]) and not contents.holds(1, [3, 9, 2, 1])
    assert contents.holds(1, [1, 2, 9, 10]), "others are spared than are there"
    contents.remove(1, 3, 3)
    assert not contents.holds(1, [1, 2, 9]) and contents.holds(1, [2, 3])
    contents.insert(1, 4, 4, Message("", "q", b"", b"m"))
    assert contents.holds(1, [1, 2, 9]) and not contents.holds(1, [1, 2, 4])
