"""The connection to the broker breaks between two transactions: each message is worked on once, none is left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

from python_tests.harness.servers.postgresql import PostgreSQL
from python_tests.harness.waiting import wait_until
from python_tests.suites.coordinator.resources import Queue, Table
from python_tests.suites.dtx.cut import CuttingDoor
from recovery.coordinator.broker_resource import Broker
from recovery.coordinator.coordinated_branches import TransactionRolledBack
from recovery.coordinator.coordinator import Coordinator
from recovery.coordinator.decision_log import DecisionLog
from recovery.coordinator.names import branch_xid, new_global_name
from recovery.coordinator.postgresql import Postgresql
from recovery.coordinator.resources import ResourceLost
from recovery.dtx.errors import StaleDelivery

ROLLED_BACK = (TransactionRolledBack, ResourceLost, psycopg.Error, AMQPError)


def test_stale_delivery_tags_settle_no_other_message(postgresql: PostgreSQL, urls: list[str], tmp_path: Path) -> None:
    table, queue = Table(postgresql.dsn), Queue(urls)
    sender = queue.open()
    assert isinstance(sender, Broker)
    for body in (b"A", b"B", b"C"):
        sender.channel.basic_publish("", queue.own, body)
    got: list[tuple[int, str]] = []

    def delivered(channel: BlockingChannel, method: Any, properties: Any, body: bytes) -> None:
        got.append((method.delivery_tag, body.decode()))

    with CuttingDoor(int(urls[0].rstrip("/").rsplit(":", 1)[1])) as door:
        broker = Broker(door.url, on_channel=lambda channel: channel.basic_consume(queue.own, delivered))
        coordinator = Coordinator(DecisionLog(tmp_path / "log"), broker, Postgresql(postgresql.dsn))

        def work(tag: int, body: str) -> bool:
            """One transaction for one message; whether it has been committed."""
            try:
                with coordinator.transaction() as t:
                    t.database.execute(f"INSERT INTO {table.own} VALUES (%s)".encode(), [body])
                    t.broker.basic_ack(tag)
            except ROLLED_BACK:
                return False
            return True

        def received(count: int) -> list[tuple[int, str]]:
            wait_until(lambda: broker.channel.connection.process_data_events(0) or len(got) >= count, 20, "messages")
            found = sorted(got, key=lambda each: each[1])
            got.clear()
            return found

        first, *others = received(3)
        assert work(*first)
        door.cut_off()
        assert [work(*each) for each in others] == [False, False], "what came before the loss is stale"
        again = received(2)
        assert [body for _, body in again] == ["B", "C"]
        assert all(work(*each) for each in again)
        coordinator.close()
    assert sorted(table.look()) == ["A", "B", "C"] and queue.look() == []
    queue.close()


def test_stale_delivery_tags_of_a_connection_that_the_coordinator_has_closed(urls: list[str]) -> None:
    """As it does with one on which a branch could not be left: its tags are not given to other messages."""
    queue = Queue(urls)
    broker = queue.open()
    assert isinstance(broker, Broker)
    for body in (b"A", b"B"):
        broker.channel.basic_publish("", queue.own, body)
    stale, _, _ = broker.channel.basic_get(queue.own)
    broker.close()
    xid = branch_xid(str(new_global_name("0" * 16)), "broker")
    broker.begin(xid)
    assert broker.channel.basic_get(queue.own)[0] is not None
    with pytest.raises(StaleDelivery):
        broker.channel.basic_ack(stale.delivery_tag)
    broker.abandon(xid)
    broker.close()
    wait_until(lambda: sorted(queue.look()) == ["A", "B"], 20, "both in their queue", every=0.1)
    queue.close()
