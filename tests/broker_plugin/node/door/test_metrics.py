"""Numbers of a node: how old is what a backup lacks, how often it was primary, and all queues without a long turn."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from broker_plugin.admin.server import CommandRefused
from broker_plugin.node.door.metrics import MOST_WALKS, PAGE, TAIL_SECONDS, TAILS_KEPT, NodeMetrics, TailHistory
from broker_plugin.node.readiness import Readiness
from txobserver.calls import KeptCalls
from txobserver.ids import Member, Position
from txobserver.vhosts import full_name


class TestTailHistory:
    def test_what_is_acknowledged_is_no_age(self) -> None:
        tails = TailHistory()
        tails.note(1.0, 10)
        assert tails.age(9.0, 10, 10) == 0.0

    def test_the_age_is_that_of_the_first_that_lacks(self) -> None:
        tails = TailHistory()
        for second in range(10):
            tails.note(float(second), 10 * second)
        assert tails.age(9.0, 40, 90) == 4.0, "50 has been there since second 5"
        assert tails.age(9.0, 45, 90) == 4.0 and tails.age(9.0, 0, 90) == 8.0
        assert tails.age(9.05, 90, 95) == 0.0, "it came just now"

    def test_notes_are_not_too_many_nor_too_close(self) -> None:
        tails = TailHistory()
        for step in range(3 * TAILS_KEPT):
            tails.note(step * TAIL_SECONDS / 2 + 0.001, step)
        assert len(tails._times) <= 2 * TAILS_KEPT
        assert all(b - a >= TAIL_SECONDS for a, b in zip(tails._times, tails._times[1:], strict=False))

    def test_a_stream_that_was_cut_begins_anew(self) -> None:
        tails = TailHistory()
        tails.note(1.0, 100)
        tails.note(2.0, 50)
        tails.note(3.0, 60)
        assert tails.age(5.0, 55, 60) == 2.0


class Queue:
    def __init__(self, number: int) -> None:
        self.name = full_name("v" if number == 2 else "/", f"q{number}")
        self.deleted, self.ready, self.out, self.consumers = False, number, 1, {1: None}


class Node:
    """As much of a node as is counted."""

    def __init__(self, queues: int = 3) -> None:
        self.there = [Queue(number) for number in range(queues)]
        session = SimpleNamespace(acknowledged=90, lag_bytes=77, trackers=[1, 2], member=Member("b", "1"))
        self.leading: Any = SimpleNamespace(
            keeper=SimpleNamespace(serves_until=12.5, is_ready=lambda member: True),
            backups=SimpleNamespace(sessions={"b": session}),
        )
        table = SimpleNamespace(prepared={"x": SimpleNamespace(prepared_ms=2_000), "y": SimpleNamespace(prepared_ms=9)})
        contents = SimpleNamespace(table=table, configuration=SimpleNamespace(queues={"q": None}))
        buffers = {n: SimpleNamespace(prepared=n if n > 1 else None) for n in range(5)}
        hands = SimpleNamespace(local=SimpleNamespace(cursor=SimpleNamespace(tnx_id=0), intent=None), failed=None)
        runner = SimpleNamespace(calls=KeptCalls(), failing=None)
        self.core: Any = SimpleNamespace(
            now=10.0, wall_ms=5_000, member=Member("a", "1"), state="active", generation=4, leading=self.leading,
            record=SimpleNamespace(ready=[Member("a", "1"), Member("b", "1")], cluster="c", cluster_id="i"),
            replica=SimpleNamespace(
                applied=Position(4, 95), tail=Position(4, 100), buffers=buffers, contents=contents
            ),
            feed=SimpleNamespace(commit=96), waits_for_operator=None,
            calls=SimpleNamespace(runner=runner, hands=hands, initiator=SimpleNamespace(not_undone="")),
        )  # fmt: skip
        shell: Any = SimpleNamespace(turns=8, look_at_clock=lambda: None)
        monitor = SimpleNamespace(long_turns=2, longest_seconds=0.5)
        store: Any = SimpleNamespace(syncs=5, synced_bytes=600, waiting=1)
        guard: Any = SimpleNamespace(monitor=monitor)
        self.amiss: dict[str, str] = {}
        self.metrics = NodeMetrics(guard, self.core, shell, store, self, Readiness(3, 2), lambda: self.amiss)

    def queues(self) -> Any:
        return self.there

    def counted(self) -> dict[str, int]:
        return {"received": 7}

    def shown(self) -> dict[str, Any]:
        return {"alarms": ["low on memory"], "memory": {"held": 5, "high_bytes": 9}, "disk": {"free": 3, "least": 1}}

    async def ask(self, command: str, **arguments: Any) -> Any:
        return await self.metrics.handlers[command](arguments)


async def test_numbers_of_a_primary() -> None:
    node = Node()
    for now in (1.0, 4.0, 10.0):
        node.core.now, node.core.replica.tail = now, Position(4, int(80 + 2 * now))
        node.metrics.look()
    node.core.replica.tail = Position(4, 100)
    found = await node.ask("metrics.node")
    assert found["backups"]["b"] == {"ready": 1, "lag_events": 10, "lag_bytes": 77, "lag_seconds": 0.0, "trackers": 2}
    expected = {
        "active": 1, "ready": 1, "generation": 4, "take_overs": 1, "commit_point": 96, "applied": 95, "tail": 100,
        "ready_nodes": 2, "min_ready": 2, "nodes": 3, "waits_for_operator": 0, "lease_margin": 2.5, "turns": 8,
        "long_turns": 2, "longest_turn": 0.5, "syncs": 5, "synced_bytes": 600, "writer_queue": 1, "calls_behind": 0,
        "call_fails": 0, "transactions_open": 2, "transactions_prepared": 3, "branches_in_doubt": 2,
        "oldest_in_doubt": 3.0, "queues_declared": 1, "memory_alarm": 1, "disk_alarm": 0, "memory_held": 5,
        "memory_high": 9, "disk_free": 3, "disk_least": 1, "connections": None, "certificate_expires": None,
    }  # fmt: skip
    assert found["values"] == expected


async def test_a_call_fails_where_an_operator_must_mend_something() -> None:
    """Also where one that has no number cannot be undone, and where what one has set is not so: the alert is on it."""
    node = Node()
    calls = node.core.calls

    async def fails() -> int:
        found = (await node.ask("metrics.node"))["values"]["call_fails"]
        assert type(found) is int
        return found

    assert await fails() == 0
    calls.runner.failing = SimpleNamespace(tnx_id=7)
    assert await fails() == 1
    calls.runner.failing, calls.initiator.not_undone = None, "no room"
    assert await fails() == 1
    calls.initiator.not_undone, node.amiss = "", {"listener x": "its port is taken"}
    assert await fails() == 1
    node.amiss = {}
    assert await fails() == 0


async def test_take_overs_are_counted_once_each_and_never_fall() -> None:
    node = Node()
    seen = []
    for generation, leading in ((4, True), (4, True), (5, False), (6, True), (6, False), (6, False), (7, True)):
        node.core.generation, node.core.leading = generation, node.leading if leading else None
        node.metrics.look()
        seen.append(node.metrics.take_overs)
    assert seen == [1, 1, 1, 2, 2, 2, 3]


async def test_a_backup_says_nothing_of_backups_and_has_no_lease() -> None:
    node = Node()
    node.core.leading, node.core.state = None, "ready"
    found = await node.ask("metrics.node")
    assert found["backups"] == {} and found["values"]["lease_margin"] is None and found["values"]["active"] == 0


async def test_all_queues_are_summed_up_some_in_a_turn() -> None:
    """Other work of the loop is done in between."""
    node, turns = Node(5 * PAGE + 1), 0

    async def other_work() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    node.there[0].deleted = True
    beside = asyncio.create_task(other_work())
    await asyncio.sleep(0)
    before = turns
    found = await node.ask("metrics.totals")
    assert turns - before >= 5
    beside.cancel()
    count = 5 * PAGE
    assert found == {
        "queues": count + 1, "ready": count * (count + 1) // 2, "unacknowledged": count, "consumers": count
    }  # fmt: skip


async def test_queues_come_in_pages_as_of_the_begin() -> None:
    node = Node(2 * PAGE + 5)
    page = await node.ask("metrics.queues")
    rows = list(page["rows"])
    gone = node.there.pop(0)
    node.there[PAGE].deleted = gone.deleted = True
    while page["next"] is not None:
        page = await node.ask("metrics.queues", walk=page["walk"], at=page["next"])
        rows += page["rows"]
    names = [row[0] for row in rows]
    assert names == [f"q{number}" for number in range(2 * PAGE + 5) if number != PAGE + 1]
    assert rows[2] == ("q2", 2, 1, 1, "v") and not node.metrics._walks
    empty = await Node(0).ask("metrics.queues")
    assert empty["rows"] == [] and empty["next"] is None


async def test_walks_are_few_and_one_that_was_forgotten_is_told() -> None:
    node = Node(2 * PAGE)
    first = await node.ask("metrics.queues")
    for _ in range(MOST_WALKS):
        await node.ask("metrics.queues")
    assert len(node.metrics._walks) == MOST_WALKS
    with pytest.raises(CommandRefused, match="begin again"):
        await node.ask("metrics.queues", walk=first["walk"], at=PAGE)
    for given in ({"walk": "x"}, {"at": -1}, {"at": None}):
        with pytest.raises(CommandRefused, match="whole numbers"):
            await node.ask("metrics.queues", **given)
