"""SIGKILL of the primary between a request and its answer: what clients are told is what is so.

At each door of the cluster and for each kind of request a client of each make waits for its answer. Then the primary
is killed. Every client comes back by itself, and must know: none of them is left without an outcome.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from python_tests.conftest import Start
from python_tests.suites.dtx.clients import MAKES, Client
from python_tests.suites.dtx.conftest import SETTINGS, Desk, Open
from recovery.dtx.errors import RolledBack
from txobserver.outcomes import BranchOutcome
from txobserver.xid import Xid

HELD_UP, ON_ITS_WAY, DEAD = "held up by a backup", "on its way", "sent to a dead primary"
TWO_PHASES, SECOND_PHASE, ONE_PHASE, PLAIN = "prepare", "commit", "commit in one phase", "tx.commit"
OK, ROLLED_BACK = "ok", "rolled back"


@dataclass
class Transaction:
    """One client's: an input from the source, and a message of its name for each target."""

    name: str
    kind: str
    client: Client
    xid: Xid = field(default_factory=lambda: Xid(7, uuid.uuid4().bytes, b"b"))
    taken: str = ""
    answer: Future[str] | None = None

    def work(self, source: str, targets: tuple[str, ...]) -> None:
        """As far as to the request whose answer is waited for."""
        if self.kind != PLAIN:
            self.client.do.tpc_begin(self.xid)
        self.taken = self.client.work(source, targets, self.name)
        if self.kind == SECOND_PHASE:
            self.client.do.tpc_prepare()

    def finish(self) -> str:
        """The request, and what it is said to have come to; a prepared branch is committed then."""
        do = self.client.do
        try:
            if self.kind == PLAIN:
                do.commit(self.xid.gtrid)
                return OK
            if self.kind == TWO_PHASES:
                do.tpc_prepare()
            do.tpc_commit()
        except RolledBack:
            if self.kind != PLAIN:
                do.tpc_rollback()
            return ROLLED_BACK
        return OK

    def outcome(self) -> BranchOutcome:
        """Asked for once more."""
        name = self.xid.gtrid if self.kind == PLAIN else self.xid
        found: BranchOutcome = self.client.do.outcome(name)
        return found


@pytest.mark.parametrize("phase", [HELD_UP, ON_ITS_WAY, DEAD])
def test_every_client_knows_what_became_of_its_transaction(
    start: Start, opened: Callable[[str], Open], names: tuple[str, str, str], phase: str
) -> None:
    cluster = start(*SETTINGS)
    primary, (through, other) = cluster.primary(), cluster.backups()
    assert primary is not None
    kinds = [
        (kind, make, door)
        for kind in (TWO_PHASES, SECOND_PHASE, ONE_PHASE, PLAIN)
        for make in MAKES
        for door in (primary, through)
    ]
    source, *targets = names
    Desk(cluster.url(through)).fill(names, *(f"input {number}" for number in range(len(kinds) + 1)))
    transactions = []
    for kind, make, door in kinds:
        hosts = [cluster.url(door), *cluster.urls]
        client = opened(make)(*hosts, two_phase=kind != PLAIN)
        transactions.append(Transaction(f"{kind}, {make} at {door}", kind, client))
    for each in transactions:
        each.work(source, tuple(targets))
    with ThreadPoolExecutor(len(transactions)) as pool, ExitStack() as stack:
        if phase == HELD_UP:
            stack.enter_context(cluster.frozen(other))
        if phase != DEAD:
            for each in transactions:
                each.answer = pool.submit(each.finish)
            time.sleep(0.2 if phase == HELD_UP else random.uniform(0, 0.02))
            assert phase != HELD_UP or not any(each.answer.done() for each in transactions if each.answer)
        cluster.kill(primary)
    told = {each.name: each.answer.result() if each.answer else each.finish() for each in transactions}
    judge(transactions, told, Desk(cluster.url(through)), names)


def judge(transactions: list[Transaction], told: dict[str, str], desk: Desk, names: tuple[str, str, str]) -> None:
    """Committed: whole, and its outcome can be asked for. Rolled back: absent, and its input is there again."""
    inputs = {each.taken for each in transactions}
    for each in transactions:
        assert told[each.name] == OK or each.kind != SECOND_PHASE, "what was prepared can be committed"
        assert (each.outcome() is BranchOutcome.COMMITTED) == (told[each.name] == OK), each.name
        each.client.close()
    committed = [each for each in transactions if told[each.name] == OK]
    for target in names[1:]:
        assert sorted(desk.drained(target)) == sorted(each.name for each in committed)
    left = desk.drained(names[0])
    assert len(left) == len(set(left)) and set(left) & inputs == inputs - {each.taken for each in committed}
