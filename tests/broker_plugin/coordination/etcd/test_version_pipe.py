"""Versions through a pipe: in order, whole, without waiting for who reads them, to the end of all who write."""

from __future__ import annotations

import os
import threading

from broker_plugin.coordination.etcd.version_pipe import VersionReader, VersionWriter
from python_tests.harness.waiting import wait_until


def test_versions_arrive_in_order_from_one_writer_after_the_other() -> None:
    told: list[int] = []
    reader = VersionReader(told.append)
    for first in (0, 1000):
        writer = VersionWriter(os.dup(reader.descriptor))
        for version in range(first, first + 1000):
            writer.write(version)
        os.close(writer._descriptor)
    wait_until(lambda: len(told) == 2000, 60.0, "all versions")
    assert told == list(range(2000))
    reader.close()
    reader.close()


def test_a_writer_never_waits_and_what_it_writes_later_arrives() -> None:
    """Its node may be stopped: the pipe fills up."""
    goes_on, told = threading.Event(), list[int]()

    def slow(version: int) -> None:
        goes_on.wait()
        told.append(version)

    reader = VersionReader(slow)
    writer = VersionWriter(reader.descriptor)
    for version in range(20_000):
        writer.write(version)
    goes_on.set()
    wait_until(lambda: len(told) > 1000 and told[-1] == len(told) - 1, 60.0, "what had room")
    writer.write(-2)
    wait_until(lambda: told[-1] == -2, 60.0, "the last")
    assert len(told) < 20_000
    reader.close()


def test_the_thread_ends_with_the_last_writer() -> None:
    reader = VersionReader(lambda version: None)
    (thread,) = [each for each in threading.enumerate() if each.name == "record-changes"]
    VersionWriter(reader.descriptor)
    reader.close()
    thread.join(60.0)
    assert not thread.is_alive()
    VersionWriter(os.open(os.devnull, os.O_WRONLY)).write(1)
