"""A driver is killed while its settlement waits for backups that hang, then the primary, which alone had decided."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
import pytest

from python_tests.harness.cluster import LocalCluster
from python_tests.harness.waiting import wait_until
from recovery.dtx.with_pika import DtxConnection
from recovery.pipeline.queues.names import FORMAT
from recovery.pipeline.queues.options import QueueSourceOptions
from recovery.pipeline.queues.queue_intake import QueueIntake
from tests.recovery.pipeline.queues.conftest import SETTINGS
from txobserver.outcomes import BranchOutcome
from txobserver.xid import Xid

pytestmark = pytest.mark.slice

QUEUE, TOKEN, PATIENCE, ROOM = "orders", "settlement", 60.0, 10
SETTLEMENT = Xid(FORMAT, f"settle.{TOKEN}".encode(), b"")


def options(*hosts: str) -> QueueSourceOptions:
    return QueueSourceOptions(url=",".join(hosts), queue=QUEUE, patience=PATIENCE)


def bodies(intake: QueueIntake, places: list[int]) -> list[bytes]:
    return [each.body for each in intake.bring(places)]


def settle_when_told(url: str, place: int, to: Any) -> None:
    """A driver whose query has committed a batch; it stops in front of the settlement, whose xid is known."""
    driver = QueueIntake(options(url), [place], ROOM)
    settlement = driver.settlements._exchange

    def told(*arguments: Any) -> None:
        to.send("at it")
        to.recv()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("secrets.token_hex", lambda size: TOKEN)
            settlement(*arguments)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(driver.settlements, "_exchange", told)
        driver.take(ROOM, wait=True)
        driver.settle(())
    to.send("settled")


@contextmanager
def hung(cluster: LocalCluster, names: list[str]) -> Iterator[None]:
    """SIGSTOP, and SIGCONT in the end."""
    pids = [cluster.pid(name) for name in names]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def killed_while_settling(cluster: LocalCluster, primary: str, place: int) -> Iterator[None]:
    """A driver is; its settlement waits for backups that hang until this goes on."""
    ours, its = multiprocessing.Pipe()
    arguments = (cluster.url(primary), place, its)
    driver = multiprocessing.get_context("fork").Process(target=settle_when_told, args=arguments)
    driver.start()
    assert ours.poll(PATIENCE) and ours.recv() == "at it"
    backups = cluster.backups()
    assert len(backups) == 2
    with hung(cluster, backups):
        ours.send("go on")
        with DtxConnection(cluster.url(primary), patience=PATIENCE) as broker:
            wait_until(
                lambda: broker.outcome(SETTLEMENT) is BranchOutcome.PENDING, PATIENCE, "the settlement", every=0.05
            )
        driver.kill()
        driver.join()
        yield


def taken_in_the_end(intake: QueueIntake, place: int) -> list[int]:
    """What is taken for new until a message has come again."""
    found: list[int] = []

    def looked() -> bool:
        found.extend(intake.take(ROOM, wait=False))
        return place in intake._here.places

    wait_until(looked, PATIENCE, "it comes again", every=0.05)
    return found


def test_a_settlement_that_is_aborted_by_a_take_over(tmp_path: Path) -> None:
    """Its message comes back behind a later one that has been taken, and is taken for done all the same."""
    with LocalCluster(tmp_path / "cluster", 3, *SETTINGS) as cluster:
        primary = cluster.primary()
        assert primary is not None
        with pika.BlockingConnection(pika.URLParameters(cluster.url(primary))) as connection:
            channel = connection.channel()
            channel.queue_declare(QUEUE, durable=True)
            channel.confirm_delivery()
            for body in (b"0", b"1", b"2"):
                channel.basic_publish("", QUEUE, body)
        hosts = [cluster.url(primary), *(url for url in cluster.urls if url != cluster.url(primary))]
        intake = QueueIntake(options(*hosts), (), ROOM)
        intake.settle(intake.take(1, wait=True))
        first = intake.take(1, wait=True)
        assert bodies(intake, first) == [b"1"]
        intake.close()
        second: list[int] = []
        for _ in killed_while_settling(cluster, primary, first[0]):
            intake = QueueIntake(options(*hosts), first, ROOM)
            while not second:
                second = intake.take(ROOM, wait=False)
            intake.settle((), first)
            assert bodies(intake, second) == [b"2"]
            cluster.kill(primary)
        assert taken_in_the_end(intake, first[0]) == [], "it is done"
        intake.settle(second, [*first, *second])
        assert intake.settlements.done == set() and intake.waiting() == 0
        intake.close()
