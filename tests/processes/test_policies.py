"""Policies changed while clients publish at three nodes: each holds from its answer on, also past a SIGKILL."""

from __future__ import annotations

import json
import os
import signal
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

from python_tests.harness.cluster import LocalCluster
from python_tests.harness.waiting import wait_until
from tests.processes.test_http import NAMES
from tests.processes.test_users import taken_over, txha

QUEUES = "lost-0", "lost-1"
EXCHANGE = "shop.events"


@dataclass
class Publisher:
    """Publishes numbers that no binding takes, one after the other, each until it is confirmed.

    ``sending``: the number that is on its way; ``refused``: those that were returned, since no queue took them.
    """

    cluster: LocalCluster
    node: int
    sending: int = 0
    refused: list[int] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.stopped.is_set():
            try:
                with pika.BlockingConnection(pika.URLParameters(self.cluster.urls[self.node])) as connection:
                    self._publish(connection.channel())
            except pika.exceptions.AMQPError:  # the primary is changing: what was not confirmed is published again
                continue

    def _publish(self, channel: pika.adapters.blocking_connection.BlockingChannel) -> None:
        channel.confirm_delivery()
        while not self.stopped.is_set():
            try:
                body = f"{self.node}/{self.sending}".encode()
                channel.basic_publish(EXCHANGE, "unrouted", body, mandatory=True)
            except pika.exceptions.UnroutableError:
                self.refused.append(self.sending)
            self.sending += 1


def policy(directory: Path, node: int, queue: int) -> None:
    config = str(directory / f"node-{node + 1}" / "node.toml")
    definition = f'{{"alternate-exchange": "{QUEUES[queue]}"}}'
    txha("policies", "set", "lost", r"^shop\.", definition, "--config", config)


def contents(cluster: LocalCluster) -> list[list[str]]:
    with pika.BlockingConnection(pika.URLParameters(cluster.urls[0])) as connection:
        channel = connection.channel()
        found: list[list[str]] = []
        for queue in QUEUES:
            taken = iter(lambda name=queue: channel.basic_get(name, auto_ack=True)[2], None)  # type: ignore[misc]
            found.append([body.decode() for body in taken])
        return found


@pytest.mark.every
def test_a_policy_changed_under_load_holds_from_its_answer_on(tmp_path: Path) -> None:
    directory = tmp_path / "c"
    with LocalCluster(directory, 3, "--restart") as cluster:
        wait_until(lambda: taken_over(directory), 20, "users")
        wait_until(cluster.all_ready, 30, "all nodes")
        with pika.BlockingConnection(pika.URLParameters(cluster.urls[0])) as connection:
            channel = connection.channel()
            channel.exchange_declare(EXCHANGE, "topic", durable=True)
            for queue in QUEUES:
                channel.exchange_declare(queue, "fanout", durable=True)
                channel.queue_declare(queue, durable=True)
                channel.queue_bind(queue, queue, "")
        policy(directory, 1, 0)
        publishers = [Publisher(cluster, node) for node in range(3)]
        threads = [threading.Thread(target=each.run) for each in publishers]
        for thread in threads:
            thread.start()
        spans = [changes(cluster, directory, publishers, node, kill=node == 1) for node in range(3)]
        for each in publishers:
            each.stopped.set()
        for thread in threads:
            thread.join(60)
        wait_until(cluster.all_ready, 60, "all nodes")
        judged(publishers, spans, contents(cluster))


Span = tuple[int, list[tuple[int, int]]]
"""The queue of a policy; of each publisher, what it was sending before the change and once that was answered"""


def changes(cluster: LocalCluster, directory: Path, publishers: list[Publisher], node: int, kill: bool) -> Span:
    """The policy is changed at this node while all publish; then perhaps its primary is killed."""

    def more() -> None:
        start = [each.sending for each in publishers]
        wait_until(lambda: all(p.sending > n + 20 for p, n in zip(publishers, start, strict=True)), 60, "load")

    more()
    before = [each.sending for each in publishers]
    queue = (node + 1) % 2
    policy(directory, node, queue)
    after = [each.sending for each in publishers]
    more()
    if kill:
        first = cluster.primary()
        assert first is not None
        cluster.kill(first)
        wait_until(lambda: cluster.primary() is not None, 30, "a primary")
        more()
        wait_until(cluster.all_ready, 60, "all nodes")
    return queue, list(zip(before, after, strict=True))


def judged(publishers: list[Publisher], spans: list[Span], found: list[list[str]]) -> None:
    """No number is lost, none was returned, and none that was sent after an answer went where the former policy led."""
    held = [set(each) for each in found]
    for publisher in publishers:
        assert not publisher.refused
        queue, since = 0, 0
        for following, span in [*spans, (0, [(publisher.sending, 0)] * len(publishers))]:
            before, after = span[publisher.node]
            for number in range(since, before):
                body = f"{publisher.node}/{number}"
                assert body in held[queue], f"{body} was sent while {QUEUES[queue]} was in force"
                assert body not in held[1 - queue], f"{body} is in {QUEUES[1 - queue]}"
            for number in range(before, after + 1):
                assert (
                    following == queue
                    or number >= publisher.sending
                    or any(f"{publisher.node}/{number}" in each for each in held)
                ), f"{publisher.node}/{number} is lost"
            queue, since = following, after + 1


def test_an_operator_policy_lets_queues_go_on_all_nodes_also_after_a_kill(tmp_path: Path) -> None:
    """Set at a backup. What has a consumer stays; what comes to the next primary unused goes there."""
    directory = tmp_path / "c"
    with LocalCluster(directory, 3, "--restart") as cluster:
        wait_until(lambda: taken_over(directory), 20, "users")
        wait_until(cluster.all_ready, 30, "all nodes")
        declare(cluster, "idle", "^kept")
        primary = cluster.primary()
        assert primary is not None
        backup = str(directory / f"node-{(NAMES.index(primary) + 1) % 3 + 1}" / "node.toml")
        with pika.BlockingConnection(pika.URLParameters(cluster.urls[0])) as connection:
            channel = connection.channel()
            channel.queue_declare("used", durable=True)
            channel.basic_consume("used", lambda *_: None)
            txha("operator-policies", "set", "bound", "^(idle|used)", '{"expires": 600}', "--config", backup)
            wait_until(lambda: "idle" not in queues(cluster), 30, "the end of a queue that is not used")
            connection.process_data_events(0)
            assert "used" in queues(cluster)
        wait_until(lambda: "used" not in queues(cluster), 30, "its end without the consumer")
        declare(cluster, "idle2")
        os.kill(cluster.pid(primary), signal.SIGKILL)
        wait_until(lambda: cluster.primary() not in (None, primary), 30, "another primary")
        wait_until(lambda: "idle2" not in queues(cluster), 60, "the end of what the former primary left")
        wait_until(cluster.all_ready, 60, "all nodes")
        assert queues(cluster) == {"^kept"}
        (parameter,) = definitions(cluster)["parameters"]
        assert parameter["component"] == "operator_policy"
        assert parameter["value"]["definition"] == {"expires": 600}


def declare(cluster: LocalCluster, *names: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(cluster.urls[0])) as connection:
        for name in names:
            connection.channel().queue_declare(name, durable=True)


def queues(cluster: LocalCluster) -> set[str]:
    """As definitions say them: to look at a queue would be to use it."""
    return {each["name"] for each in definitions(cluster)["queues"]}


def definitions(cluster: LocalCluster) -> dict[str, Any]:
    said = txha("definitions", "export", "-", "--dir", str(cluster.directory))
    found: dict[str, Any] = json.JSONDecoder().raw_decode(said)[0]
    return found
