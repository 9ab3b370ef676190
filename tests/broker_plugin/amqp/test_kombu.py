"""What kombu sees."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import kombu
import pytest

from tests.broker_plugin.amqp.conftest import Served


@pytest.fixture
def connection(served: Served) -> Iterator[kombu.Connection]:
    with kombu.Connection(f"amqp://guest:guest@127.0.0.1:{served.port}//") as connection:
        yield connection


def test_produce_and_consume(connection: kombu.Connection) -> None:
    exchange = kombu.Exchange("tasks", "direct", durable=True)
    queue = kombu.Queue("tasks", exchange, routing_key="tasks")
    producer = connection.Producer(serializer="json")
    producer.publish({"hello": "world"}, exchange=exchange, routing_key="tasks", declare=[queue])
    found: list[Any] = []

    def on_message(body: Any, message: Any) -> None:
        found.append(body)
        message.ack()

    with connection.Consumer(queue, callbacks=[on_message]):
        connection.drain_events(timeout=10)
    assert found == [{"hello": "world"}]


def test_transaction(connection: kombu.Connection) -> None:
    channel = connection.channel()
    channel.queue_declare("q", durable=True, auto_delete=False)
    channel.tx_select()
    for commit in (False, True):
        channel.basic_publish(channel.prepare_message(b"m", content_encoding="binary"), exchange="", routing_key="q")
        channel.tx_commit() if commit else channel.tx_rollback()
    assert channel.queue_declare("q", passive=True).message_count == 1


def test_simple_queue(connection: kombu.Connection) -> None:
    with connection.SimpleQueue("simple") as queue:
        for number in range(10):
            queue.put({"n": number})
        for number in range(10):
            message = queue.get(timeout=10)
            assert message.payload == {"n": number}
            message.ack()


def test_heartbeat(served: Served) -> None:
    with kombu.Connection(f"amqp://guest:guest@127.0.0.1:{served.port}//", heartbeat=10) as connection:
        connection.connect()
        connection.heartbeat_check()
        assert connection.get_heartbeat_interval() == 10
