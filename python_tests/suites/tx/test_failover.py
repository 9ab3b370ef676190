"""SIGKILL of the primary in the middle of transactions, as clients see it: those at the primary, and those at a backup.

At each phase of a transaction some clients stand still there, half of them connected to the primary, half through a
backup. Then the primary is killed, and a survivor is asked what has become of everything.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle, product

import pytest

from python_tests.conftest import Start
from python_tests.harness.history import OK, UNKNOWN
from python_tests.suites.tx.clients import MAKES, Delivery, TxClient, drained, fill
from python_tests.suites.tx.conftest import Open
from tests.support.cases import some_of

SELECTED, PUBLISHED, ACKNOWLEDGED = "after select", "after the publishes", "after the acknowledgement"
HELD_UP, ON_ITS_WAY, ANSWERED = "commit held up by a backup", "commit on its way", "right after commit-ok"
PHASES = (SELECTED, PUBLISHED, ACKNOWLEDGED, HELD_UP, ON_ITS_WAY, ANSWERED)
IN_THE_SUITE = [*zip(cycle(MAKES), PHASES)]
"""Each phase with one make of client, in turn; ``make every-case`` takes each with both."""
ROUNDS = 3
"""Messages that a transaction publishes to each of its queues"""
SETTINGS = ("timing.lease_ttl=2", "timing.prepare_timeout=20")
"""A lease that a busy machine does not end by itself, and patience with a backup that holds a commit up"""


@dataclass
class Transaction:
    """A client's transaction: one input from the source, and messages that bear its name to every target."""

    name: str
    client: TxClient
    source: str
    targets: Sequence[str]
    taken: Delivery | None = None
    answer: Future[str] | None = None

    @property
    def messages(self) -> list[str]:
        """What it publishes to each target."""
        return [f"{self.name}/{number}" for number in range(ROUNDS)]

    def advance(self, phase: str) -> None:
        """Go on to ``phase``, or as far as to the commit."""
        self.client.select()
        if phase == SELECTED:
            return
        self.taken = self.client.get(self.source)
        assert self.taken is not None
        for message in self.messages:
            for target in self.targets:
                self.client.publish(target, message)
        if phase == PUBLISHED:
            return
        self.client.acknowledge(self.taken.tag)

    def commit(self, pool: ThreadPoolExecutor) -> None:
        """Send the commit; its answer is waited for in a thread of ``pool``."""
        self.answer = pool.submit(self.client.commit)


@pytest.mark.parametrize(("client", "phase"), some_of(product(MAKES, PHASES), IN_THE_SUITE), indirect=["client"])
def test_sigkill_of_the_primary(start: Start, client: Open, names: tuple[str, str, str], phase: str) -> None:
    """Committed: whole. Not committed: absent, and its input is back. Unknown: one of the two."""
    cluster = start(*SETTINGS)
    primary, (through, other) = cluster.primary(), cluster.backups()
    assert primary is not None
    source, *targets = names
    inputs = [f"input {number}" for number in range(5)]
    fill(client(cluster.url(through)), names, inputs)
    doors = [primary, through, primary, through]
    transactions = [
        Transaction(f"{number} at {door}", client(cluster.url(door)), source, targets)
        for number, door in enumerate(doors)
    ]
    for transaction in transactions:
        transaction.advance(phase)
    with ExitStack() as stack, ThreadPoolExecutor(len(doors)) as pool:
        if phase == HELD_UP:
            stack.enter_context(cluster.frozen(other))
        if phase in (HELD_UP, ON_ITS_WAY, ANSWERED):
            for transaction in transactions:
                transaction.commit(pool)
        if phase == HELD_UP:
            time.sleep(0.2)  # until the commits have got as far as they get
            assert not any(each.answer.done() for each in transactions if each.answer)
        elif phase == ON_ITS_WAY:
            time.sleep(random.uniform(0, 0.008))  # some commits get far, some do not
        elif phase == ANSWERED:
            assert all(each.answer.result() == OK for each in transactions if each.answer)
        cluster.kill(primary)
    outcomes = {each.name: each.answer.result() if each.answer else each.client.commit() for each in transactions}
    assert set(outcomes.values()) <= {OK, UNKNOWN}
    if phase != ON_ITS_WAY:
        assert set(outcomes.values()) == {OK if phase == ANSWERED else UNKNOWN}
    survivor = client(cluster.url(through))
    found = {queue: drained(survivor, queue) for queue in names}
    judge(transactions, outcomes, found, inputs)


def judge(
    transactions: Sequence[Transaction],
    outcomes: dict[str, str],
    found: dict[str, list[Delivery]],
    inputs: Sequence[str],
) -> None:
    """Each transaction by itself; then, that nothing else is there."""
    source, targets = transactions[0].source, transactions[0].targets
    expected_outputs: dict[str, list[str]] = defaultdict(list)
    back = set(inputs)
    handed_out = set()
    for each in transactions:
        parts = [[d.body for d in found[target] if d.body in each.messages] for target in targets]
        assert parts in ([each.messages] * len(targets), [[]] * len(targets)), f"{each.name} is there in parts: {parts}"
        whole = parts[0] == each.messages
        assert whole or outcomes[each.name] != OK, f"{each.name} was answered ok and is nowhere"
        assert not whole or each.answer is not None, f"{each.name} was not committed and is there"
        for target in targets if whole else []:
            expected_outputs[target] += each.messages
        if each.taken is not None:
            handed_out.add(each.taken.body)
            back -= {each.taken.body} if whole else set()
    for target in targets:
        assert sorted(d.body for d in found[target]) == sorted(expected_outputs[target])
        assert not any(d.redelivered for d in found[target]), "no client can have had it before"
    assert [d.body for d in found[source]] == [body for body in inputs if body in back]
    assert {d.body for d in found[source] if d.redelivered} == handed_out & back


def test_what_was_handed_out_and_not_settled_is_marked(start: Start, client: Open, names: tuple[str, str, str]) -> None:
    """With a prefetch count of 3 and one message settled, four of ten have left the broker; the other six have not."""
    cluster = start(*SETTINGS)
    primary, (through, _) = cluster.primary(), cluster.backups()
    assert primary is not None
    bodies = [f"{number}" for number in range(10)]
    queues = dict(zip((primary, through), names[:2], strict=True))
    for door, queue in queues.items():
        fill(client(cluster.url(door)), [queue], bodies)
        consumer = client(cluster.url(door))
        consumer.select()
        consumer.consume(queue, 3)
        consumer.acknowledge(consumer.received(3)[0].tag)
        assert consumer.commit() == OK
        assert [(d.body, d.redelivered) for d in consumer.received(4)] == [(body, False) for body in bodies[:4]]
    cluster.kill(primary)
    survivor = client(cluster.url(through))
    for queue in queues.values():
        found = drained(survivor, queue)
        assert [d.body for d in found] == bodies[1:]
        assert [d.body for d in found if d.redelivered] == bodies[1:4]
