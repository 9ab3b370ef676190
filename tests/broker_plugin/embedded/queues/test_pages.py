"""Pages of a queue: bounded by bytes, read by another thread, and what becomes of one that comes late.

The schedules are those of ``one_consumer_topples_every_primary``: forty-eight messages, each as large as a page, held
the primary's event loop past its lease, and then the next primary's. Bytes and messages are counted, never time.
"""

from __future__ import annotations

from collections.abc import Callable, Container

import pytest

from broker_plugin.embedded.queues.durable_queue import DurableQueue
from broker_plugin.embedded.queues.windows import WindowLimits
from tests.broker_plugin.embedded.harness import Client, Harness, got, properties, queue_of
from tests.broker_plugin.embedded.local_ledger import LocalLedger
from txobserver.events import Message, Removal
from txobserver.message_size import size_of
from txobserver.ports.store import Above, Asked, At, Checkpoint, Entry, Ids, MemoryBase, Page, StoreDamaged

PAGE = 1000
LARGE = 48
SMALL = [b"%d" % number for number in range(20)]


def large(number: int) -> bytes:
    """A body of more bytes than a page."""
    return b"%04d" % number + bytes(PAGE)


class Watched(MemoryBase):
    """Says what is read of it at a time; nothing but its reader may read messages."""

    def __init__(self) -> None:
        super().__init__()
        self.pages: list[list[int]] = []
        self.lost: set[int] = set()

    def read(self, asked: Asked) -> Page:
        entries, more = super().read(asked)
        entries = [each for each in entries if each[0] not in self.lost]
        self.pages.append([len(entry.message.body) for _, entry in entries])
        return Page(entries, more)

    def get(self, queue: int, offset: int) -> Entry | None:
        raise AssertionError("a message is read from the store while everything waits")

    def page(self, queue: int, after: int, limit: int) -> list[tuple[int, Entry]]:
        assert not super().page(queue, after, limit), "a page is read from the store while everything waits"
        return []

    def ids_page(self, queue: int, after: int, limit: int, hidden: Container[int] = ()) -> Ids:
        found = super().ids_page(queue, after, limit, hidden)
        assert not found.entries, "messages are looked at in the store while everything waits"
        return found


def stored(*bodies: bytes, limits: WindowLimits | None = None) -> tuple[Harness, Watched]:
    """A new primary, with a queue of these messages in its queue state."""
    base = Watched()
    harness = Harness(limits or WindowLimits(4000, PAGE), LocalLedger(base=base))
    client = harness.client()
    client.declare("q")
    client.publish("q", *bodies)
    harness.settle()
    harness.take_over()
    base.pages.clear()
    return harness, base


def consumer(harness: Harness, prefetch: int = 0, no_ack: bool = False) -> Client:
    client = harness.client()
    client.channel.qos(prefetch, False)
    client.channel.consume("q", "c", no_ack, False, {})
    return client


def until(harness: Harness, reached: Callable[[], bool]) -> None:
    """Turns and commit points, up to there and no further."""
    for _ in range(200):
        if reached():
            return
        harness.turn()
        harness.ledger.commit()
    raise AssertionError("not reached")


def asked(harness: Harness) -> Client:
    """A consumer, for which a page has been looked at in the base, and has not come."""
    client = consumer(harness)
    until(harness, lambda: bool(harness.ledger.reader.pages))
    return client


def checkpoint(harness: Harness) -> None:
    """A whole one, written and heard of."""
    contents = harness.ledger.contents
    changes, dropped = contents.freeze()
    contents.layers.base.write(Checkpoint(contents.meta([]), changes, dropped, [], []))  # type: ignore[attr-defined]
    contents.thaw()


def test_what_a_purge_spares_is_read_when_it_goes_out_again() -> None:
    """By the store's reader, a page at a time: the purge itself reads nothing, here or at the next primary."""
    harness, base = stored(*(large(number) for number in range(LARGE)))
    client = consumer(harness, prefetch=6)
    until(harness, lambda: len(client.deliveries) == 6)
    counts: list[int] = []
    harness.broker.operations.queues.purge(harness.client().channel, "q", counts.append)
    base.pages.clear()
    until(harness, lambda: bool(counts))
    assert counts == [LARGE - 6] and base.pages == []
    client.channel.close()
    again = consumer(harness)
    until(harness, lambda: len(again.deliveries) == 6)
    assert again.bodies == [large(number) for number in range(6)] and all(each.redelivered for each in again.deliveries)
    harness.take_over()
    again = consumer(harness)
    until(harness, lambda: len(again.deliveries) == 6)
    assert again.bodies == [large(number) for number in range(6)] and sorted(base.queues[queue_of(harness).number])
    assert all(len(page) == 1 for page in base.pages)


def test_the_store_is_asked_for_what_a_purge_spared() -> None:
    """Not for what went, which it holds until a checkpoint."""
    harness, _ = stored(*SMALL)
    client = consumer(harness, prefetch=2)
    until(harness, lambda: len(client.deliveries) == 2)
    counts: list[int] = []
    harness.broker.operations.queues.purge(harness.client().channel, "q", counts.append)
    until(harness, lambda: bool(counts))
    number, offsets = queue_of(harness).number, tuple(sorted(queue_of(harness).offsets_out()))
    asked = harness.ledger.reader.readings.begin(Above(number, -1, 1, 9), lambda found: None).asked
    assert asked == At(number, offsets, 9) and len(offsets) == 2


@pytest.mark.parametrize("prefetch", [0, 1])
def test_one_consumer_topples_every_primary(prefetch: int) -> None:
    """No page holds more than its bytes, or one message, and the event loop reads none: here, and at the next primary,
    where all are redelivered."""
    harness, base = stored(*[large(number) for number in range(LARGE)])
    for _ in range(2):
        client = consumer(harness, prefetch)
        harness.settle()
        if prefetch:
            assert client.bodies == [large(0)] and len(base.pages) <= 2
        else:
            assert client.bodies == [large(number) for number in range(LARGE)]
        assert all(len(page) <= 1 for page in base.pages)
        harness.take_over()


def test_a_page_is_as_many_messages_as_there_is_room_for() -> None:
    harness, base = stored(*[bytes(300)] * 12)
    client = consumer(harness, 1)
    for _ in range(12):
        harness.settle()
        client.channel.ack(client.deliveries[-1].tag, False)
    harness.settle()
    assert len(client.deliveries) == 12
    assert max(map(len, base.pages)) == 3 and sum(map(len, base.pages)) == 12


def test_what_is_in_no_checkpoint_yet_does_not_overfill_the_window() -> None:
    """No base bounds it: a page shows all that the layers above it hold."""
    harness = Harness(WindowLimits(4, PAGE))
    client = harness.client()
    client.declare("q")
    client.publish("q", *SMALL)
    taker = consumer(harness, 1)
    for _ in SMALL:
        harness.settle()
        assert len(queue_of(harness)._supply.window) <= 4
        taker.channel.ack(taker.deliveries[-1].tag, False)
    assert taker.bodies == SMALL


def test_what_was_given_back_is_read_in_pages_too() -> None:
    harness, base = stored(*[large(number) for number in range(LARGE)])
    client = consumer(harness)
    harness.settle()
    base.pages.clear()
    client.channel.close()
    other = consumer(harness)
    harness.settle()
    assert other.bodies == [large(number) for number in range(LARGE)]
    assert all(each.redelivered for each in other.deliveries)
    assert all(len(page) == 1 for page in base.pages) and len(base.pages) == LARGE


def test_settling_reads_no_message() -> None:
    """Neither one that is in the base, nor many."""
    harness, base = stored(*[large(number) for number in range(LARGE)])
    client = consumer(harness)
    harness.settle()
    base.pages.clear()
    client.channel.ack(0, True)
    harness.settle()
    assert harness.client().count("q") == 0 and base.pages == []


def test_a_page_comes_behind_the_role() -> None:
    """The queue that asked is gone; the next generation serves everything, once."""
    harness, _ = stored(*SMALL)
    client = asked(harness)
    ledger, queue = harness.ledger, queue_of(harness)
    pages = list(ledger.reader.pages)
    readings = ledger.reader.readings
    harness.take_over()
    again = asked(harness)
    assert [effect.number for effect, _ in harness.ledger.reader.pages] == [effect.number for effect, _ in pages]
    for effect, page in pages:
        readings.came(effect, Page(page.entries[:1], False))
        harness.ledger.reader.readings.came(effect, Page(page.entries[:1], False))
    assert queue.deleted and not queue._supply.window and not queue_of(harness)._supply.window
    assert not ledger.contents.layers.readings, "nor is it watched any more"
    harness.settle()
    assert client.deliveries == [] and again.bodies == SMALL


def test_deleted_while_its_page_is_read() -> None:
    """And declared anew, which is another queue."""
    harness, _ = stored(*SMALL)
    client = asked(harness)
    counts: list[int] = []
    harness.broker.operations.deletions.delete(client.channel, "q", False, False, counts.append)
    pages, harness.ledger.reader.pages = harness.ledger.reader.pages, []
    harness.turn()
    harness.ledger.commit()
    harness.ledger.reader.pages = pages
    harness.settle()
    assert counts == [len(SMALL)] and client.deliveries == [] and client.cancelled_tags == ["c"]
    again = harness.client()
    again.declare("q")
    again.publish("q", b"new")
    assert again.drain("q") == [b"new"]


@pytest.mark.parametrize("published", [0, 3, 30])
def test_purged_while_its_page_is_read(published: int) -> None:
    """What comes behind the purge is delivered once and in order, in and beyond the window."""
    harness, _ = stored(*SMALL, limits=WindowLimits(10, 10_000))
    client = asked(harness)
    counts: list[int] = []
    harness.broker.operations.queues.purge(client.channel, "q", counts.append)
    bodies = [b"new %d" % number for number in range(published)]
    harness.client().publish("q", *bodies)
    pages, harness.ledger.reader.pages = harness.ledger.reader.pages, []
    harness.turn()
    harness.ledger.commit()
    assert counts == [len(SMALL)]
    checkpoint(harness)
    harness.ledger.reader.pages = pages
    harness.settle()
    assert client.bodies == bodies and harness.client().count("q") == 0


def given_back() -> tuple[Harness, DurableQueue, Watched]:
    """All of a queue has been handed out and given back: what stands in the queue state is read again when wanted."""
    harness, base = stored(*SMALL, limits=WindowLimits(4000, 60))
    client = consumer(harness)
    until(harness, lambda: len(client.deliveries) == len(SMALL))
    client.channel.close()
    return harness, queue_of(harness), base


def test_purged_while_what_was_given_back_is_read() -> None:
    """What comes behind the purge is kept for no consumer, for ever."""
    harness, queue, _ = given_back()
    client = asked(harness)
    pages, harness.ledger.reader.pages = harness.ledger.reader.pages, []
    assert pages[0][1].entries
    counts: list[int] = []
    harness.broker.operations.queues.purge(client.channel, "q", counts.append)
    harness.turn()
    harness.ledger.commit()
    harness.ledger.reader.pages = pages
    harness.settle()
    assert counts == [len(SMALL)] and client.deliveries == []
    back = queue._supply.given_back
    assert not back.loaded and not back.loaded_bytes and not back.asked


def test_purged_when_what_was_given_back_has_been_read() -> None:
    harness, queue, _ = given_back()
    client = consumer(harness, prefetch=1)
    until(harness, lambda: len(client.deliveries) == 1 and bool(queue._supply.given_back.loaded))
    counts: list[int] = []
    harness.broker.operations.queues.purge(client.channel, "q", counts.append)
    harness.settle()
    back = queue._supply.given_back
    assert counts == [len(SMALL) - 1] and not back.loaded and not back.loaded_bytes


def test_headers_of_what_was_given_back_are_bytes_too() -> None:
    """What goes out again is taken from what is held of it, so it is added to that with its headers."""
    harness, queue, base = given_back()
    for offset, entry in base.queues[queue.number].items():
        message = Message("", "q", properties({"large": "x" * 9}), entry.message.body)
        base.queues[queue.number][offset] = Entry(entry.rid, message)
    client = consumer(harness, prefetch=1)
    until(harness, lambda: len(client.deliveries) == 1 and bool(queue._supply.given_back.loaded))
    back = queue._supply.given_back
    assert back.loaded_bytes == sum(size_of(message) for message in back.loaded.values())


@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_consumed_while_its_page_is_read(with_checkpoint: bool) -> None:
    """Messages of the page leave the queue in another way, and a checkpoint takes them out of the base too."""
    harness, _ = stored(*SMALL)
    client, queue = asked(harness), queue_of(harness)
    entries = harness.ledger.contents.messages.ids(queue.number)
    pages, harness.ledger.reader.pages = harness.ledger.reader.pages, []
    harness.ledger.settle(queue.number, [entries[0], entries[7], entries[19]], Removal.ACKED)
    harness.ledger.commit()
    if with_checkpoint:
        checkpoint(harness)
    harness.ledger.reader.pages = pages
    harness.settle()
    assert client.bodies == [SMALL[number] for number in range(20) if number not in (0, 7, 19)]
    client.channel.ack(0, True)
    harness.settle()
    assert harness.client().count("q") == 0


def test_a_checkpoint_ends_while_a_page_is_read() -> None:
    """What was in memory when the page was asked for, and is in the base alone when it comes, is not passed over."""
    harness, _ = stored(*SMALL, limits=WindowLimits(4, 10_000))
    harness.client().publish("q", b"behind")
    harness.settle()
    client = consumer(harness)
    until(harness, lambda: len(client.deliveries) > 12 and bool(harness.ledger.reader.pages))
    checkpoint(harness)
    harness.settle()
    assert client.bodies == [*SMALL, b"behind"]


def test_given_back_while_a_page_is_read() -> None:
    """It stands before the page again."""
    harness, _ = stored(*SMALL, limits=WindowLimits(4, 10_000))
    first = harness.client()
    tags = [got(first.get("q")).delivery_tag for _ in range(4)]
    client = asked(harness)
    first.channel.reject(tags[1], False, True)
    first.channel.reject(tags[3], False, True)
    harness.settle()
    assert sorted(client.bodies, key=SMALL.index) == [SMALL[number] for number in range(20) if number not in (0, 2)]
    assert [each.body for each in client.deliveries if each.redelivered] == [SMALL[1], SMALL[3]]


def test_what_was_given_back_is_settled_while_it_is_read() -> None:
    harness, _ = stored(*SMALL)
    first = harness.client()
    tags = [got(first.get("q")).delivery_tag for _ in range(3)]
    entry = harness.ledger.contents.messages.ids(queue_of(harness).number)[1]
    for tag in tags:
        first.channel.reject(tag, False, True)
    client = consumer(harness)
    harness.turn()
    harness.ledger.settle(queue_of(harness).number, [entry], Removal.ACKED)
    harness.settle()
    assert client.bodies == [SMALL[0], *SMALL[2:]] and not queue_of(harness)._supply.given_back.loaded


def test_a_get_waits_for_its_page_and_is_forgotten_with_its_channel() -> None:
    harness, _ = stored(*SMALL)
    first, second = harness.client(), harness.client()
    answers = first.ask_get("q")
    harness.turn()
    first.channel.close()
    assert got(second.get("q")).message.body == SMALL[0] and answers == []


def test_a_message_that_is_counted_and_not_there_is_damage() -> None:
    """It is not passed over: a client may have been told that it is kept."""
    harness, base = stored(*SMALL[:1])
    base.lost = {offset for offset, _ in harness.ledger.contents.messages.ids(queue_of(harness).number)}
    consumer(harness)
    with pytest.raises(StoreDamaged, match="does not hold a message that it counts"):
        harness.settle()


def test_a_message_that_was_given_back_and_is_not_there_is_damage() -> None:
    harness, base = stored(*SMALL[:2])
    client = harness.client()
    tag = got(client.get("q")).delivery_tag
    base.lost = {offset for offset, _ in harness.ledger.contents.messages.ids(queue_of(harness).number)}
    client.channel.reject(tag, False, True)
    consumer(harness)
    with pytest.raises(StoreDamaged, match="does not hold a message that was given back"):
        harness.settle()
