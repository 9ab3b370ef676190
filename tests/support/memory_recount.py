"""What a broker and its connections hold, counted anew from the messages and bytes themselves."""

from __future__ import annotations

from collections.abc import Iterable

from broker_plugin.amqp.protocol.channel import WAITING_OVERHEAD, AmqpChannel
from broker_plugin.amqp.protocol.client_connection import CACHED_BYTES
from broker_plugin.amqp.protocol.connection import Connection
from broker_plugin.amqp.protocol.content import PIECE_BYTES
from broker_plugin.amqp.protocol.properties import REMEMBERED_BYTES
from broker_plugin.embedded.broker import EmbeddedBroker
from broker_plugin.embedded.channels.channel import Channel
from broker_plugin.embedded.memory_budget import MESSAGE_BYTES
from broker_plugin.embedded.queues.local_queue import LocalQueue
from broker_plugin.embedded.transactions.transaction import LocalTransaction
from broker_plugin.embedded.transactions.unit_of_work import UnitOfWork
from txobserver.events import Event, Message, TxDecision, TxDequeue, TxEnqueue, TxPrepare
from txobserver.message_size import size_of


def messages_bytes(messages: Iterable[Message]) -> int:
    return sum(len(each.properties) + len(each.body) + MESSAGE_BYTES for each in messages)


def received(connection: Connection) -> int:
    """Frames and bodies that have come and are not carried out."""
    total = len(connection._partial)
    for channel in connection.channels._all():
        total += _received_on(channel)
    return total


def _received_on(channel: AmqpChannel) -> int:
    content = channel._content
    total = sum(len(payload) + WAITING_OVERHEAD for _, payload in channel._backlog)
    total += 0 if content.properties is None else 12 + len(content.properties)
    return total + sum(len(piece) + PIECE_BYTES for piece in content._pieces)


def cached(connection: Connection) -> int:
    total = sum(
        2 * len(payload) + CACHED_BYTES + len(each.head) + len(each.properties)
        for payload, each in connection.published.items()
    )
    total += sum(2 * len(origin) + CACHED_BYTES for origin in connection._origins.values())
    return total + sum(len(each) + REMEMBERED_BYTES for each in connection.check_properties.passed)


def of_queue(queue: LocalQueue) -> int:
    waiting = [message for _, message in (*queue._fresh, *queue._returned)]
    return queue.own_bytes + messages_bytes([*waiting, *queue._out.values()])


def of_work(work: UnitOfWork) -> int:
    returns = work.returns if isinstance(work, LocalTransaction) else []
    return messages_bytes([*(message for _, message in work._local), *returns])


def by_kind(broker: EmbeddedBroker, connections: list[Connection]) -> dict[str, int]:
    """Of everything but tx-queues. No commit may be on its way: what waits for one is nowhere to be found."""
    channels = [channel for session in broker._sessions for channel in session._channels]
    works = [each.mode.work for each in channels if isinstance(each, Channel)]
    queues = [each for each in broker.topology.queues.values() if isinstance(each, LocalQueue)]
    branches = list(broker._branches._known.values()) if broker._branches is not None else []
    return {
        "received": sum(map(received, connections)),
        "answers": sum(sum(map(len, each._output)) + each.unsent_bytes for each in connections),
        "caches": sum(map(cached, connections)),
        "queues": sum(map(of_queue, queues)),
        "work": sum(of_work(work) for work in (*works, *branches) if isinstance(work, UnitOfWork)),
    }


def open_in(log: Iterable[Event]) -> tuple[int, int]:
    """Bytes and events of the transactions of this log that have been neither closed nor ended."""
    found: dict[int, list[int]] = {}
    for event in log:
        if isinstance(event, TxEnqueue | TxDequeue):
            size = size_of(event.message) if isinstance(event, TxEnqueue) else 0
            found.setdefault(event.tx, []).append(size)
        elif isinstance(event, TxPrepare | TxDecision):
            found.pop(event.tx, None)
    return sum(map(sum, found.values())), sum(map(len, found.values()))
