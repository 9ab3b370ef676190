"""A record that is kept at the broker: one message in a durable queue, which is taken, and exchanged, but never copied.

An empty queue says nothing: its record may be in a transaction on its way, or with a client that looks at it (basic.get
and requeue, as any tool does). To take that for *there is none* would make a second record beside the first. So a
queue that is there has its record, somewhere, and only a queue that is not there has none. For that the queue is made
with a record in it, an empty one: while it is being made, a second queue stands beside it, and goes behind the
publisher's confirm. Who finds that one knows that nothing has been kept yet, and begins anew.

The caller holds a lock that is its connection's: no other process makes, takes or exchanges the record meanwhile.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from recovery.dtx.lost import LOST

PERSISTENT = pika.BasicProperties(content_type="application/json", delivery_mode=2)
MAKING = "txha.new."
"""Before the name of a record's queue: of the one that stands beside it while it is being made."""
NOT_FOUND = 404


class Taken(NamedTuple):
    """The record out of its queue, and the channel that holds it. ``tag`` is None where nothing was ever kept.

    ``body`` is empty until the record is exchanged for the first time.
    """

    channel: BlockingChannel
    tag: int | None = None
    body: bytes = b""

    def put_back(self) -> None:
        """To its queue. A channel that was lost has done it."""
        if self.tag is not None:
            with contextlib.suppress(*LOST):
                self.channel.basic_nack(self.tag)


class KeptRecord:
    """The record in the queue ``name``."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._there = False
        self._whole = False

    def look(self, channel: BlockingChannel) -> None:
        """Whether there is one; to be called on each new channel. Raises pika's errors."""
        self._there = _exists(channel, self.name)
        self._whole = False

    def take(self, channel: BlockingChannel) -> Taken | None:
        """None: there is one, and it is elsewhere at the moment. Raises pika's errors."""
        if not self._there:
            return Taken(channel)
        method, _, body = channel.basic_get(self.name)
        if method is None:
            self._whole = self._whole or not _exists(channel, MAKING + self.name)
            return None if self._whole else Taken(channel)
        if not body:  # its maker may have died before it took this away
            channel.queue_delete(MAKING + self.name)
        return Taken(channel, method.delivery_tag, body)

    def make(self, channel: BlockingChannel) -> None:
        """Where nothing was ever kept: from now on there is an empty record. Raises pika's errors."""
        aside = channel.connection.channel()
        aside.confirm_delivery()
        aside.queue_declare(MAKING + self.name, durable=True)
        aside.queue_delete(self.name)  # a driver may have died here, and another hold what it left
        aside.queue_declare(self.name, durable=True)
        aside.basic_publish("", self.name, b"", PERSISTENT, mandatory=True)
        aside.queue_delete(MAKING + self.name)
        aside.close()
        self._there = True

    def exchange(self, taken: Taken, body: bytes) -> None:
        """In the transaction of its channel."""
        taken.channel.basic_publish("", self.name, body, PERSISTENT)
        if taken.tag is not None:
            taken.channel.basic_ack(taken.tag)

    def remove(self, channel: BlockingChannel) -> None:
        """It is not needed any more, wherever it is."""
        channel.queue_delete(self.name)
        channel.queue_delete(MAKING + self.name)
        self._there = False


def _exists(channel: BlockingChannel, queue: str) -> bool:
    aside = channel.connection.channel()
    try:
        aside.queue_declare(queue, passive=True)
    except ChannelClosedByBroker as error:
        if error.reply_code == NOT_FOUND:
            return False
        raise
    aside.close()
    return True
