"""A page that a thread reads while its queue changes: what is shown of it is in the queue, and all of that."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from txobserver.events import Message
from txobserver.ids import Position
from txobserver.ports.store import Above, At, Checkpoint, Entry, MemoryBase, Meta, Page
from txobserver.state.contents import Contents
from txobserver.state.page_reading import PageReading

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["insert"] * 4 + ["remove"] * 3 + ["purge", "drop", "freeze", "written"] + ["begin", "read", "end"] * 2
        ),
        st.integers(0, 1000),
    ),
    max_size=60,
)


def message(body: bytes = b"m") -> Message:
    return Message("", "q", b"", body)


class Underway(NamedTuple):
    """A reading, and what was in the queue when it began."""

    reading: PageReading
    after: int
    there: set[int]


class Course:
    """A queue beside a model of it, its checkpoints, and one reading at a time."""

    def __init__(self) -> None:
        self.base = MemoryBase()
        self.contents = Contents(self.base, Meta())
        self.contents.queues.add(1)
        self.model: dict[int, int] = {}
        self.offset = 0
        self.frozen: Checkpoint | None = None
        self.underway: Underway | None = None
        self.page: Page | None = None
        self.emptied = False

    def insert(self, number: int) -> None:
        self.offset += 1
        self.model[self.offset] = number
        self.contents.queues.insert(1, self.offset, number, message(bytes(number % 4)))

    def remove(self, number: int) -> None:
        if self.model:
            offset = list(self.model)[number % len(self.model)]
            assert self.contents.queues.remove(1, offset, self.model.pop(offset))

    def purge(self, number: int) -> None:
        spared = [offset for offset in self.model if offset % 3 == number % 3]
        rids = {offset: self.model[offset] for offset in spared}
        self.contents.queues.purge(1, self.offset, spared, rids if number % 2 else {})
        self.model = {offset: self.model[offset] for offset in spared}
        self.emptied = True

    def drop(self, number: int) -> None:
        self.contents.queues.drop(1)
        self.contents.queues.add(1)
        self.model, self.emptied = {}, True

    def freeze(self, number: int) -> None:
        if self.frozen is None:
            changes, dropped = self.contents.freeze()
            self.frozen = Checkpoint(self.contents.meta([Position(1, 1)]), changes, dropped, [], [])

    def written(self, number: int) -> None:
        """The base changes first, and that is heard of later."""
        if self.frozen is not None and number % 2:
            self.base.write(self.frozen)
        if self.frozen is not None and not number % 2:
            self.base.write(self.frozen)
            self.contents.thaw()
            self.frozen = None

    def begin(self, number: int) -> None:
        if self.underway is None:
            after = number % (self.offset + 1) - 1
            reading = self.contents.messages.begin_reading(1, after)
            self.underway, self.emptied = Underway(reading, after, set(self.model)), False

    def read(self, number: int) -> None:
        if self.underway is not None and self.page is None:
            asked = Above(1, self.underway.after, number % 5 + 1, number % 7)
            self.page = self.base.read(self.underway.reading.asked_of_base(asked))

    def end(self, number: int) -> None:
        if self.underway is None or self.page is None:
            return
        reading, after, there = self.underway
        shown = [(offset, entry.rid) for offset, entry in reading.shown(self.page)]
        through = reading.through(self.page)
        offsets = [offset for offset, _ in shown]
        assert offsets == sorted(set(offsets)) and all(offset > after for offset in offsets)
        assert not through or all(offset <= through for offset in offsets), "what stands between would be passed over"
        assert dict(shown).items() <= self.model.items(), "what is not in the queue is shown"
        missing = {offset for offset in self.model if offset > after} - set(offsets)
        if self.emptied:
            assert not shown and not through
        elif through:
            assert not any(offset <= through for offset in missing), "something is left out"
        else:
            assert not missing & there, "something is left out"
        self.contents.messages.end_reading(reading)
        self.underway = self.page = None


@examples(400)
@given(STEPS)
def test_what_is_shown_of_a_page_is_what_is_in_the_queue(steps: list[tuple[str, int]]) -> None:
    course = Course()
    for step, number in steps:
        getattr(course, step)(number)
        course.contents.leftovers.go_on()
    course.read(3)
    course.end(0)
    assert not course.contents.layers.readings


def checkpointed(contents: Contents, base: MemoryBase) -> None:
    changes, dropped = contents.freeze()
    base.write(Checkpoint(contents.meta([]), changes, dropped, [], []))
    contents.thaw()


def filled(*offsets: int) -> tuple[Contents, MemoryBase]:
    """A queue with these messages, in a checkpoint."""
    base = MemoryBase()
    contents = Contents(base, Meta())
    contents.queues.add(1)
    for offset in offsets:
        contents.queues.insert(1, offset, offset, message())
    checkpointed(contents, base)
    return contents, base


def test_consumed_while_its_page_is_read() -> None:
    """Also where the removal is in a checkpoint when the page is shown, and no layer knows of it any more."""
    for late in (False, True):
        contents, base = filled(1, 2, 3)
        reading, page = contents.messages.begin_reading(1, -1), base.read(Above(1, -1, 9, 99))
        assert contents.queues.remove(1, 2, 2)
        if late:
            checkpointed(contents, base)
        assert [offset for offset, _ in reading.shown(page)] == [1, 3]


def test_consumed_behind_the_beginning_of_a_checkpoint_while_a_page_is_read() -> None:
    """What a layer held when the reading began is taken out in another layer, of which the reading knows nothing."""
    contents, base = filled(1)
    contents.queues.insert(1, 2, 2, message())
    reading, page = contents.messages.begin_reading(1, -1), base.read(Above(1, -1, 9, 99))
    contents.freeze()
    assert contents.queues.remove(1, 2, 2)
    assert [offset for offset, _ in reading.shown(page)] == [1]


def test_a_checkpoint_ends_while_a_page_is_read() -> None:
    """What was in a layer when the reading began, and in the base only behind the look at it, is not left out; nor is
    what a layer hid, and no layer hides any more, shown."""
    contents, base = filled(1, 2)
    contents.queues.insert(1, 3, 3, message())
    assert contents.queues.remove(1, 1, 1)
    reading, page = contents.messages.begin_reading(1, -1), base.read(Above(1, -1, 9, 99))
    checkpointed(contents, base)
    assert [offset for offset, _ in page.entries] == [1, 2]
    assert [offset for offset, _ in reading.shown(page)] == [2, 3]


def test_nothing_of_before_a_purge_counts() -> None:
    """Also where a checkpoint has brought the purge into the base, with what came behind it, when that is read."""
    for late in (False, True):
        contents, base = filled(1, 2, 3)
        contents.queues.purge(1, 3, [2])
        contents.queues.insert(1, 4, 4, message())
        reading = contents.messages.begin_reading(1, -1)
        if late:
            for offset in (5, 6):
                contents.queues.insert(1, offset, offset, message())
            checkpointed(contents, base)
        for asked in (reading.asked_of_base(Above(1, -1, 2, 99)), Above(1, -1, 9, 99)):
            page = base.read(asked)
            found = [offset for offset, _ in reading.shown(page)]
            assert (found, reading.through(page)) == ([2, 4, 5, 6] if late else [2, 4], 0)


def test_of_a_purged_queue_what_was_spared_is_asked_for() -> None:
    """And not what went, of which there may be a million messages; also where the rest waits for a checkpoint."""
    for late in (False, True):
        contents, base = filled(*range(1, 9))
        contents.queues.purge(1, 8, [2, 5, 6, 7], {offset: offset for offset in (2, 5, 6, 7)})
        contents.queues.insert(1, 9, 9, message())
        assert contents.queues.remove(1, 6, 6)
        reading = contents.messages.begin_reading(1, 2)
        assert contents.messages.begin_reading(2, 0).asked_of_base(Above(2, 0, 9, 9)) == Above(2, 0, 9, 9)
        asked = reading.asked_of_base(Above(1, 2, 1, 99))
        assert asked == At(1, (5, 6, 7), 99)
        if late:
            checkpointed(contents, base)
        page = base.read(asked)
        assert ([offset for offset, _ in reading.shown(page)], reading.through(page)) == ([5, 7, 9], 0)
        page = base.read(asked._replace(max_bytes=0))
        assert ([offset for offset, _ in reading.shown(page)], reading.through(page)) == ([5], 5)


def test_a_page_is_asked_for_while_the_checkpoint_of_a_purge_is_written() -> None:
    """Before it is in the base, and behind that: what went is neither asked for nor shown."""
    for late in (False, True):
        contents, base = filled(1, 2, 3)
        contents.queues.purge(1, 3, [2], {2: 2})
        contents.queues.insert(1, 4, 4, message())
        changes, dropped = contents.freeze()
        reading = contents.messages.begin_reading(1, -1)
        asked = reading.asked_of_base(Above(1, -1, 9, 99))
        if late:
            base.write(Checkpoint(contents.meta([]), changes, dropped, [], []))
            contents.thaw()
        page = base.read(asked)
        assert asked == At(1, (2,), 99) and [offset for offset, _ in reading.shown(page)] == [2, 4]


def test_nothing_that_a_checkpoint_on_its_way_holds_of_before_a_purge_counts() -> None:
    """Nor is what the base held then there to be taken out."""
    contents, base = filled(1, 2)
    contents.queues.insert(1, 3, 3, message())
    contents.freeze()
    contents.queues.purge(1, 3, [1])
    reading, page = contents.messages.begin_reading(1, -1), base.read(Above(1, -1, 9, 99))
    assert ([offset for offset, _ in reading.shown(page)], reading.through(page)) == ([1], 0)
    assert not contents.queues.remove(1, 2, 2) and not contents.queues.remove(1, 3, 3)
    assert contents.queues.summary(1).count == 1


def test_a_page_that_has_ended_shows_nothing_of_the_layers_behind_it() -> None:
    """What stands in the base between the two would be passed over."""
    contents, base = filled(1, 2, 3)
    contents.queues.insert(1, 4, 4, message())
    reading = contents.messages.begin_reading(1, -1)
    page = base.read(Above(1, -1, 2, 99))
    assert ([offset for offset, _ in reading.shown(page)], reading.through(page)) == ([1, 2], 2)


def test_a_page_ends_where_its_bytes_do() -> None:
    """Or behind one message."""
    _, base = filled(1, 2, 3)
    large = {offset: Entry(offset, message(bytes(10))) for offset in (1, 2, 3)}
    base.queues[1] = large
    for asked, offsets, more in (
        (Above(1, -1, 9, 30), [1, 2, 3], False),
        (Above(1, -1, 9, 29), [1, 2], True),
        (Above(1, -1, 9, 0), [1], True),
        (Above(1, -1, 2, 99), [1, 2], True),
        (Above(1, 2, 2, 0), [3], False),
        (At(1, (1, 3), 99), [1, 3], False),
        (At(1, (2, 3, 9), 19), [2], True),
        (At(1, (9,), 19), [], False),
    ):
        page = base.read(asked)
        assert ([offset for offset, _ in page.entries], page.more) == (offsets, more)


def test_a_layer_is_let_go_of_when_no_page_is_read_over_it() -> None:
    """``a_page_is_read_over_a_layer_that_is_let_go_of``: what came before the reading and is in no base yet would be
    left out. Where no page is read it goes at once, in pieces."""
    contents, base = filled(1)
    contents.leftovers.go_on()
    contents.queues.insert(1, 2, 2, message())
    readings = [contents.messages.begin_reading(1, -1) for _ in range(2)]
    page = base.read(Above(1, -1, 9, 99))
    checkpointed(contents, base)
    assert not contents.leftovers.waiting
    for number, reading in enumerate(readings):
        assert [offset for offset, _ in reading.shown(page)] == [1, 2]
        contents.messages.end_reading(reading)
        assert contents.leftovers.waiting == 2 * number, "the entry, and its offset"
    contents.queues.insert(1, 3, 3, message())
    checkpointed(contents, base)
    assert contents.leftovers.go_on() == 4
    contents.queues.insert(1, 4, 4, message())
    contents.queues.drop(1)
    assert contents.leftovers.waiting == 2
