"""A client of class dtx on a real connection: one channel, blocking, with every answer looked at."""

from __future__ import annotations

from typing import Any

from pamqp import body, commands, header
from pamqp.commands import Basic, Channel, Queue

from tests.broker_plugin.amqp.raw_client import RawClient
from txobserver import dtx_wire as dtx
from txobserver.dtx_wire import XidFields

dtx.register()


def xid(name: str, branch: str = "b", format_id: int = 1) -> XidFields:
    """An xid of these names."""
    return XidFields(format_id, name.encode(), branch.encode())


class Refused(Exception):
    """The broker closed the channel, and only the channel."""

    def __init__(self, close: Channel.Close) -> None:
        super().__init__(close.reply_code, close.reply_text)
        self.code: int = close.reply_code
        self.text: str = close.reply_text
        self.method = close.class_id, close.method_id


class DtxChannel:
    """A channel, in dtx mode unless that is left to the test; on a connection of its own unless one is given."""

    def __init__(self, port: int, client: RawClient | None = None, number: int = 1, select: bool = True) -> None:
        self.port = port
        self.client = client or RawClient(port)
        self.number = number
        self.deliveries: list[tuple[int, bool, bytes]] = []
        self.returned: list[bytes] = []
        self.ask(Channel.Open())
        if select:
            self.ask(dtx.Select())

    def beside(self, select: bool = True) -> DtxChannel:
        """Another channel of the same connection. Only one of them may wait for answers at a time."""
        return DtxChannel(self.port, self.client, self.number + 1, select)

    def another(self) -> DtxChannel:
        """A channel of another connection."""
        return DtxChannel(self.port)

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

    # -- branches

    def start(self, which: XidFields, join: bool = False, resume: bool = False) -> int:
        return int(self.ask(dtx.Start(which, join, resume)).status)

    def end(self, which: XidFields, fail: bool = False, suspend: bool = False) -> int:
        return int(self.ask(dtx.End(which, fail, suspend)).status)

    def prepare(self, which: XidFields) -> int:
        return int(self.ask(dtx.Prepare(which)).status)

    def commit(self, which: XidFields, one_phase: bool = False) -> int:
        return int(self.ask(dtx.Commit(which, one_phase)).status)

    def rollback(self, which: XidFields) -> int:
        return int(self.ask(dtx.Rollback(which)).status)

    def forget(self, which: XidFields) -> None:
        self.ask(dtx.Forget(which))

    def decide(self, name: str, commit: bool) -> int:
        return int(self.ask(dtx.Decide(1, name.encode(), commit)).status)

    def outcome(self, which: XidFields) -> int:
        return int(self.ask(dtx.Outcome(0, which)).outcome)

    def outcome_of(self, token: bytes) -> int:
        return int(self.ask(dtx.Outcome(1, XidFields(0, token, b""))).outcome)

    def recover(self) -> list[XidFields]:
        """Every page."""
        found, answer = [], self.ask(dtx.Recover())
        found += dtx.unpack_xids(answer.xids)
        while answer.more:
            answer = self.ask(dtx.Recover(True))
            found += dtx.unpack_xids(answer.xids)
        return found

    def globally(self, name: str) -> tuple[int, dict[XidFields, int]]:
        """Decision and branches of a global transaction, every page."""
        answer = self.ask(dtx.Global(1, name.encode()))
        found = dtx.unpack_states(answer.branches)
        while answer.more:
            answer = self.ask(dtx.Global(1, name.encode(), True))
            found += dtx.unpack_states(answer.branches)
        return answer.decision, dict(found)

    def publish_in(self, which: XidFields, queue: str, *bodies: bytes) -> None:
        """A branch with these publishes, started and ended."""
        assert self.start(which) == 0
        self.publish(queue, *bodies)
        assert self.end(which) == 0

    def prepared(self, which: XidFields, queue: str, *bodies: bytes) -> XidFields:
        """The same, and prepared."""
        self.publish_in(which, queue, *bodies)
        assert self.prepare(which) == 0
        return which

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
