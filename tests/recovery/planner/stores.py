"""Real stores on disk, made from events as a node makes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ha.apply.replica import Replica
from tests.support.logs import Posts, message, open_store
from txobserver.configuration import queue_step
from txobserver.events import Event, GenerationStart, Publish, TxDecision, TxEnqueue, TxOpen, TxPrepare
from txobserver.frames import encode_frame
from txobserver.ids import Position, generated_id


def beginning(publishes: int) -> list[Event]:
    """A generation, a queue, and messages in it."""
    declared = queue_step("q", False, {})
    declared.config_id = 1
    messages = [Publish(generated_id(1, number), (1,), message(f"{number}")) for number in range(publishes)]
    return [GenerationStart(1, "a", ["a"]), declared, *messages]


def transaction(number: int) -> list[Event]:
    """One that puts two messages, committed."""
    tx = generated_id(1, 1000 + number)
    puts = [TxEnqueue(tx, generated_id(1, 2000 + 2 * number + n), (1,), message("t")) for n in (0, 1)]
    return [TxOpen(tx), *puts, TxPrepare(tx, 2, ["a"]), TxDecision(tx, True)]


def make_store(
    directory: Path,
    generations: Sequence[tuple[int, Sequence[Event]]],
    checkpoint: int = 0,
    incarnation: str = "incarnation",
) -> Position:
    """A store whose log has a frame for each event, and whose checkpoint stands behind so many; returns its tail.

    It belongs to the node that its directory is named after, of the cluster ``cluster``.
    """
    posts = Posts()
    store = open_store(directory, posts, node=directory.name, incarnation=incarnation, segment_bytes=300)
    replica = Replica(store.base, *store.loaded)
    assert list(store.suffix()) == []
    for generation, events in generations:
        for event in events:
            frame = encode_frame(generation, replica.tail.sequence + 1, [event], 1000)
            replica.receive(frame)
            store.append(frame, posts.done)
            posts.wait()
            if replica.tail.sequence == checkpoint:
                replica.durable = checkpoint
                replica.apply(checkpoint)
                store.checkpoint(replica.checkpoint(), posts.done)
                assert posts.wait() == [None]
                replica.checkpoint_written()
    store.close()
    return replica.tail
