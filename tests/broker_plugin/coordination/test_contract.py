"""Every coordination store keeps the contract of its port: compare-and-set, versions, watching, snapshots, the end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from ha.membership.members import ClusterNode, Membership
from ha.membership.record import UNSEEN, CasConflict, Coordination, CoordinationError, Record, Snapshot
from tests.broker_plugin.coordination.contract import STORES, Open
from txobserver.ids import Member

A, B = Member("a", "1"), Member("b", "1")
FIRST = Record("c", 0, 1, A, (A,))
LONG = 3600.0
"""Seconds: a call that returns did not wait for its time to be up"""


@pytest.fixture(name="opened", params=STORES)
def of_each_kind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Handles of one store, closed in the end."""
    opening, handles = STORES[request.param](tmp_path), list[Coordination]()

    def opened() -> Coordination:
        handles.append(opening())
        return handles[-1]

    yield opened
    for handle in handles:
        handle.close()


def test_versions_rise_by_one_and_each_handle_reads_what_another_has_stored(opened: Open) -> None:
    one, two = opened(), opened()
    assert one.read() is None is two.read()
    for version, store in enumerate((one, two, two, one)):
        stored = store.compare_and_set(version, replace(FIRST, version=77))
        assert stored == replace(FIRST, version=version + 1) == one.read() == two.read()


def test_a_change_of_another_version_is_not_made_and_is_told_what_is_there(opened: Open) -> None:
    store = opened()
    for expected in (1, 7):
        with pytest.raises(CasConflict) as conflict:
            store.compare_and_set(expected, FIRST)
        assert conflict.value.current is None and store.read() is None
    there = store.compare_and_set(0, FIRST)
    for expected in (0, 2):
        with pytest.raises(CasConflict) as conflict:
            store.compare_and_set(expected, replace(FIRST, ready=(A, B)))
        assert conflict.value.current == there == store.read()


@pytest.mark.parametrize(
    "other",
    [
        replace(FIRST, generation=3),
        replace(FIRST, generation=4, primary=B),
        replace(FIRST, generation=4, cluster_id="2"),
    ],
    ids=["lower generation", "another primary", "another identity"],
)
def test_a_change_that_may_not_follow_is_not_made(opened: Open, other: Record) -> None:
    store = opened()
    there = store.compare_and_set(0, replace(FIRST, generation=4, cluster_id="1"))
    with pytest.raises(CasConflict) as conflict:
        store.compare_and_set(1, replace(other, cluster_id=other.cluster_id or "1"))
    assert conflict.value.current == there == store.read()


def test_of_several_that_expect_one_version_one_is_first(opened: Open) -> None:
    handles = [opened() for _ in range(4)]
    record = handles[0].compare_and_set(0, FIRST)
    for _ in range(5):
        with ThreadPoolExecutor(4) as threads:
            made = [threads.submit(handle.compare_and_set, record.version, record) for handle in handles]
        won = [each for each in made if each.exception() is None]
        assert len(won) == 1 and all(isinstance(each.exception(), CasConflict) for each in made if each not in won)
        record = won[0].result()
        assert [handle.read() for handle in handles] == [record] * 4


def test_who_has_seen_nothing_waits_for_nothing(opened: Open) -> None:
    store = opened()
    assert store.watch(UNSEEN, LONG, threading.Event()) == Snapshot(0, None)
    there = store.compare_and_set(0, FIRST)
    for after in (UNSEEN, 0, 7):
        assert store.watch(after, LONG, threading.Event()) == Snapshot(1, there)


def test_a_change_ends_the_wait_of_a_watch(opened: Open) -> None:
    """Whichever node makes it, however soon after the watcher has looked."""
    watcher, other = opened(), opened()
    seen = watcher.watch(UNSEEN, LONG, threading.Event())
    for version in range(3):
        assert seen is not None and seen.version == version
        with ThreadPoolExecutor(1) as thread:
            watch = thread.submit(watcher.watch, version, LONG, threading.Event())
            stored = other.compare_and_set(version, replace(FIRST, ready=(A, B)[: version + 1]))
            seen = watch.result()
        assert seen == Snapshot(version + 1, stored)


def test_a_version_that_stands_is_told_again_when_the_time_is_up(opened: Open) -> None:
    """So a node knows that no primary has renewed the lease, and not only that it was not told of a renewal."""
    store = opened()
    assert store.watch(0, 0.0, threading.Event()) == Snapshot(0, None)
    there = store.compare_and_set(0, FIRST)
    for _ in range(3):
        assert store.watch(1, 0.01, threading.Event()) == Snapshot(1, there)


def test_a_watch_ends_when_its_caller_says_so_and_other_calls_follow(opened: Open) -> None:
    store = opened()
    there = store.compare_and_set(0, FIRST)
    assert store.watch(UNSEEN, LONG, threading.Event()) == Snapshot(1, there)
    before, during = threading.Event(), threading.Event()
    before.set()
    assert store.watch(1, LONG, before) is None
    with ThreadPoolExecutor(1) as thread:
        watch: Future[Snapshot | None] = thread.submit(store.watch, 1, LONG, during)
        with suppress(TimeoutError):
            watch.result(0.05)
        during.set()
        assert watch.result() is None
    assert store.compare_and_set(1, there).version == 2


def test_a_snapshot_is_the_whole_record_with_its_version(opened: Open) -> None:
    store, other = opened(), opened()
    assert store.snapshot() == Snapshot(0, None)
    for version in range(3):
        stored = store.compare_and_set(version, replace(FIRST, ready=(A, B)))
        assert store.snapshot() == other.snapshot() == Snapshot(version + 1, stored)


def test_a_snapshot_beside_changes_is_of_one_of_them(opened: Open) -> None:
    store, other = opened(), opened()
    made = [other.compare_and_set(0, FIRST)]
    over = threading.Event()

    def change() -> None:
        while not over.is_set():
            made.append(other.compare_and_set(made[-1].version, made[-1]))

    with ThreadPoolExecutor(1) as thread:
        changes = thread.submit(change)
        try:
            found = [store.snapshot() for _ in range(10)]
        finally:
            over.set()
        changes.result()
    assert found == [Snapshot(each.version, made[each.version - 1]) for each in found]
    assert found == sorted(found, key=lambda each: each.version)


def test_what_was_stored_is_there_when_all_have_let_go_and_come_again(opened: Open) -> None:
    store = opened()
    there = store.compare_and_set(0, FIRST)
    store.close()
    assert opened().read() == there
    store.close()


def test_who_is_given_up_is_not_waited_for(opened: Open) -> None:
    """From another thread, while nothing is asked; what is asked afterwards ends, with an answer or without."""
    store = opened()
    there = store.compare_and_set(0, FIRST)
    store.give_up()
    with suppress(CoordinationError):
        assert store.read() == there


def test_who_is_a_member_is_kept_and_never_forgotten(opened: Open) -> None:
    """A record from before is raised, and read by handles that had it open; none is taken back to before."""
    one, two = opened(), opened()
    first = one.compare_and_set(0, replace(FIRST, cluster_id="1" * 32))
    assert two.read() == first
    members = Membership(1, (ClusterNode("a", "h", 1, True, "1"), ClusterNode("b", "::1", 2)), (Member("c", "9"),))
    second = one.compare_and_set(1, replace(first, membership=members))
    assert two.read() == second and second.membership == members
    with pytest.raises(CasConflict):
        two.compare_and_set(2, replace(second, membership=UNSET))
    assert two.compare_and_set(2, second).version == 3
    assert opened().read() == replace(second, version=3)
