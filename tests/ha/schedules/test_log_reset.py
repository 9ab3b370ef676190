"""A joiner's log is begun anew for the end of its snapshot: once, and for the attachment that asked (``backup``)."""

from __future__ import annotations

from ha.effects import ResetLog
from tests.support.copying import asked_for_a_reset


def test_it_is_asked_for_once() -> None:
    """However long the disk takes."""
    cluster, joiner = asked_for_a_reset()
    cluster.pause(1.0)
    assert sum(isinstance(write, ResetLog) for write in joiner.writes) == 1


def test_what_it_holds_then_begins_behind_the_snapshot() -> None:
    """A primary that counted on an event before that could not bring another node in step."""
    cluster, joiner = asked_for_a_reset()
    before = joiner.core.log_first
    joiner.disk_held = False
    cluster.run(lambda: joiner.core.log_first != before)
    (asked,) = {cluster.primary.core.replica.tail.sequence + 1}
    assert joiner.core.log_first == joiner.core.replica.applied.sequence + 1 == asked


def test_an_attachment_that_has_ended_takes_no_answer() -> None:
    """And none has begun instead."""
    cluster, joiner = asked_for_a_reset()
    joiner.report(lambda: joiner.core.role.detached(retry_at_once=False))
    (asked,) = [write for write in joiner.writes if isinstance(write, ResetLog)]
    joiner.report(lambda: joiner.core.on_reset(asked))
    assert joiner.core.replica.resyncing
    joiner.writes.remove(asked)
    joiner.disk_held = False
    cluster.run(cluster.all_ready)


def test_an_answer_that_comes_twice_counts_once() -> None:
    """The log goes on after the first."""
    cluster, joiner = asked_for_a_reset()
    (asked,) = [write for write in joiner.writes if isinstance(write, ResetLog)]
    joiner.disk_held = False
    cluster.run(cluster.all_ready)
    before = joiner.core.log_first, joiner.core.replica.tail
    joiner.report(lambda: joiner.core.on_reset(asked))
    assert (joiner.core.log_first, joiner.core.replica.tail) == before and cluster.all_ready()
