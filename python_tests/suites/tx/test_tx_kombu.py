"""``tx`` through kombu (py-amqp), unchanged."""

from __future__ import annotations

import kombu


def test_commit_and_rollback(urls: list[str], queues: list[str]) -> None:
    with kombu.Connection(urls[-1]) as connection:
        channel = connection.channel()
        channel.tx_select()
        producer = kombu.Producer(channel, serializer="json")
        for queue in queues:
            producer.publish({"n": 1}, routing_key=queue)
        channel.tx_rollback()
        for queue in queues:
            producer.publish({"n": 2}, routing_key=queue)
        channel.tx_commit()
        reader = connection.channel()
        for queue in queues:
            message = reader.basic_get(queue, no_ack=True)
            assert message is not None and b"2" in bytes(message.body, "utf8")
            assert reader.basic_get(queue, no_ack=True) is None
