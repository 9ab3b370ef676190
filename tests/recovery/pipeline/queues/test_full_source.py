"""All that may be at a source is there, and Spark has committed it: it is settled, and others come."""

from __future__ import annotations

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from recovery.pipeline.queues import queue_intake
from tests.recovery.pipeline.queues.test_source import Open, bodies, fill, left, opened, plan

assert opened, "a fixture"


def flat(parts: list[list[str]]) -> list[str]:
    return [each for part in parts for each in part]


def test_two_drivers_that_did_not_settle_leave_room_for_the_next(
    opened: Open, channel: BlockingChannel, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With batches as large as can be, all that may be here is here then, and Spark has committed it."""
    monkeypatch.setattr(queue_intake, "HIGHEST_PREFETCH", 8)
    fill(channel, queue, *"abcdefghijklm")
    reader = opened(max_messages_per_batch=4)
    first = plan(reader, reader.initialOffset(), 4)
    second = plan(reader, first, 4)  # it is logged, and the driver dies before the first batch is settled
    again = opened(max_messages_per_batch=4)
    assert flat(bodies(again, first, second)) == [*"efgh"]  # committed, and this driver dies, too
    last = opened(max_messages_per_batch=4)
    third = plan(last, second, 4)
    assert flat(bodies(last, second, third)) == [*"ijkl"]
    last.stop()
    assert left(channel, queue) == 5


def test_a_batch_that_is_read_again_behind_as_much_as_can_be_here(
    opened: Open, channel: BlockingChannel, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(channel, queue, *"abcdefghijkl")
    reader = opened(max_messages_per_batch=4)
    first = plan(reader, reader.initialOffset(), 4)
    second = plan(reader, first, 4)
    third = plan(reader, second, 4)
    monkeypatch.setattr(queue_intake, "HIGHEST_PREFETCH", 8)
    again = opened(max_messages_per_batch=4)
    assert flat(bodies(again, second, third)) == [*"ijkl"]
