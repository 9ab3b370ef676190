"""What stands in etcd besides our own record: nothing, damage, another cluster's, a copy, an earlier state."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from broker_plugin.coordination.etcd import wire
from broker_plugin.coordination.etcd.etcd_coordination import TRANSACTIONS, EtcdCoordination
from broker_plugin.coordination.etcd.etcd_process import EtcdProcess
from broker_plugin.coordination.etcd.place import EtcdPlace
from ha.membership.record import UNSEEN, CasConflict, Coordination, CoordinationError, ForeignRecord, Record, Snapshot
from python_tests.harness.servers.etcd import EtcdServers
from tests.broker_plugin.coordination.contract import place_below
from tests.support.etcd import one_member
from txobserver.ids import Member

A, B = Member("a", "1"), Member("b", "1")
FIRST = Record("c", 0, 1, A, (A,))
LONG = 3600.0


@pytest.fixture(name="place")
def of_this_test(tmp_path: Path) -> EtcdPlace:
    return place_below(tmp_path)


@pytest.fixture(name="store")
def of_this_place(place: EtcdPlace) -> Iterator[EtcdCoordination]:
    store = EtcdCoordination(place, "c", create=True)
    yield store
    store.close()


def put(place: EtcdPlace, value: str) -> None:
    """As an operator may, and what goes wrong."""
    assert one_member().control(0, "put", place.key.decode(), value).returncode == 0


def value_at(place: EtcdPlace) -> str:
    return one_member().control(0, "get", "--print-value-only", place.key.decode()).stdout.rstrip("\n")


def changed(place: EtcdPlace, **parts: Any) -> None:
    """Something in the stored value is another one."""
    put(place, msgspec.json.encode(msgspec.json.decode(value_at(place)) | parts).decode())


DAMAGE = {
    "no JSON": lambda place: put(place, "x"),
    "another checksum": lambda place: changed(place, checksum=7),
    "another record": lambda place: changed(place, record={"cluster": "c"}),
    "version 0": lambda place: put(
        place, value_at(place).replace('"version":1', '"version":0').replace('"checksum"', '"sum"')
    ),
    "a later format": lambda place: changed(place, format=3),
    "of another etcd": lambda place: changed(place, etcd="7"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_damaged_is_never_gone_by(place: EtcdPlace, store: EtcdCoordination, damage: str) -> None:
    """P10: it is told of with what is there, for operators, and nothing is changed in it."""
    there = store.compare_and_set(0, FIRST)
    DAMAGE[damage](place)
    content = value_at(place)
    other = EtcdCoordination(place, "c", create=True)
    for each in (store, other):
        with pytest.raises(CoordinationError, match="stop all nodes and write a new one with `txha recover`"):
            each.read()
        for expected in (0, 1):
            with pytest.raises(CoordinationError):
                each.compare_and_set(expected, there)
        with pytest.raises(CoordinationError):
            each.watch(UNSEEN, LONG, threading.Event())
    found = other.snapshot()
    assert (found.version, found.record, found.content) == (0, None, content.encode())
    assert place.key.decode() in found.damage and "txha recover" not in found.damage
    assert value_at(place) == content
    other.close()


def test_a_flipped_bit_is_found(place: EtcdPlace, store: EtcdCoordination) -> None:
    store.compare_and_set(0, FIRST)
    put(place, value_at(place).replace('"generation":1', '"generation":3'))
    assert store.snapshot().damage


def test_the_record_of_another_cluster_is_left_alone(place: EtcdPlace, store: EtcdCoordination) -> None:
    theirs = EtcdCoordination(place, "other", create=True)
    there = theirs.compare_and_set(0, replace(FIRST, cluster="other"))
    node = EtcdProcess(place, "c")
    for each in (store, node):
        calls = (each.read, each.snapshot, lambda one=each: one.compare_and_set(0, FIRST))
        for call in calls:
            with pytest.raises(
                ForeignRecord, match="belongs to cluster other, not to cluster c: name the right prefix"
            ):
                call()
    assert theirs.read() == there
    node.close()
    theirs.close()


def test_a_process_tells_of_damage(place: EtcdPlace) -> None:
    put(place, "x")
    node = EtcdProcess(place, "c")
    found = node.snapshot()
    assert found.content == b"x" and found.damage
    node.close()


@pytest.mark.parametrize("kind", ["in this process", "through a process"])
def test_a_key_that_is_deleted_is_no_record_and_no_node_makes_one(
    place: EtcdPlace, store: EtcdCoordination, kind: str
) -> None:
    """A watch is told of that at once."""
    there = store.compare_and_set(0, FIRST)
    node: Coordination = EtcdProcess(place, "c") if kind == "through a process" else EtcdCoordination(place, "c")
    assert node.watch(UNSEEN, LONG, threading.Event()) == Snapshot(1, there)
    with ThreadPoolExecutor(1) as thread:
        watch = thread.submit(node.watch, 1, LONG, threading.Event())
        one_member().control(0, "del", place.key.decode())
        assert watch.result() == Snapshot(0, None)
    for expected in (1, 0):
        with pytest.raises(CasConflict) as conflict:
            node.compare_and_set(expected, there)
        assert conflict.value.current is None
    assert node.read() is None
    node.close()


def test_a_record_that_took_the_place_of_a_deleted_one_is_not_taken_for_it(
    place: EtcdPlace, store: EtcdCoordination
) -> None:
    """They have one version by chance; this process remembers the other one."""
    known = store.compare_and_set(0, replace(FIRST, cluster_id="1"))
    one_member().control(0, "del", place.key.decode())
    other = EtcdCoordination(place, "c", create=True)
    theirs = other.compare_and_set(0, replace(FIRST, generation=2, primary=B, cluster_id="1"))
    with pytest.raises(CasConflict) as conflict:
        store.compare_and_set(1, replace(known, ready=(A, B)))
    assert conflict.value.current == theirs == store.read()
    other.close()


def test_an_operator_may_make_the_key_for_a_record_to_come(place: EtcdPlace) -> None:
    put(place, "")
    node = EtcdCoordination(place, "c")
    assert node.read() is None and node.snapshot() == Snapshot(0, None)
    assert node.compare_and_set(0, FIRST).version == 1
    node.close()


def test_a_record_that_others_change_all_the_time_is_an_error(
    store: EtcdCoordination, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a conflict: in each of the looks the version was the expected one."""
    there = store.compare_and_set(0, FIRST)
    sent: list[int] = []

    def never(key: bytes, mod_revision: int, *changes: Any) -> Any:
        sent.append(mod_revision)
        return wire.TxnRequest(
            failure=[wire.RequestOp(request_range=wire.RangeRequest(key=key))],
            compare=[
                wire.Compare(result=wire.EQUAL, target=wire.OF_MOD_REVISION, key=key, mod_revision=mod_revision + 1)
            ],
        )

    with monkeypatch.context() as patched:
        patched.setattr(wire, "changed_if", never)
        with pytest.raises(CoordinationError, match="changes all the time"):
            store.compare_and_set(1, there)
    assert len(sent) == TRANSACTIONS and store.read() == there


def test_a_conflict_is_by_a_reading_and_not_by_what_is_remembered(place: EtcdPlace, store: EtcdCoordination) -> None:
    there, other = store.compare_and_set(0, FIRST), EtcdCoordination(place, "c")
    theirs = other.compare_and_set(1, there)
    assert store.compare_and_set(2, theirs).version == 3
    with pytest.raises(CasConflict) as conflict:
        other.compare_and_set(2, theirs)
    assert conflict.value.current == store.read()
    other.close()


def test_an_etcd_that_is_set_back_is_not_gone_by() -> None:
    """P10: its members begin anew with another state: the same etcd by its identity, and older than what was told."""
    with EtcdServers(1) as servers:
        place = EtcdPlace.of_url(servers.address().removeprefix("etcd://"))
        store = EtcdCoordination(place, "c", create=True)
        record = store.compare_and_set(0, FIRST)
        for _ in range(3):
            record = store.compare_and_set(record.version, record)
        servers.kill(0)
        servers.wipe()
        servers.start(0)
        other = EtcdCoordination(place, "c", create=True)
        copy = other.compare_and_set(0, FIRST)
        for _ in range(9):  # its revision passes that of before, and in the end that of the record's last change
            copy = other.compare_and_set(copy.version, copy)
            for call in (store.read, store.snapshot, lambda it=copy: store.compare_and_set(it.version, it)):
                with pytest.raises(CoordinationError, match="set back to an earlier state"):
                    call()
        assert other.read() == copy
        other.close()
        store.close()


def test_nor_where_no_one_looked_before_it_had_gone_further_than_it_was() -> None:
    """Other keys move the revision of all, and the record's own shows the earlier state."""
    with EtcdServers(1) as servers:
        place = EtcdPlace.of_url(servers.address().removeprefix("etcd://"))
        store = EtcdCoordination(place, "c", create=True)
        record = store.compare_and_set(0, FIRST)
        store.compare_and_set(record.version, record)
        servers.kill(0)
        servers.wipe()
        servers.start(0)
        other = EtcdCoordination(place, "c", create=True)
        other.compare_and_set(0, FIRST)
        for _ in range(5):
            assert servers.control(0, "put", "another", "value").returncode == 0
        with pytest.raises(CoordinationError, match="set back to an earlier state"):
            store.read()
        other.close()
        store.close()


def test_who_is_given_up_does_not_wait_for_a_member_that_hangs() -> None:
    with EtcdServers(1) as servers:
        store = EtcdCoordination(EtcdPlace.of_url(servers.address()[7:]), "c", False, LONG, LONG)
        assert store.read() is None
        with servers.frozen(0), ThreadPoolExecutor(1) as thread:
            reading = thread.submit(store.read)
            store.give_up()
            with pytest.raises(CoordinationError):
                reading.result(60.0)
        store.close()
