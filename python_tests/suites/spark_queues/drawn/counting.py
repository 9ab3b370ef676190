"""What must hold when everything is well again: each row is in its queue once, and nothing else is left."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from pika.adapters.blocking_connection import BlockingChannel

from python_tests.harness.crash_table import Broken
from python_tests.suites.spark_queues.drawn.brokers import Brokers, length
from recovery.dtx.with_pika import DtxConnection
from recovery.pipeline.queues.kept import MAKING
from recovery.pipeline.queues.names import record_queue, settled_queue
from txobserver.xid import Xid


class Names(NamedTuple):
    """Of a query, and of its queues. ``elsewhere`` takes the row that is astray."""

    query: str
    source: str
    target: str
    elsewhere: str

    @property
    def sink_record(self) -> str:
        """The queue of it."""
        return record_queue(self.query)

    @property
    def source_record(self) -> str:
        """The same."""
        return settled_queue(self.source)


def is_drained(brokers: Brokers, names: Names) -> bool:
    """Whether the source's queue is empty, while no client consumes it."""
    return brokers.client.insist(lambda channel: length(channel, names.source)) == 0


def check(brokers: Brokers, names: Names, bodies: list[str], astray: int | None) -> None:
    """Raises Broken."""
    brokers.client.insist(lambda channel: _check(channel, names, bodies, astray))
    if left := in_doubt(brokers, names.query):
        raise Broken(f"in doubt are {', '.join(map(str, left))}")


def _check(channel: BlockingChannel, names: Names, bodies: list[str], astray: int | None) -> None:
    expected = Counter(bodies)
    found = _held(channel, names.target)
    if astray is not None:
        elsewhere = _held(channel, names.elsewhere)
        if elsewhere != Counter([bodies[astray]]):
            raise Broken(f"the row astray, {bodies[astray]}, came as {dict(elsewhere)}")
        found += elsewhere
    if found != expected:
        raise Broken(f"too often came {dict(found - expected)}, not at all {dict(expected - found)}")
    for queue in (names.sink_record, names.source_record):
        if (count := length(channel, queue)) != 1:
            raise Broken(f"queue {queue} has {count} records")
        if (count := length(channel, MAKING + queue)) is not None:
            raise Broken(f"the queue in which a record is made is left: {MAKING}{queue}")


def held(brokers: Brokers, queue: str) -> Counter[str]:
    """What is in a queue that no client consumes, as soon as none does."""
    return brokers.client.insist(lambda channel: _held(channel, queue))


def in_doubt(brokers: Brokers, query: str) -> list[Xid]:
    """Branches that are prepared: of this query, and settlements of sources."""
    with DtxConnection(*brokers.urls) as broker:
        return [xid for xid in broker.tpc_recover() if query.encode() in xid.gtrid or xid.gtrid.startswith(b"settle.")]


def _held(channel: BlockingChannel, queue: str) -> Counter[str]:
    """What is in a queue; it goes back with the channel, so that it can be counted again."""
    found: Counter[str] = Counter()
    if length(channel, queue) is not None:
        while (got := channel.basic_get(queue))[0] is not None:
            found[got[2].decode()] += 1
    return found


def delete(brokers: Brokers, names: Names) -> None:
    """What a case has made."""
    for queue in (names.source, names.target, names.elsewhere, names.sink_record, names.source_record):
        brokers.client.insist(lambda channel, queue=queue: channel.queue_delete(queue))  # type: ignore[misc]
