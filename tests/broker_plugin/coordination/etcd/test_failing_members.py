"""Three real members of etcd that fail: what a store promises of its answers holds, and it comes back by itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from broker_plugin.coordination.etcd.etcd_coordination import EtcdCoordination
from broker_plugin.coordination.etcd.etcd_process import EtcdProcess
from broker_plugin.coordination.etcd.place import EtcdPlace
from ha.membership.record import UNSEEN, CasConflict, Coordination, CoordinationError, Record
from python_tests.harness.servers.etcd import EtcdServers
from python_tests.harness.waiting import wait_until
from txobserver.ids import Member

A = Member("a", "1")
FIRST = Record("c", 0, 1, A, (A,))
PATIENCE = 60.0
"""Seconds that a test waits for what comes about by itself: an election on a busy machine among them"""
LONG = 3600.0


@pytest.fixture(scope="module", name="servers")
def three_members() -> Iterator[EtcdServers]:
    with EtcdServers(3) as servers:
        yield servers


@pytest.fixture(name="place")
def of_this_test(servers: EtcdServers, tmp_path: Path) -> EtcdPlace:
    """With all members running."""
    servers.start(*servers.missing())
    return EtcdPlace.of_url(servers.address(str(tmp_path)).removeprefix("etcd://"))


@contextmanager
def opened(place: EtcdPlace, *more: Any, **options: Any) -> Iterator[EtcdCoordination]:
    store = EtcdCoordination(place, "c", True, *more, **options)
    try:
        yield store
    finally:
        store.close()


def sure(call: Callable[[], Any]) -> Any:
    """What the call answers when it does, tried again as its caller does."""
    found: list[Any] = []

    def answered() -> bool:
        try:
            found.append(call())
        except CoordinationError:
            return False
        return True

    wait_until(answered, PATIENCE, "an answer of etcd")
    return found[0]


def founded(store: Coordination, record: Record = FIRST) -> Record:
    """What is there, or this record; another try may have made it."""

    def made() -> Record:
        try:
            return store.read() or store.compare_and_set(0, record)
        except CasConflict as conflict:
            assert conflict.current is not None
            return conflict.current

    return sure(made)  # type: ignore[no-any-return]


class Writer:
    """Changes the record as often as it can, each time to what no other change makes of it."""

    def __init__(self, store: Coordination, name: str) -> None:
        self.stored: list[Record] = []
        self.refused: list[Record] = []
        self.unknown: list[Record] = []
        self._store, self._name = store, name

    def change(self) -> None:
        """Once."""
        number = len(self.stored) + len(self.refused) + len(self.unknown)
        try:
            current = self._store.read()
            assert current is not None
        except CoordinationError:
            return
        wished = replace(current, ready=(Member(self._name, str(number)),))
        try:
            self.stored.append(self._store.compare_and_set(current.version, wished))
        except CasConflict:
            self.refused.append(wished)
        except CoordinationError:
            self.unknown.append(wished)

    def until(self, over: threading.Event) -> None:
        """Again and again."""
        while not over.is_set():
            self.change()


def check_history(writers: list[Writer], seen: list[Record]) -> None:
    """Each version is one record; what was refused was never made; what was stored follows what was there."""
    by_version: dict[int, Record] = {}
    for record in [*seen, *(stored for writer in writers for stored in writer.stored)]:
        assert by_version.setdefault(record.version, record) == record, "one version was given twice"
    made = {record.ready for record in by_version.values()}
    assert not made & {wished.ready for writer in writers for wished in writer.refused}
    for writer in writers:
        versions = [stored.version for stored in writer.stored]
        assert versions == sorted(set(versions))


def under_load(
    place: EtcdPlace, fault: Callable[[], AbstractContextManager[None]]
) -> tuple[list[Writer], list[Record]]:
    """Two writers and a reader, before a fault, while it lasts and behind it: what each of them has seen."""
    seen: list[Record] = []
    over = threading.Event()
    with opened(place) as reader, opened(place, 5.0, 0.5) as one, opened(place, 5.0, 0.5) as other:
        founded(reader)
        writers = [Writer(one, "one"), Writer(other, "other")]

        def look() -> None:
            while not over.is_set():
                version = seen[-1].version if seen else UNSEEN
                if (found := sure(lambda known=version: reader.watch(known, 1.0, threading.Event()))) is not None:
                    seen.append(found.record)

        def each_has_stored(more: int) -> None:
            before = [len(writer.stored) for writer in writers]
            wait_until(
                lambda: all(len(writer.stored) >= was + more for writer, was in zip(writers, before, strict=True)),
                PATIENCE,
                "changes by both writers",
            )

        with ThreadPoolExecutor(3) as threads:
            running = [threads.submit(look), *(threads.submit(writer.until, over) for writer in writers)]
            try:
                each_has_stored(10)
                with fault():
                    each_has_stored(10)
                each_has_stored(10)
            finally:
                over.set()
            for each in running:
                each.result()
        seen.append(sure(reader.read))
    return writers, seen


def test_the_leader_dies_while_the_record_is_changed(servers: EtcdServers, place: EtcdPlace) -> None:
    """P10: each outcome that was told is true, and changes go on with the next leader."""

    @contextmanager
    def killed() -> Iterator[None]:
        leader = servers.leader()
        servers.kill(leader)
        yield
        servers.start(leader)

    writers, seen = under_load(place, killed)
    check_history(writers, seen)
    versions = [record.version for record in seen]
    assert versions == sorted(versions), "a reading went back"


@pytest.mark.parametrize("which", ["the first", "the leader"])
def test_a_member_hangs_while_the_record_is_changed(servers: EtcdServers, place: EtcdPlace, which: str) -> None:
    """Its connections stay open and nothing comes: the next member is asked."""
    hung = 0 if which == "the first" else servers.leader()
    check_history(*under_load(place, lambda: servers.frozen(hung)))


def test_no_majority_is_an_error_until_there_is_one(servers: EtcdServers, place: EtcdPlace) -> None:
    """P10: the member that is left says that it has no leader, and tells nothing, not even what it knows."""
    with opened(place, 1.0, 0.5) as store:
        there = founded(store)
        servers.kill(0, 1)
        wait_until(lambda: "has no leader" in complaint(store.read), PATIENCE, "the end of the leadership")
        assert complaint(store.snapshot) and complaint(lambda: store.compare_and_set(1, FIRST))
        assert complaint(lambda: store.watch(UNSEEN, LONG, threading.Event()))
        assert complaint(lambda: store.watch(1, 0.01, threading.Event()))
        servers.start(0)
        assert sure(store.read).version in (1, 2)
        stored = sure(lambda: store.compare_and_set(sure(store.read).version, replace(there, ready=(A,))))
        assert store.read() == stored


def complaint(call: Callable[[], Any]) -> str:
    """What the call says that goes wrong; empty if it does not."""
    try:
        call()
    except CoordinationError as error:
        return str(error)
    return ""


def test_all_are_gone_and_come_again(servers: EtcdServers, place: EtcdPlace) -> None:
    """Also for the process of a node, and a watch that waits."""
    with opened(place, 1.0, 0.5) as store:
        there = founded(store)
        node = EtcdProcess(place, "c", 5.0)
        assert sure(node.read) == there
        servers.kill(0, 1, 2)
        assert "cannot be reached" in complaint(store.read) and "cannot be reached" in complaint(node.read)
        assert "cannot be reached" in complaint(lambda: node.watch(1, 0.01, threading.Event()))
        servers.start(0, 1, 2)
        assert sure(store.read) == sure(node.read) == there
        assert sure(lambda: node.watch(UNSEEN, LONG, threading.Event())).record == there
        seen = changed_while_watched(store, node)
        assert seen.version == 2
        node.close()


def changed_while_watched(store: EtcdCoordination, node: EtcdProcess) -> Any:
    with ThreadPoolExecutor(1) as thread:
        watch = thread.submit(node.watch, 1, LONG, threading.Event())
        sure(lambda: store.compare_and_set(1, FIRST))
        return watch.result(PATIENCE)


def test_a_watch_is_told_by_the_next_member(servers: EtcdServers, place: EtcdPlace) -> None:
    """The member whose stream it was dies; a change wakes the watch all the same, though it asks nothing by itself."""
    with opened(place) as store, opened(place) as watcher:
        record = founded(store)
        assert sure(lambda: watcher.watch(UNSEEN, LONG, threading.Event())).version == 1
        for member in (0, 1, 2):
            servers.start(*servers.missing())
            with ThreadPoolExecutor(1) as thread:
                watch = thread.submit(watcher.watch, record.version, LONG, threading.Event())
                servers.kill(member)
                record = sure(lambda known=record: store.compare_and_set(sure(store.read).version, known))
                found = watch.result(PATIENCE)
            assert found is not None and found.version > 1
            record = sure(store.read)
            assert sure(lambda: watcher.watch(UNSEEN, LONG, threading.Event())).record == record


def test_a_change_that_was_not_answered_is_not_told_as_refused(servers: EtcdServers, place: EtcdPlace) -> None:
    """P10: the member hangs with the change in its hands, and may make it when it goes on."""
    with opened(place, 1.0, 0.5) as store, opened(place) as other:
        there = founded(store)
        asked = place.members.index(next(store._members._in_turn()))
        with servers.frozen(asked):
            said = complaint(lambda: store.compare_and_set(1, there))
        assert "whether the coordination record was changed is not known" in said
        assert "gives no answer in time" in said and place.members.index(next(store._members._in_turn())) != asked
        assert sure(other.read).version in (1, 2)
