"""One channel of a real connection, blocking: every answer is looked at, and what comes between is kept."""

from __future__ import annotations

from typing import Any

from pamqp import body, commands, header
from pamqp.commands import Basic, Channel, Queue

from tests.broker_plugin.amqp.raw_client import RawClient


class Refused(Exception):
    """The broker closed the channel, and only the channel."""

    def __init__(self, close: Channel.Close) -> None:
        super().__init__(close.reply_code, close.reply_text)
        self.code: int = close.reply_code
        self.text: str = close.reply_text
        self.method = close.class_id, close.method_id


class PlainChannel:
    """A channel of this number, opened. ``deliveries``: tag, redelivered, body; ``returned``: bodies that came back."""

    def __init__(self, client: RawClient, number: int) -> None:
        self.client = client
        self.number = number
        self.deliveries: list[tuple[int, bool, bytes]] = []
        self.returned: list[bytes] = []
        self.ask(Channel.Open())

    # -- asking

    def ask(self, *frames: Any) -> Any:
        """Send a request; its answer. Raises Refused."""
        self.send(*frames)
        return self.answer()

    def send(self, *frames: Any) -> None:
        self.client.send(self.number, *frames)

    def answer(self) -> Any:
        """The next method that is no delivery. Raises Refused, and looks that the connection lives."""
        while True:
            value = self._next()
            if isinstance(value, Basic.Deliver):
                self._delivered(value)
            elif isinstance(value, Basic.Return):
                self.returned.append(self._content())
            elif isinstance(value, Channel.Close):
                self.send(Channel.CloseOk())
                self.send(Channel.Open())
                assert isinstance(self._next(), Channel.OpenOk), "the connection does not live"
                raise Refused(value)
            else:
                return value

    def wait_for_deliveries(self, count: int) -> None:
        """Until so many have come, and nothing else."""
        while len(self.deliveries) < count:
            value = self._next()
            assert isinstance(value, Basic.Deliver)
            self._delivered(value)

    def _delivered(self, value: Basic.Deliver) -> None:
        self.deliveries.append((value.delivery_tag or 0, bool(value.redelivered), self._content()))

    def _next(self) -> Any:
        received = self.client.next()
        assert received is not None, "the connection was closed"
        channel, value = received
        assert not isinstance(value, commands.Connection.Close), (value.reply_code, value.reply_text)
        assert channel == self.number, f"{value} came on channel {channel}"
        return value

    def _content(self) -> bytes:
        head, data = self._next(), b""
        assert isinstance(head, header.ContentHeader)
        while len(data) < head.body_size:
            part = self._next()
            assert isinstance(part, body.ContentBody)
            data += part.value
        return data

    # -- messages

    def declare(self, name: str, durable: bool = True) -> None:
        self.ask(Queue.Declare(queue=name, durable=durable))

    def publish(self, queue: str, *bodies: bytes, mandatory: bool = False) -> None:
        for data in bodies:
            self.send(
                Basic.Publish(0, "", queue, mandatory),
                header.ContentHeader(0, len(data), Basic.Properties(delivery_mode=2)),
                body.ContentBody(data),
            )

    def get(self, queue: str, no_ack: bool = False) -> tuple[int, bool, bytes] | None:
        """Delivery tag, redelivered, body."""
        answer = self.ask(Basic.Get(0, queue, no_ack))
        if isinstance(answer, Basic.GetEmpty):
            return None
        return answer.delivery_tag or 0, bool(answer.redelivered), self._content()

    def take(self, queue: str) -> bytes:
        """One message, acknowledged."""
        found = self.get(queue)
        assert found is not None
        self.send(Basic.Ack(found[0]))
        return found[2]

    def count(self, queue: str) -> int:
        """Messages that are ready."""
        return int(self.ask(Queue.Declare(queue=queue, passive=True)).message_count)

    def drain(self, queue: str) -> list[bytes]:
        """Everything that is ready, taken out."""
        found = []
        while (got := self.get(queue, no_ack=True)) is not None:
            found.append(got[2])
        return found
