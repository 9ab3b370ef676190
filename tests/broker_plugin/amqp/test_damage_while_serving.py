"""``damage_found_while_serving``: what a client asks for is damaged; its node ends, and no client waits for ever."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pamqp import body, header
from pamqp.commands import Basic, Channel, Connection, Queue

from broker_plugin.amqp.protocol.settings import AmqpSettings
from broker_plugin.guard import Guard
from tests.broker_plugin.amqp.conftest import ServedByCore
from tests.broker_plugin.amqp.raw_client import RawClient
from txobserver.ports.store import StoreDamaged

SENTENCE = "a checksum in the queue state does not match"


class DamagedNode(ServedByCore):
    """A node whose queue state on disk can turn out to be damaged."""

    broken: str | None = None

    def make_guard(self) -> Guard:
        return Guard(self._store_failed, self._broken)

    def damage(self) -> None:
        """Bring the queue state forward; from then on nothing of it can be read."""
        self.node.cluster.pause(self.node.cluster.settings.checkpoint_every + 1)

        def fail(*_: Any) -> Any:
            raise StoreDamaged(SENTENCE)

        for call in ("read", "holds", "get", "page", "ids"):
            setattr(self.node.disk.base, call, fail)

    def _store_failed(self, reason: str) -> None:
        self.node.report(lambda: self.node.core.on_store_error(reason))

    def _broken(self, reason: str) -> None:
        self.broken = reason


@pytest.fixture
def node() -> Iterator[DamagedNode]:
    node = DamagedNode(AmqpSettings(port=0))
    node.start()
    yield node
    node.stop()


def holding_one(node: DamagedNode) -> RawClient:
    """A client that has got a message and not settled it; given back, it is read from the disk again."""
    client = RawClient(node.port)
    message = (Basic.Publish(0, "", "q"), header.ContentHeader(0, 1, Basic.Properties()), body.ContentBody(b"m"))
    client.send(1, Channel.Open(), Queue.Declare(queue="q", durable=True), *message)
    for _ in range(2):
        client.next()
    while True:
        client.send(1, Basic.Get(queue="q"))
        answer = client.next()
        assert answer is not None
        if isinstance(answer[1], Basic.GetOk):
            break
    for _ in range(2):
        client.next()
    node.call(node.damage)
    return client


def last_word(client: RawClient) -> Any:
    """What the broker says before it closes the connection; connection.close is answered."""
    said = None
    while (answer := client.next()) is not None:
        assert not isinstance(said, Connection.Close), "nothing comes behind it"
        said = answer[1]
        if isinstance(said, Connection.Close):
            client.send(0, Connection.CloseOk())
    assert said is not None
    return said


@pytest.mark.parametrize(
    "asked", [Basic.Get(queue="q"), Basic.Consume(queue="q")], ids=["for_a_get", "for_a_consumer"]
)
def test_damage_found_while_serving(node: DamagedNode, asked: Any) -> None:
    client, other = holding_one(node), RawClient(node.port)
    client.send(1, Basic.Reject(1, True), asked)
    for each in (client, other):
        closed = last_word(each)
        assert isinstance(closed, Connection.Close) and closed.reply_code == 320
        assert closed.reply_text.startswith(f"CONNECTION_FORCED - {SENTENCE}; unanswered=")
        each.close()
    assert (node.node.stopped, node.broken) == (SENTENCE, None)


def test_damage_found_by_another_clients_end(node: DamagedNode) -> None:
    """The message goes back to its queue when its client goes, and to a consumer that has done nothing at all."""
    client, consumer = holding_one(node), RawClient(node.port)
    consumer.send(1, Channel.Open(), Basic.Consume(queue="q"))
    for _ in range(2):
        consumer.next()
    client.close()
    closed = last_word(consumer)
    assert isinstance(closed, Connection.Close) and closed.reply_code == 320
    assert (node.node.stopped, node.broken) == (SENTENCE, None)
    consumer.close()
