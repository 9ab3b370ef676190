"""What must be so of queues, and of who waits for their messages (``txobserver.invariants``)."""

from __future__ import annotations

from broker_plugin.embedded.memory_budget import MESSAGE_BYTES
from broker_plugin.embedded.queues.consumer import Consumer, Receiver
from broker_plugin.embedded.queues.durable_queue import HIGHEST_OFFSET, DurableQueue
from broker_plugin.embedded.queues.local_queue import LocalQueue
from broker_plugin.embedded.queues.queue import Queue
from broker_plugin.embedded.queues.subscriber import UNLIMITED
from broker_plugin.embedded.queues.windows import OVERHEAD
from txobserver.invariants import WALKED, differ, rises
from txobserver.message_size import size_of


def check_queue(queue: Queue) -> None:
    """Any queue."""
    name = queue.name
    assert queue._held >= 0, f"P12: queue {name!r} is held {queue._held} times"
    assert queue._unseen >= 0, f"P3: {queue._unseen} messages of queue {name!r} are on their way back"
    assert queue._returns or not queue._unseen, f"P3: messages of queue {name!r} are back, and do not count"
    assert queue._held >= queue._returns, f"P3: queue {name!r} hands out what is not back yet"
    assert queue.ready >= 0, f"P3: queue {name!r} has {queue.ready} messages that no consumer holds"
    assert not queue.exclusive_consumer or len(queue.consumers) <= 1, f"P3: others read the exclusive queue {name!r}"
    assert not queue.deleted or not queue.consumers, f"P4: the queue {name!r} is gone, and is read"
    assert queue.durable == isinstance(queue, DurableQueue), f"P2: queue {name!r} is durable in no store"
    assert queue.durable == bool(queue.number), f"P2: the durable queue {name!r} has no number"
    assert queue.owner is None or name in queue.owner.exclusive, f"P12: queue {name!r} would outlive its owner"
    for consumer in queue.consumers:
        if isinstance(consumer, Consumer):
            assert consumer.queue is queue, f"P5: a consumer of {consumer.queue.name!r} reads {name!r}"
            assert not consumer.channel.closed, f"P3: a channel that has ended reads queue {name!r}"
            waits = consumer in queue._line or consumer.capacity() <= 0 or consumer.channel._waking
            assert waits, f"P12: queue {name!r} passes over consumer {consumer.tag!r}, which can take a message"
    if isinstance(queue, DurableQueue):
        check_durable(queue)
    elif isinstance(queue, LocalQueue):
        check_local(queue)


def check_durable(queue: DurableQueue) -> None:
    """What a replicated queue counts, and the ends of its window."""
    number, supply = queue.number, queue._supply
    window, back = supply.window, supply.given_back
    assert queue.total >= 0, f"P7: queue {number} holds {queue.total} messages"
    assert len(queue._out) <= queue.total, f"P3: {len(queue._out)} of {queue.total} messages of queue {number} are out"
    assert queue.removed_count >= 0, f"P3: {queue.removed_count} messages were purged out of queue {number}"
    assert queue.watermark >= queue._old_watermark, f"P3: the watermark of queue {number} fell"
    assert queue._asked >= queue.watermark, f"P3: queue {number} may hand out more than {queue._asked}"
    assert supply._mean >= 1, f"P12: messages of queue {number} have {supply._mean} bytes"
    assert supply._cursor >= -1, f"P8: the window of queue {number} ends at {supply._cursor}"
    assert supply.window_bytes >= 0, f"P12: the window of queue {number} holds {supply.window_bytes} bytes"
    assert back.loaded_bytes >= 0, f"P12: {back.loaded_bytes} bytes were given back to queue {number}"
    assert queue._coming >= 0, f"P3: {queue._coming} messages are on their way into queue {number}"
    assert queue._coming <= queue._announced, f"P3: more come into queue {number} than the {queue._announced} announced"
    assert len(window) <= supply._limits.messages, f"P12: the window of queue {number} holds {len(window)} messages"
    there = len(window) + len(queue._out) + len(back.entries)
    assert there <= queue.total, f"P3: {there} messages of queue {number} are known, and it holds {queue.total}"
    assert supply._windows.held >= 0, f"P12: all windows hold {supply._windows.held} bytes"
    if window:
        assert window[0][0] <= window[-1][0], f"P8: the window of queue {number} is not in order"
        assert window[-1][0] <= supply._cursor, f"P8: the window of queue {number} ends behind {supply._cursor}"
    assert window or not supply.window_bytes, f"P12: the window of queue {number} counts what it does not hold"
    assert supply._reading or not back.asked, f"P12: queue {number} waits for what it has not asked for"


def check_durable_deep(queue: DurableQueue) -> None:
    """Each message that is known of it."""
    number, supply = queue.number, queue._supply
    window, given = list(supply.window), supply.given_back
    if queue.total > WALKED:
        return
    offsets = [offset for offset, _, _ in window]
    size = sum(size_of(message) for _, _, message in window)
    assert supply.window_bytes == size, f"P12: the window of queue {number} holds {size} bytes"
    assert rises(offsets), f"P8: the window of queue {number} is not in order"
    returned = [offset for offset, _ in given.entries]
    assert differ(returned), f"P3: a message was given back to queue {number} twice"
    assert all(given.entries[0] <= each for each in given.entries), f"P8: queue {number} hands out a later one first"
    assert queue._out.keys().isdisjoint(offsets), f"P3: queue {number} would hand out what a client holds"
    assert queue._out.keys().isdisjoint(returned), f"P3: a message of queue {number} is out, and was given back"
    assert set(offsets).isdisjoint(returned), f"P3: queue {number} would hand a message out twice"
    assert differ(rid for _, rid, _ in window), f"P3: a message is in queue {number} twice"
    handed = max(queue._out.keys() - supply._passed_over, default=0)
    assert handed <= queue.watermark, f"P3: queue {number} handed out {handed} before leave was given"
    back = max(set(returned) - supply._passed_over, default=0)
    assert back <= queue.watermark, f"P3: {back} was given back to queue {number} before leave was given"
    assert given.loaded.keys() <= set(returned), f"P12: queue {number} keeps what was not given back"
    loaded = sum(size_of(message) for message in given.loaded.values())
    assert given.loaded_bytes == loaded, f"P12: {loaded} bytes were given back to queue {number}"
    held = supply.window_bytes + given.loaded_bytes + OVERHEAD * (len(window) + len(given.loaded))
    assert supply._windows.held >= held, f"P12: all windows hold {supply._windows.held} bytes, and this one {held}"
    for entries in queue._settled.values():
        assert all(queue._out.get(offset) == rid for offset, rid in entries), (
            f"P3: queue {number} settles what is not out"
        )
        assert differ(offset for offset, _ in entries), f"P3: a message of queue {number} is settled twice"
    assert all(0 <= offset < HIGHEST_OFFSET for offset in offsets), f"P8: a message of queue {number} is at no offset"


def check_local(queue: LocalQueue) -> None:
    """A queue of this node's memory."""
    name, fresh = queue.name, queue._fresh
    counted = len(fresh) + len(queue._returned) - queue._unseen
    assert queue.ready == counted, f"P3: queue {name!r} counts {queue.ready} messages"
    assert queue._last >= len(fresh) + len(queue._out), f"P3: queue {name!r} holds more than came"
    if fresh:
        assert fresh[0][0] <= fresh[-1][0], f"P8: queue {name!r} is not in order"
        assert fresh[-1][0] <= queue._last, f"P8: the last message of queue {name!r} is {fresh[-1][0]}"
        before = queue._returned[0][0] if queue._returned else 0
        assert before < fresh[0][0], f"P8: {before} was given back to {name!r} behind what was never handed out"
    messages = [*queue._out.values(), *(message for _, message in (*fresh, *queue._returned))]
    if len(messages) <= WALKED:
        held = sum(size_of(message) + MESSAGE_BYTES for message in messages)
        assert queue.bytes == held, f"P12: queue {name!r} holds {held} bytes, {queue.bytes} are counted"
    assert all(offset <= queue._last for offset in queue._out), f"P5: queue {name!r} handed out what never came"


def check_receiver(receiver: Receiver) -> None:
    """A channel: what its client holds, and how much more it may."""
    unacked = receiver.unacked
    assert receiver.last_tag >= 0, f"P3: the last delivery tag is {receiver.last_tag}"
    assert len(unacked) <= receiver.last_tag, f"P3: {len(unacked)} of {receiver.last_tag} deliveries are outstanding"
    assert receiver.held >= 0, f"P12: {receiver.held} messages count for the prefetch of a channel"
    assert receiver.prefetch >= 1, f"P12: a channel may hold {receiver.prefetch} messages"
    assert receiver.consumer_prefetch >= 0, f"P12: a consumer may hold {receiver.consumer_prefetch} messages"
    for tag, consumer in receiver.consumers.items():
        assert consumer.tag == tag, f"P5: the consumer {consumer.tag!r} goes by {tag!r}"
        assert consumer.channel is receiver, f"P5: the consumer {tag!r} is of another channel"
        assert consumer.credit <= UNLIMITED, f"P12: the consumer {tag!r} may hold {consumer.credit} messages"
        served = consumer.queue.deleted or consumer in consumer.queue.consumers
        assert receiver.closed or served, f"P12: the queue of {tag!r} does not serve it"
        assert not consumer.queue.deleted or receiver.closed, f"P4: the consumer {tag!r} reads a queue that is gone"


def check_receiver_deep(receiver: Receiver) -> None:
    """Each message that its client holds."""
    if len(receiver.unacked) > WALKED:
        return
    assert rises(receiver.unacked), "P3: what a client holds is not in the order of its deliveries"
    counted = len(list(receiver.unacked))
    assert counted == len(receiver.unacked), f"P3: {counted} of {len(receiver.unacked)} deliveries are found"
    newest = max(receiver.unacked, default=0)
    assert newest <= receiver.last_tag, f"P3: the delivery {newest} is outstanding, and {receiver.last_tag} was last"
    held = [(id(queue), offset) for queue, offset, _ in receiver.unacked.values()]
    assert differ(held), "P3: a client holds one message twice"
    counted = sum(consumer is not None for _, _, consumer in receiver.unacked.values())
    assert receiver.held >= counted, f"P12: {counted} messages are held, and {receiver.held} count for the prefetch"
    for tag, (queue, offset, consumer) in receiver.unacked.items():
        if isinstance(queue, DurableQueue) and not queue.deleted:
            assert offset in queue._out, f"P3: a client holds {offset} of queue {queue.number}, which is not out"
        assert consumer is None or consumer.queue is queue, f"P5: the delivery {tag} is of another queue"
        assert consumer is None or not consumer.no_ack, f"P3: the delivery {tag} needs no acknowledgement"
