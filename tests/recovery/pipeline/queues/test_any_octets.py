"""What the broker takes becomes rows, whatever octets its key, its id and the names of its headers are."""

from __future__ import annotations

from typing import Any

import pika
from pika import BasicProperties

from recovery.pipeline.queues.queue_intake import Delivery
from recovery.pipeline.queues.source import _rows
from txobserver.octets import octets_of


def test_routing_key_that_is_no_text() -> None:
    """``routing_key_that_is_no_text``: one such message held a query up for ever."""
    sent = BasicProperties(message_id="id", headers={"odd": 1, "even": "text"})
    raw = b"".join(sent.encode()).replace(b"odd", b"o\xffd").replace(b"\x02id", b"\x02\xff\xfe")
    properties = pika.spec.BasicProperties().decode(raw)
    odd: Any = b"a.\xff"
    messages = [Delivery(1, False, "", odd, properties, b"body"), Delivery(2, False, "", "key", sent, b"body")]
    first, second = _rows(messages).to_pylist()
    assert octets_of(first["routing_key"]) == b"a.\xff" and octets_of(first["message_id"]) == b"\xff\xfe"
    assert [(octets_of(name), value) for name, value in first["headers"]] == [(b"o\xffd", "1"), (b"even", "text")]
    assert first["properties"] == raw, "what is exact stands there"
    assert (second["routing_key"], second["message_id"]) == ("key", "id")
