"""``tx`` through pika: atomic, invisible before the commit, acknowledgements included, rolled back by every way out."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

Connect = Callable[..., pika.BlockingConnection]


def transactional(connect: Connect, node: int = 0) -> BlockingChannel:
    channel = connect(node).channel()
    channel.tx_select()
    return channel


def counts(channel: BlockingChannel, queues: list[str]) -> list[int]:
    return [channel.queue_declare(queue, passive=True).method.message_count for queue in queues]


def settled(channel: BlockingChannel, queues: list[str], expected: list[int]) -> None:
    """The counts become these; a message that comes back from a closed channel may take a moment."""
    deadline = time.monotonic() + 5
    while counts(channel, queues) != expected and time.monotonic() < deadline:
        time.sleep(0.01)
    assert counts(channel, queues) == expected


def bodies(channel: BlockingChannel, queue: str) -> list[bytes]:
    found = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return found
        found.append(body)


@pytest.mark.parametrize("node", [0, 1, 2])
def test_a_commit_shows_everything_in_every_queue(connect: Connect, queues: list[str], node: int) -> None:
    channel, other = transactional(connect, node), connect(node + 1).channel()
    for number in range(10):
        for queue in queues:
            channel.basic_publish("", queue, f"{number}".encode())
    assert counts(other, queues) == [0, 0, 0]
    assert other.basic_get(queues[0])[0] is None
    channel.tx_commit()
    assert counts(other, queues) == [10, 10, 10]
    assert bodies(other, queues[1]) == [f"{n}".encode() for n in range(10)]


def test_a_rollback_leaves_nothing(connect: Connect, queues: list[str]) -> None:
    channel, other = transactional(connect), connect(1).channel()
    for queue in queues:
        channel.basic_publish("", queue, b"never")
    channel.tx_rollback()
    channel.basic_publish("", queues[0], b"after")
    channel.tx_commit()
    assert counts(other, queues) == [1, 0, 0]
    assert bodies(other, queues[0]) == [b"after"]


def test_acknowledgements_are_in_the_transaction(connect: Connect, queues: list[str]) -> None:
    source, target, _ = queues
    channel, other = transactional(connect), connect(2).channel()
    other.basic_publish("", source, b"in")
    settled(other, [source], [1])
    method, _, _ = channel.basic_get(source)
    channel.basic_publish("", target, b"out")
    channel.basic_ack(method.delivery_tag)
    channel.tx_rollback()
    channel.basic_ack(method.delivery_tag)
    channel.connection.close()
    settled(other, [source, target], [1, 0])
    channel = transactional(connect, 1)
    method, _, body = channel.basic_get(source)
    assert body == b"in" and method.redelivered
    channel.basic_publish("", target, b"out")
    channel.basic_ack(method.delivery_tag)
    channel.tx_commit()
    channel.connection.close()
    settled(other, [source, target], [0, 1])


@pytest.mark.parametrize("way", ["channel", "connection", "socket"])
def test_every_way_out_rolls_back(connect: Connect, queues: list[str], way: str) -> None:
    connection = connect()
    channel = connection.channel()
    channel.tx_select()
    connect().channel().basic_publish("", queues[2], b"kept")
    other = connect(1).channel()
    settled(other, [queues[2]], [1])
    method, _, _ = channel.basic_get(queues[2])
    channel.basic_publish("", queues[0], b"never")
    channel.basic_ack(method.delivery_tag)
    if way == "channel":
        channel.close()
    elif way == "connection":
        connection.close()
    else:
        connection._impl._transport._sock.shutdown(socket.SHUT_RDWR)
    settled(other, queues, [0, 0, 1])
    method, _, body = other.basic_get(queues[2], auto_ack=True)
    assert body == b"kept" and method.redelivered


def test_a_nack_in_the_transaction_requeues_at_commit(connect: Connect, queues: list[str]) -> None:
    channel, other = transactional(connect), connect(1).channel()
    other.basic_publish("", queues[0], b"m")
    settled(other, queues[:1], [1])
    method, _, _ = channel.basic_get(queues[0])
    channel.basic_nack(method.delivery_tag, requeue=True)
    assert counts(other, queues[:1]) == [0]
    channel.tx_commit()
    settled(other, queues[:1], [1])


def test_an_empty_transaction_commits(connect: Connect, queues: list[str]) -> None:
    channel = transactional(connect)
    channel.tx_commit()
    channel.tx_rollback()
    channel.tx_commit()


def test_a_large_transaction(connect: Connect, queues: list[str]) -> None:
    channel, other = transactional(connect), connect(1).channel()
    for number in range(3000):
        channel.basic_publish("", queues[number % 3], b"x" * 500)
    assert counts(other, queues) == [0, 0, 0]
    channel.tx_commit()
    assert counts(other, queues) == [1000, 1000, 1000]


def test_fanout_inside_a_transaction(connect: Connect, queues: list[str]) -> None:
    channel, other = transactional(connect), connect(1).channel()
    exchange = f"x-{queues[0]}"
    other.exchange_declare(exchange, "fanout", durable=True)
    for queue in queues:
        other.queue_bind(queue, exchange)
    channel.basic_publish(exchange, "", b"to all")
    assert counts(other, queues) == [0, 0, 0]
    channel.tx_commit()
    assert counts(other, queues) == [1, 1, 1]
    other.exchange_delete(exchange)


def test_a_mandatory_message_without_a_queue_is_returned(connect: Connect, queues: list[str]) -> None:
    channel = transactional(connect)
    returned = []
    channel.add_on_return_callback(lambda ch, method, properties, body: returned.append((method.reply_code, body)))
    channel.basic_publish("", "no-such-queue", b"lost", mandatory=True)
    channel.basic_publish("", queues[0], b"kept", mandatory=True)
    channel.tx_commit()
    channel.connection.process_data_events(0.2)
    assert returned == [(312, b"lost")]
    assert counts(channel, queues[:1]) == [1]


@pytest.mark.parametrize("first", ["confirm", "tx"])
def test_tx_and_confirms_exclude_each_other(connect: Connect, first: str) -> None:
    channel = connect().channel()
    with pytest.raises(ChannelClosedByBroker) as closed:
        if first == "tx":
            channel.tx_select()
            channel.confirm_delivery()
        else:
            channel.confirm_delivery()
            channel.tx_select()
    assert closed.value.reply_code == 406


def test_commit_without_select_closes_with_406(connect: Connect) -> None:
    with pytest.raises(ChannelClosedByBroker) as closed:
        connect().channel().tx_commit()
    assert closed.value.reply_code == 406


def test_transactions_side_by_side_do_not_mix(connect: Connect, queues: list[str]) -> None:
    channels = [transactional(connect, n) for n in range(6)]
    for round_number in range(5):
        for index, channel in enumerate(channels):
            for queue in queues:
                channel.basic_publish("", queue, f"{index}-{round_number}".encode())
    for channel in channels[::2]:
        channel.tx_commit()
    for channel in channels[1::2]:
        channel.tx_rollback()
    other = connect().channel()
    for queue in queues:
        assert sorted(bodies(other, queue)) == sorted(f"{i}-{r}".encode() for i in (0, 2, 4) for r in range(5))


def test_a_consumer_sees_a_transaction_whole(connect: Connect, queues: list[str]) -> None:
    channel, connection = transactional(connect), connect(1)
    consumer = connection.channel()
    consumer.basic_qos(prefetch_count=100)
    seen: list[bytes] = []
    consumer.basic_consume(queues[0], lambda ch, method, properties, body: seen.append(body), auto_ack=True)
    for number in range(20):
        channel.basic_publish("", queues[0], f"{number}".encode())
    connection.process_data_events(0.3)
    assert seen == []
    channel.tx_commit()
    deadline = time.monotonic() + 5
    while len(seen) < 20 and time.monotonic() < deadline:
        connection.process_data_events(0.05)
    assert seen == [f"{n}".encode() for n in range(20)]
