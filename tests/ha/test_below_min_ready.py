"""Below ``min_ready`` nothing is confirmed; what nobody waits for is taken all the same, as from any client."""

from __future__ import annotations

from tests.ha.memory_host import text
from tests.ha.steps import backups_of, declared
from txobserver.events import TxOpen


def test_what_is_confirmed_is_refused_and_what_is_not_is_taken() -> None:
    cluster = declared("q", min_ready=2)
    node = cluster.primary
    primary, number = node.core.primary, node.host.number("q")
    assert primary is not None and not primary.below_min_ready
    for backup in backups_of(cluster):
        cluster.kill(backup.name)
    cluster.run(lambda: primary.below_min_ready)
    answers: list[str | None] = []
    tail = node.core.replica.tail.sequence
    primary.publish([number], text("m"), answers.append)
    assert len(answers) == 1 and answers[0] and node.core.replica.tail.sequence == tail
    primary.publish([number], text("m"), None)
    assert len(answers) == 1 and node.core.replica.tail.sequence == tail + 1


def test_a_primary_that_was_abandoned_takes_nothing() -> None:
    """Late calls of clients that are being closed have no effect."""
    cluster = declared("q")
    node = cluster.primary
    primary, number = node.core.primary, node.host.number("q")
    assert primary is not None
    primary.abandon()
    assert primary.abandoned and primary.append(TxOpen(77)) == 0
    tail = node.core.replica.tail.sequence
    primary.publish([number], text("m"), None)
    assert node.core.replica.tail.sequence == tail
