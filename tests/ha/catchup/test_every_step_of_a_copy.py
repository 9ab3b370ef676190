"""A joiner, its primary or the link between them ends at every step of a copy; then every node becomes ready and
agrees.

A step is a message in either direction, or a write of the joiner's disk. What was on its way at that step, and what the
one who dies had not written, is lost. Nothing that was answered is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from ha.effects import WriteCheckpoint
from tests.support.copying import LARGE, PORTION, WINDOW, put
from tests.support.memory_cluster import MemoryCluster, MemoryNode
from tests.support.memory_host import text
from tests.support.steps import all_agree, answered, backups_of, begin, commit, declared, publish
from txobserver.xid import Xid

SLOW = 0.3
"""Seconds that a slow checkpoint takes; a turn takes 0.01"""


class Copy:
    """A node comes back after long, with much that is gone and without much that is there, while load goes on."""

    def __init__(self, slow: bool) -> None:
        self.cluster = cluster = declared("q", "r", size=2, portion_bytes=PORTION, window_bytes=WINDOW)
        self.primary, (joiner,) = cluster.primary, backups_of(cluster)
        self.name = joiner.name
        self.answers: dict[str, bool] = {}
        self._slow = slow
        self._numbers = count()
        for number in range(6):
            publish(self.primary, "q", f"gone {number}")
        answered(cluster, self.primary, "publish gone 5")
        cluster.pause(0.1)
        cluster.kill(self.name)
        cluster.run(lambda: len(cluster.coordination.record.ready) == 1)  # type: ignore[union-attr]
        self._fill()
        self.primary.core.log_first = self.primary.core.replica.tail.sequence + 1
        self.joiner = self.start()

    def _fill(self) -> None:
        primary = self.primary
        host, ledger = primary.host, primary.host.ledger
        primary.report(lambda: ledger.settle(1, [host.entry("q", f"gone {n}") for n in range(5)], 1))
        for _ in range(4):
            put(primary, "q", LARGE)
        primary.report(lambda: ledger.raise_watermark(1, primary.core.replica.contents.messages.ids(1)[-2][0]))
        branch = ledger.begin_branch(Xid(1, b"g", b"b"))
        primary.report(lambda: branch.enqueue([2], text("branch")))
        primary.report(lambda: branch.prepare(host.note("prepare")))
        observer = ledger.begin(b"token")
        primary.report(lambda: observer.enqueue([2], text("of the token")))
        commit(primary, observer, "token")
        begin(primary, {"q": ["open"], "r": ["open"]})
        answered(self.cluster, primary, "token")
        answered(self.cluster, primary, "prepare")

    def start(self) -> MemoryNode:
        node = self.cluster.start(self.name)
        if self._slow:
            begun: list[tuple[WriteCheckpoint, float]] = []

            def held(write: WriteCheckpoint) -> bool:
                if not begun or begun[-1][0] is not write:
                    begun.append((write, self.cluster.now))
                return self.cluster.now - begun[-1][1] < SLOW

            node.checkpoints_held = held
        return node

    def load(self) -> None:
        """Every few turns a message outside transactions, and one transaction into both queues."""
        number = next(self._numbers)
        active = [node for node in self.cluster.nodes.values() if node.host.ledger is not None]
        if number % 3 or not active:
            return
        node = active[0]
        publish(node, "q", f"m{number}")
        commit(node, begin(node, {"q": [f"t{number}"], "r": [f"t{number}"]}), f"t{number}")

    def note_answers(self) -> None:
        for node in self.cluster.nodes.values():
            for label, error in node.host.answers:
                self.answers.setdefault(label, error is None)

    def ended(self) -> None:
        """Every node is ready, holds the same, and all that was answered is there once."""
        cluster = self.cluster
        cluster.run(lambda: cluster.all_ready() and len({n.core.replica.applied for n in cluster.nodes.values()}) == 1)
        self.note_answers()
        all_agree(cluster)
        host = cluster.primary.host
        held, other = host.bodies("q"), host.bodies("r")
        for label, ok in self.answers.items():
            kind, _, body = label.rpartition(" ")
            if not ok or kind == "publish gone":
                continue
            if kind == "publish":
                assert held.count(body) == 1, label
            elif label.startswith("t") and label != "token":
                assert held.count(label) == other.count(label) == 1, label
        assert "gone 5" in held and "gone 0" not in held and other.count("of the token") == 1
        assert all(held.count(body) == 1 for body in held if body.startswith(("m", "t")))
        contents = cluster.primary.core.replica.contents
        assert [each.xid for each in contents.table.branches()] == [Xid(1, b"g", b"b")]
        assert contents.table.outcome(b"token").name == "COMMITTED"


class Stop:
    """At the ``step``-th of what is counted everything stands still: nothing of it arrives or is written any more."""

    def __init__(self, copy: Copy, step: int, writes: bool, written: bool) -> None:
        self.steps = 0
        self.reached = False
        self._copy = copy
        self._step = step
        self._written = written
        if writes:
            self._watch_writes(copy.joiner)
            copy.cluster.lose = lambda source, target, message: self.reached
        else:
            copy.cluster.lose = self._message

    def _message(self, source: str, target: str, message: Any) -> bool:
        self.steps += 1
        self.reached = self.reached or self.steps == self._step
        return self.reached

    def _watch_writes(self, node: MemoryNode) -> None:
        write, report = node._write, node.report

        def counted(each: Any) -> None:
            self.steps += 1
            if not self.reached and self.steps == self._step:
                self.reached = True
                if not self._written:
                    return
            elif self.reached:
                return
            write(each)

        def unless_reached(call: Callable[[], None], stored: bool = False) -> None:
            if not self.reached:
                report(call, stored)

        node._write = counted  # type: ignore[method-assign]
        node.report = unless_reached  # type: ignore[method-assign]

    def run(self) -> bool:
        """Turn until the step is reached; False if the copy is over before."""
        copy = self._copy
        while not self.reached:
            copy.load()
            copy.cluster.turn()
            copy.note_answers()
            if copy.cluster.all_ready() and not self.reached:
                return False
        copy.cluster.lose = lambda source, target, message: False
        return True


def joiner_dies(copy: Copy) -> None:
    copy.cluster.kill(copy.name)
    copy.cluster.pause(0.1)
    copy.start()


def primary_dies(copy: Copy) -> None:
    name = copy.primary.name
    copy.cluster.kill(name)
    copy.cluster.pause(0.1)
    copy.cluster.start(name)


def both_die(copy: Copy) -> None:
    name = copy.primary.name
    copy.cluster.kill(name)
    copy.cluster.kill(copy.name)
    copy.start()
    copy.cluster.pause(0.1)
    copy.cluster.start(name)


def reset(copy: Copy, primary: bool, joiner: bool) -> None:
    """The connections of one or of both of them break, and come back."""
    cluster = copy.cluster
    cluster.wire.clear()
    for node, other, breaks in ((copy.primary, copy.name, primary), (copy.joiner, copy.primary.name, joiner)):
        if breaks:
            node.report(lambda n=node, o=other: n.core.on_link(o, False))  # type: ignore[misc]
            node.report(lambda n=node, o=other: n.core.on_link(o, True))  # type: ignore[misc]


ENDS: dict[str, Callable[[Copy], None]] = {
    "the joiner dies": joiner_dies,
    "the primary dies": primary_dies,
    "both die": both_die,
    "both links are reset": lambda copy: reset(copy, True, True),
    "the link to the joiner is reset": lambda copy: reset(copy, True, False),
    "the link to the primary is reset": lambda copy: reset(copy, False, True),
}


CHECKPOINTS = [
    pytest.param(False, 3, id="fast checkpoints, each third step"),
    pytest.param(True, 16, id="slow checkpoints, each sixteenth step"),
    pytest.param(False, 1, id="fast checkpoints", marks=pytest.mark.every),
    pytest.param(True, 5, id="slow checkpoints, each fifth step", marks=pytest.mark.slice),
    pytest.param(True, 1, id="slow checkpoints", marks=pytest.mark.every),
]
"""Whether they are slow, and which steps are taken. A copy with slow checkpoints takes many more turns."""


def steps_of(slow: bool, every: int, writes: bool, written: bool) -> Iterator[tuple[Copy, int]]:
    """A copy that has come to each of its steps, or to every so many of them."""
    for step in count(1, every):
        copy = Copy(slow)
        if not Stop(copy, step, writes, written).run():
            assert step > (8 if writes else 25), "a copy has that many steps at least"
            return
        yield copy, step


@pytest.mark.parametrize(("slow", "every"), CHECKPOINTS)
@pytest.mark.parametrize("end", ENDS)
def test_it_ends_at_every_message(end: str, slow: bool, every: int) -> None:
    """P1, P2, P3, P7, P12 at every message of a copy, in either direction."""
    for copy, step in steps_of(slow, every, False, False):
        ENDS[end](copy)
        try:
            copy.ended()
        except AssertionError as error:
            raise AssertionError(f"at message {step}: {error}") from error


@pytest.mark.parametrize(("slow", "every"), CHECKPOINTS)
@pytest.mark.parametrize("written", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("end", ["the joiner dies", "both die"])
def test_it_ends_at_every_write(end: str, written: bool, slow: bool, every: int) -> None:
    """The same before each write of the joiner's disk, and after each whose end no node learnt."""
    for copy, step in steps_of(slow, every, True, written):
        ENDS[end](copy)
        try:
            copy.ended()
        except AssertionError as error:
            raise AssertionError(f"at write {step}: {error}") from error


def test_there_are_steps_of_every_kind() -> None:
    """What is stopped above is all that a copy consists of."""
    copy: Copy = Copy(False)
    kinds: set[str] = set()

    def look(source: str, target: str, message: Any) -> bool:
        kinds.add(type(message).__name__)
        return False

    copy.cluster.lose = look
    cluster: MemoryCluster = copy.cluster
    for _ in range(200):
        copy.load()
        cluster.turn()
    assert kinds >= {
        *("Join", "ResyncBegin", "QueueSnapshot", "Missing", "QueueContent", "QueueChange", "SnapshotConfiguration"),
        *("SnapshotQueues", "ForwardTx", "ForwardOutcomes", "SnapshotEnd", "Ack", "Progress", "Entries", "Granted"),
    }
