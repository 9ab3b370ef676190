"""An operator accepts the loss of data: the same places are given to other messages, which no query has read."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql.streaming.datasource import ReadMaxRows

from python_tests.harness.cluster import LocalCluster
from python_tests.harness.pika_clients import parameters
from python_tests.harness.waiting import wait_until
from recovery.pipeline.errors import PipelineError
from recovery.pipeline.queues import queue_intake, source
from recovery.pipeline.queues.options import QueueSourceOptions
from recovery.pipeline.queues.places import Offset, goes_on, history_of
from recovery.pipeline.queues.prefetched import Delivery, Prefetched
from recovery.pipeline.queues.queue_intake import QueueIntake
from recovery.pipeline.queues.source import QueueReader
from tests.processes.crashed import status_of, txha

pytestmark = pytest.mark.slice

QUEUE = "orders"
OLD, NEW = [f"old-{number}" for number in range(30)], [f"new-{number}" for number in range(10)]


class Reader:
    """A driver that reads what is in the queue. A context manager."""

    def __init__(self, url: str, queue: str, tolerant: bool = False, now: bool = True) -> None:
        options = QueueSourceOptions(url=url, queue=queue, patience=20, fail_on_data_loss=not tolerant)
        self.reader = QueueReader(options)
        if now:
            self.reader.prepareForTriggerAvailableNow()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *error: object) -> None:
        self.reader.stop()

    def plan(self, at: dict[str, Any]) -> dict[str, Any]:
        """A batch of everything."""
        return self.reader.latestOffset(at, ReadMaxRows(1000))

    def rows(self, at: dict[str, Any], end: dict[str, Any]) -> list[str]:
        """The bodies of a batch."""
        parts = self.reader.partitions(at, end)
        return [each.decode() for part in parts for rows in self.reader.read(part) for each in rows["body"].to_pylist()]


def publish(url: str, bodies: list[str]) -> None:
    """Confirmed."""
    with pika.BlockingConnection(parameters(url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(QUEUE, durable=True)
        for body in bodies:
            channel.basic_publish("", QUEUE, body.encode(), pika.BasicProperties(delivery_mode=2))


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[LocalCluster]:
    """Two nodes, of which one acknowledges alone."""
    with LocalCluster(tmp_path / "pair", 2, "--set", "timing.lease_ttl=2") as cluster:
        yield cluster


def left_alone(cluster: LocalCluster) -> tuple[str, str]:
    """The primary, which acknowledges alone, and the one that was killed."""
    alone, (other,) = cluster.primary() or "", cluster.backups()
    publish(cluster.url(alone), ["both"])
    cluster.kill(other)
    wait_until(lambda: status_of(cluster, alone)["ready_set"] == [alone], 60, "one member alone")
    return alone, other


def loss_accepted(cluster: LocalCluster, alone: str, other: str) -> None:
    """What the one has acknowledged alone is given up; the other one goes on."""
    cluster.kill(alone)
    cluster.start_node(other)
    cluster.wait_state(other, "joining")
    words = ("promote", "--dir", cluster.directory, "--accept-data-loss", other)
    wait_until(lambda: txha(*words).returncode == 0, 60, "the end of the lease")
    cluster.wait_state(other, "active")


@pytest.mark.timeout(300)
def test_places_are_given_again_behind_an_accepted_loss(pair: LocalCluster) -> None:
    """What was published behind the loss, and confirmed, is not taken for what Spark had committed in front of it."""
    alone, other = left_alone(pair)
    publish(pair.url(alone), OLD)
    with Reader(pair.url(alone), QUEUE) as driver:
        begin = driver.reader.initialOffset()
        first = driver.plan(begin)
        assert driver.rows(begin, first) == ["both", *OLD]
    loss_accepted(pair, alone, other)
    publish(pair.url(other), NEW)
    with Reader(pair.url(other), QUEUE) as driver, pytest.raises(PipelineError, match="a new checkpoint"):
        driver.plan(first)
    with Reader(pair.url(other), QUEUE, tolerant=True) as driver:
        second = driver.plan(first)
        assert driver.rows(first, second) == ["both", *NEW]
        driver.reader.commit(first)
        driver.reader.commit(second)
    with Reader(pair.url(other), QUEUE) as driver:
        assert driver.plan(second) == second, "what is of this history is known as before"


@pytest.mark.every
@pytest.mark.timeout(300)
def test_an_accepted_loss_is_forgotten_with_the_record(pair: LocalCluster) -> None:
    """The record that `txha recover` writes cannot say that it was accepted. Who has read since is not held up."""
    alone, other = left_alone(pair)
    publish(pair.url(alone), OLD)
    with Reader(pair.url(alone), QUEUE) as driver:
        first = driver.plan(driver.reader.initialOffset())
    loss_accepted(pair, alone, other)
    with Reader(pair.url(other), QUEUE) as driver:
        since = driver.plan(driver.reader.initialOffset())
    pair.start_node(alone)
    wait_until(pair.all_ready, 60, "all nodes ready")
    record_lost(pair, alone, other)
    publish(pair.urls[0], NEW)
    with Reader(",".join(pair.urls), QUEUE) as driver, pytest.raises(PipelineError, match="a new checkpoint"):
        driver.plan(first)
    with Reader(",".join(pair.urls), QUEUE) as driver:
        end = driver.plan(since)
        assert driver.rows(since, end) == NEW


def record_lost(cluster: LocalCluster, backup: str, primary: str) -> None:
    """No other one takes over: the last one to be killed is the primary. An operator has another record written."""
    cluster.kill(backup)
    cluster.kill(primary)
    cluster.stop()
    for file in cluster.directory.glob("coordination.sqlite*"):
        file.unlink()
    recovered = txha("recover", "--apply", cluster.directory)
    assert recovered.returncode == 0, recovered.stdout + recovered.stderr
    cluster.start()
    wait_until(cluster.all_ready, 60, "all nodes ready")


def test_which_history_goes_on_in_which() -> None:
    """By the generation that an offset was made in, or of an earlier version by the loss that it knows."""
    for since, now, same in (
        ("", "c/0@1", True),
        ("c/0@1", "", True),
        ("c/0@3", "c/0@9", True),
        ("c/0@3", "c/4@9", False),
        ("c/0@4", "c/4@9", True),
        ("c/4@7", "c/4@7", True),
        ("c/0@9", "c/0@8", False),
        ("c/0@3", "d/0@3", False),
        ("c/0", "c/0@9", True),
        ("c/0", "c/1@9", False),
        ("c/4", "c/4@9", True),
        ("a/5/0@1", "a/5/0@1", True),
        ("a/5@1", "a/5/0@5", False),
        ("what is this", "c/0@1", False),
    ):
        assert goes_on(since, now) is same, (since, now)
    assert history_of({"cluster_id": "c", "cluster_name": "n", "loss_accepted": 4, "generation": 9}) == "c/4@9"
    assert history_of({"cluster_name": "n"}) == "n/0@0"
    earlier = history_of({"cluster_id": "c", "loss_accepted": 4})
    assert earlier == "c/4@4" and goes_on(earlier, earlier), "a broker of an earlier version tells no generation"


@pytest.mark.parametrize("now", ["c/0@4", "c/4@4"])
def test_a_take_over_while_a_batch_is_brought(monkeypatch: pytest.MonkeyPatch, now: str) -> None:
    """Its messages come again from the next primary, and are gone only if an operator has accepted that."""
    driver, message = QueueIntake.__new__(QueueIntake), Delivery(7, False, "", "q", pika.BasicProperties(), b"")
    driver._lock, driver._options = threading.RLock(), QueueSourceOptions(queue="q")
    driver._here, driver.history = Prefetched(), "c/0@3"

    def is_dry(itself: QueueIntake, deadline: object) -> bool:
        if driver.history == now:
            driver._here.delivered(1, message, unseen=False)
        driver.history = now
        return False

    monkeypatch.setattr(QueueIntake, "_is_dry", is_dry)
    assert driver.bring([7]) == ([message] if now == "c/0@4" else [])


@pytest.mark.parametrize("now", ["c/0@4", "c/4@4"])
def test_what_was_read_before_a_take_over_is_settled_behind_it(monkeypatch: pytest.MonkeyPatch, now: str) -> None:
    """Else it would come again in the next batch; behind an accepted loss its places are those of other messages."""
    settled: list[tuple[frozenset[int], frozenset[int]]] = []

    class Anew(QueueIntake):
        def __init__(self, options: QueueSourceOptions, *committed: object) -> None:
            self.history = now

        def settle(self, places: Any, named: Any = None) -> None:
            settled.append((places, named))

    monkeypatch.setattr(source, "QueueIntake", Anew)
    QueueReader(QueueSourceOptions(queue="q")).commit(Offset("q", frozenset({7}), frozenset({5}), "c/0@3").as_json())
    goes = now == "c/0@4"
    assert settled == [(frozenset({7} if goes else ()), frozenset({5, 7} if goes else ()))]


@pytest.mark.timeout(300)
def test_a_loss_is_accepted_while_the_driver_lives(pair: LocalCluster) -> None:
    """It had planned a batch, and has it in its memory: what it names is not settled."""
    alone, other = left_alone(pair)
    publish(pair.url(alone), OLD)
    with Reader(",".join(pair.urls), QUEUE, tolerant=True, now=False) as driver:
        at, rows = driver.reader.initialOffset(), []

        def read() -> int:
            nonlocal at
            end = driver.plan(at)
            if end != at:
                driver.reader.commit(at)
                rows.extend(driver.rows(at, end))
                at = end
            return len(rows)

        wait_until(lambda: read() == 1 + len(OLD), 60, "what there is")
        loss_accepted(pair, alone, other)
        publish(pair.url(other), NEW)
        wait_until(lambda: read() == 2 + len(OLD) + len(NEW), 60, "what there is then")
        assert rows[1 + len(OLD) :] == ["both", *NEW], "the one that both had comes again"
        driver.reader.commit(at)
    with Reader(pair.url(other), QUEUE) as driver:
        assert driver.plan(at) == at


def test_a_checkpoint_of_another_cluster(cluster: LocalCluster, channel: BlockingChannel, queue: str) -> None:
    """Places are the same in all of them."""
    for body in ("one", "two"):
        channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2))
    with Reader(cluster.urls[0], queue) as driver:
        begin = driver.reader.initialOffset()
        first = driver.plan(begin)
    elsewhere = {**first, "history": "0123456789abcdef0123456789abcdef/0"}
    with Reader(cluster.urls[0], queue) as driver, pytest.raises(PipelineError, match="a new checkpoint"):
        driver.plan(elsewhere)
    with Reader(cluster.urls[0], queue) as driver, pytest.raises(PipelineError, match="a new checkpoint"):
        driver.rows(begin, elsewhere)
    with Reader(cluster.urls[0], queue) as driver:
        before_that_was_noted = {name: value for name, value in first.items() if name != "history"}
        assert driver.rows(begin, before_that_was_noted) == ["one", "two"]
        assert driver.plan(before_that_was_noted) == before_that_was_noted


def test_what_a_checkpoint_of_another_history_names_is_forgotten(
    cluster: LocalCluster, channel: BlockingChannel, queue: str
) -> None:
    """Not only by the driver that finds it so: nothing of it comes into its offsets, whatever it names is unread."""
    bodies = ["one", "two", "three"]
    for body in bodies:
        channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2))
    with Reader(cluster.urls[0], queue) as driver:
        begin = driver.reader.initialOffset()
        elsewhere = {**driver.plan(begin), "history": "0123456789abcdef0123456789abcdef/0"}
    with Reader(cluster.urls[0], queue, tolerant=True) as driver:
        assert driver.rows(begin, elsewhere) == [], "the batch that was planned there is empty"
        first = driver.reader.latestOffset(elsewhere, ReadMaxRows(1))
        driver.reader.commit(elsewhere)
        assert driver.rows(elsewhere, first) == ["one"]
    with Reader(cluster.urls[0], queue) as driver:
        assert driver.rows(first, driver.plan(first)) == ["two", "three"]


def test_a_loss_is_accepted_while_a_batch_is_looked_for(
    cluster: LocalCluster, channel: BlockingChannel, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was planned by an earlier driver; what stands at its places when the connection is there again is new."""
    for body in ("one", "two"):
        channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2))
    with Reader(cluster.urls[0], queue) as driver:
        begin = driver.reader.initialOffset()
        first = driver.plan(begin)
    bring = QueueIntake.bring

    def lose_and_bring(source: QueueIntake, places: Iterable[int]) -> list[Delivery]:
        monkeypatch.setattr(queue_intake, "history_of", lambda told: "another history/0")
        source._broker.connection._impl._transport._sock.shutdown(socket.SHUT_RDWR)
        return bring(source, places)

    monkeypatch.setattr(QueueIntake, "bring", lose_and_bring)
    with Reader(cluster.urls[0], queue, tolerant=True) as driver:
        assert driver.rows(begin, first) == []
        monkeypatch.setattr(QueueIntake, "bring", bring)
        second = driver.plan(first)
        assert driver.rows(first, second) == ["one", "two"]
