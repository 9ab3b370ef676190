"""What pika sees."""

from __future__ import annotations

from collections.abc import Iterator

import pika
import pytest

from tests.amqp.conftest import Served


@pytest.fixture
def connection(served: Served) -> Iterator[pika.BlockingConnection]:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", served.port))
    yield connection
    if connection.is_open:
        connection.close()


def test_publish_get(connection: pika.BlockingConnection) -> None:
    channel = connection.channel()
    channel.queue_declare("q", durable=True)
    channel.basic_publish("", "q", b"hello", pika.BasicProperties(delivery_mode=2, headers={"a": 1}))
    method, properties, body = channel.basic_get("q")
    assert body == b"hello" and properties.headers == {"a": 1} and not method.redelivered
    channel.basic_ack(method.delivery_tag)
    assert channel.basic_get("q") == (None, None, None)


def test_tx(connection: pika.BlockingConnection) -> None:
    channel = connection.channel()
    for name in "abc":
        channel.queue_declare(name, durable=True)
    channel.tx_select()
    for name in "abc":
        channel.basic_publish("", name, b"x" * 300_000)
    other = connection.channel()
    assert other.queue_declare("a", passive=True).method.message_count == 0
    channel.tx_commit()
    for name in "abc":
        assert other.queue_declare(name, passive=True).method.message_count == 1
    method, _, body = channel.basic_get("a")
    assert body == b"x" * 300_000
    channel.basic_ack(method.delivery_tag)
    channel.tx_rollback()
    channel.basic_ack(method.delivery_tag)
    channel.tx_commit()
    channel.close()
    assert other.basic_get("a") == (None, None, None)
