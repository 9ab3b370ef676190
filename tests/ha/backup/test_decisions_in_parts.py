"""A backup asks for no place in the stream while decisions that it knows of wait to be applied in parts."""

from __future__ import annotations

from typing import Any

from ha.apply.checkpointing import Checkpointing
from ha.apply.replica import Replica
from ha.backup.backup import Backup
from ha.effects import LogLine, Send, WriteCheckpoint
from ha.messages.attaching import Follow, Join, Leave
from ha.settings import Settings
from tests.ha.apply.test_parts import replica_with
from tests.support.messages import TEXT
from txobserver.events import Event, TxDecision, TxEnqueue, TxOpen, TxPrepare
from txobserver.ids import Member

SETTINGS = Settings(rejoin_every=0.0, apply_steps=2, checkpoint_every=0.001)
PUBLISHED = 8


def transaction(tx: int) -> list[Event]:
    published = [TxEnqueue(tx, 100 * tx + at, (1,), TEXT) for at in range(PUBLISHED)]
    return [TxOpen(tx), *published, TxPrepare(tx, PUBLISHED, ["a", "b"]), TxDecision(tx, True)]


class Story:
    """Backup b, whose attachment to a former primary has ended when it knew that two decisions count."""

    def __init__(self) -> None:
        self.effects: list[Any] = []
        self.replica: Replica = replica_with(*transaction(201), *transaction(202))
        tail = self.replica.tail.sequence
        self.first = tail - len(transaction(202))
        self.checkpoints = Checkpointing(self.replica, SETTINGS, self.effects.append)
        self.replica.apply(self.first - 1)
        self.backup = Backup("a", 1, Member("b", "b1"), self.replica, SETTINGS, self.effects.append, lambda _: None)
        self.now = 100.0

    def said(self, kind: type) -> list[Any]:
        found = [each for each in self.effects if not isinstance(each, LogLine)]
        self.effects.clear()
        return [each.message if isinstance(each, Send) else each for each in found
                if isinstance(each.message if isinstance(each, Send) else each, kind)]  # fmt: skip

    def turn(self) -> None:
        self.now += 1
        self.backup.turn()
        self.backup.tick(True, 7, self.now)


def test_a_backup_that_rests_for_a_checkpoint_does_not_ask_yet() -> None:
    """``decision_begun_behind_a_rest``: it asked between two decisions, began the second one when its checkpoint had
    begun, and ended when it was told to cut its log before that: an operator had accepted its loss elsewhere."""
    story = Story()
    story.backup.commit(story.replica.tail.sequence)
    assert story.replica.in_parts
    story.checkpoints.tick(story.now)
    assert story.replica.rests
    while story.replica.in_parts:
        story.turn()
    story.turn()
    assert story.replica.applied.sequence == story.first and not story.said(Join)
    story.checkpoints.tick(story.now)
    assert story.said(WriteCheckpoint) and not story.replica.rests
    joins: list[Any] = []
    while not joins:
        story.turn()
        joins = story.said(Join)
    assert joins[0].applied == story.replica.tail.sequence, "all that it knows of is applied when it asks"


def test_a_log_is_not_cut_before_a_decision_that_has_begun() -> None:
    """It leaves, with a sentence, and goes on."""
    story = Story()
    story.backup.commit(story.first)
    while not story.said(Join):
        story.turn()
    story.backup.commit(story.replica.tail.sequence)
    story.backup.turn()
    assert story.replica.in_parts and story.replica.applied.sequence < story.replica.begun
    before = story.replica.applied.sequence
    story.backup.take(Follow(1, 7, before, before), story.now)
    (leave,) = story.said(Leave)
    assert leave.reason.endswith(f"cannot be cut after {before}") and not story.backup.attached
