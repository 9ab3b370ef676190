"""The contents of queues while a checkpoint of what was there before is being written."""

from __future__ import annotations

from txobserver.contents import Contents
from txobserver.events import Message
from txobserver.places import Places
from txobserver.store import MemoryBase, Meta


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
    assert contents.ids(1) == contents.ids_page(1, -1, 10) == [(2, 2)]
    contents.thaw()
    assert contents.ids(1) == contents.ids_page(1, -1, 10) == [(2, 2)]


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
