"""Thousands of prepared branches: what they hold, and what they cost those who have nothing to do with them.

Work is counted in lines of Python, not in time.
"""

from __future__ import annotations

import tracemalloc

import pytest

from tests.support.branch_steps import alone, content_of, decide, in_doubt, ledger_of, outcome, prepare, work_on
from tests.support.memory_cluster import MemoryCluster, MemoryNode
from tests.support.operations import lines_of
from tests.support.steps import begin_t, commit
from txobserver.outcomes import BranchOutcome
from txobserver.state.transaction_table import described
from txobserver.xid import Xid

MANY = 3_000


def xid_of(number: int) -> Xid:
    return Xid(1, b"gtrid-%08d" % number, b"broker")


def with_prepared(count: int) -> tuple[MemoryCluster, MemoryNode]:
    """One node with so many prepared branches, each with a message for one queue."""
    cluster, node = alone()
    for number in range(count):
        prepare(node, work_on(node, xid_of(number), ("q",)), f"prepare {number}")
        node.host.answers.clear()
    cluster.pause(0.2)
    assert len(in_doubt(node)) == count
    return cluster, node


@pytest.fixture(scope="module")
def many() -> tuple[MemoryCluster, MemoryNode]:
    return with_prepared(MANY)


def test_what_they_hold() -> None:
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        kept = with_prepared(1000)
        for node in kept[0].nodes.values():
            node.disk.frames.clear()
            assert node.core.leading
            node.core.leading.fanout.recent._frames.clear()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / 1000 < 6000, "bytes for each"


@pytest.mark.plain
def test_what_a_list_of_them_costs(many: tuple[MemoryCluster, MemoryNode]) -> None:
    few = with_prepared(100)[1]
    each = [lines_of(lambda n=node: content_of(n).branches()) / count for node, count in ((few, 100), (many[1], MANY))]
    assert each[1] < 1.2 * each[0]


@pytest.mark.plain
def test_what_others_cost_beside_them(many: tuple[MemoryCluster, MemoryNode]) -> None:
    """A plain transaction, a branch, and a decision by xid take as much work as beside a hundred."""
    few = with_prepared(100)
    costs: list[list[int]] = []
    for (cluster, node), last in ((few, 99), (many, MANY - 1)):

        def plain(n: MemoryNode = node) -> None:
            commit(n, begin_t(n), "plain")

        def branch(n: MemoryNode = node) -> None:
            prepare(n, work_on(n, Xid(2, b"new", b"")), "new")

        def decision(n: MemoryNode = node, number: int = last) -> None:
            decide(n, True, xid_of(number))

        found = []
        for call in (plain, branch, decision):
            node.host.answers.clear()
            found.append(lines_of(call))
            cluster.pause(0.1)
        costs.append(found)
        assert outcome(node, xid_of(last)) is BranchOutcome.COMMITTED
    assert all(abs(one - other) <= 0.05 * one for one, other in zip(*costs, strict=True)), costs


def test_all_of_them_are_decided_by_their_gtrids(many: tuple[MemoryCluster, MemoryNode]) -> None:
    cluster, node = many
    for number in range(1000):
        node.report(lambda n=number: ledger_of(node).decide_global(*xid_of(n).globally, False, lambda _: None))  # type: ignore[misc]
    cluster.pause(0.5)
    assert outcome(node, xid_of(500)) is BranchOutcome.ROLLED_BACK and xid_of(500) not in in_doubt(node)


@pytest.mark.plain
def test_what_the_steps_of_a_great_branch_cost() -> None:
    """``a_branch_lists_what_it_locks_at_each_step``: its prepare and its end went through all that it held, twice."""

    def costs(messages: int) -> list[int]:
        cluster, node = alone()
        branch = work_on(node, xid_of(1), ("q",) * messages)
        table = node.core.replica.contents.table
        buffer = next(iter(node.core.replica.buffers.values()))
        prepare(node, branch, "prepare")
        cluster.pause(0.2)
        found = lines_of(lambda: described(buffer)), lines_of(lambda: table.branch_prepared(buffer))
        return [*found, lines_of(lambda: table._branch_ended(buffer))]

    assert costs(10) == costs(1000)
