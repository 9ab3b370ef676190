"""A store in etcd, as commands use it: founding, plans, what is set aside, a record that is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from broker_plugin.coordination.address import in_file, store_at
from broker_plugin.coordination.etcd import wire
from broker_plugin.coordination.etcd.etcd_process import EtcdProcess
from broker_plugin.coordination.etcd.etcd_store import EtcdStore
from broker_plugin.coordination.etcd.place import EtcdPlace
from broker_plugin.coordination.shared_watchdog import SharedWatchdog
from ha.membership.record import CoordinationError, Record
from ha.membership.watchdog import Renewals
from python_tests.harness.cluster import free_base_port
from tests.broker_plugin.coordination.contract import place_below
from tests.support.etcd import one_member
from txobserver.ids import Member

FIRST = Record("c", 0, 1, None, (Member("a", "1"),))


@pytest.fixture(name="place")
def of_this_test(tmp_path: Path) -> EtcdPlace:
    return place_below(tmp_path)


@pytest.fixture(name="store")
def at_this_place(place: EtcdPlace) -> EtcdStore:
    return EtcdStore(place)


def control(*words: str) -> str:
    found = one_member().control(0, *words)
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_it_is_opened_for_a_command_and_for_a_node(store: EtcdStore) -> None:
    """A node renews by itself only what it has changed, and its watchdog says when."""
    command = store.open("c", create=True)
    stored = command.compare_and_set(0, FIRST)
    node, watchdog = store.serve("c", 7.0, Renewals(0.2, 0.75))
    assert isinstance(node, EtcdProcess) and isinstance(watchdog, SharedWatchdog) and node._seconds == 7.0
    assert node._command[-3:] == [str(watchdog.descriptor), "0.2", "0.75"]
    assert node.read() == stored == store.open("c", confirm=True).read()
    node.close()
    command.close()


def test_a_node_that_asks_for_nothing_keeps_its_lease_while_it_shows_turns(store: EtcdStore) -> None:
    """The process renews, as with a file; and no more when the turns end."""
    command = store.open("c", create=True)
    command.compare_and_set(0, FIRST)
    node, watchdog = store.serve("c", 5.0, Renewals(0.1, 3600.0))
    from broker_plugin.coordination.coordination_process import boottime

    reigning = node.compare_and_set(1, Record("c", 0, 2, Member("a", "1"), FIRST.ready))
    watchdog.turned(2, boottime())
    from python_tests.harness.waiting import wait_until

    wait_until(lambda: version(command) > reigning.version + 2, 60.0, "renewals")
    assert watchdog.renewed_at(2) > 0.0
    watchdog.rest()
    stands = [version(command)]

    def no_more() -> bool:
        stands.append(version(command))
        return stands[-1] == stands[-2]

    wait_until(no_more, 60.0, "the end of renewals", every=0.5)
    node.close()
    command.close()


def version(store: Any) -> int:
    found = store.read()
    return found.version if found is not None else 0


def test_a_node_loads_no_grpc(place: EtcdPlace) -> None:
    """It asks a process of its own: gRPC's threads and memory are there, and not in the node."""
    code = (
        "import sys; from broker_plugin.node.config import store_at; import broker_plugin.node.main\n"
        f"served = store_at({place.url!r}).serve('c', 5.0, __import__('ha').membership.watchdog.Renewals(1.0, 0.0))\n"
        "print(served.coordination.read(), 'grpc' in sys.modules); served.coordination.close()"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "None False\n" and said.stderr == ""


def test_plans_are_kept_in_the_directory_that_the_address_names(place: EtcdPlace, tmp_path: Path) -> None:
    with pytest.raises(CoordinationError) as refused:
        EtcdStore(place).check_readable()
    assert str(refused.value) == (
        "plans are kept in a directory, and the address of etcd names none: add plans=DIR to its options, as "
        f"{place.url}?plans=/var/lib/txha"
    )
    store = store_at(place.with_option("plans", str(tmp_path)))
    store.check_readable()
    assert store.notes == tmp_path
    with pytest.raises(CoordinationError, match=f"there is no directory {tmp_path / 'none'} for plans: make it"):
        store_at(place.with_option("plans", str(tmp_path / "none"))).check_readable()


def test_what_is_set_aside_is_kept_and_another_record_may_be_written(place: EtcdPlace, store: EtcdStore) -> None:
    key = place.key.decode()
    for number in (1, 2):
        control("put", key, f"damaged {number}")
        store.set_aside()
        assert control("get", "--print-value-only", f"{key}.set-aside-{number}") == f"damaged {number}\n"
        assert control("get", key) == ""
    store.set_aside()
    assert control("get", "--keys-only", "--prefix", key).split() == [f"{key}.set-aside-1", f"{key}.set-aside-2"]
    command = store.open("c", create=True)
    assert command.compare_and_set(0, FIRST).version == 1
    command.close()


def test_what_changes_meanwhile_is_not_set_aside(
    place: EtcdPlace, store: EtcdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By compare-and-set, as all else: what was looked at, or nothing."""
    key = place.key.decode()
    control("put", key, "damaged")
    real = wire.changed_if

    def late(of: bytes, mod_revision: int, *changes: Any) -> Any:
        control("put", key, "whole again")
        return real(of, mod_revision, *changes)

    monkeypatch.setattr(wire, "changed_if", late)
    with pytest.raises(CoordinationError, match="was changed while it was set aside; run it again"):
        store.set_aside()
    assert control("get", "--print-value-only", "--prefix", key) == "whole again\n"


def test_a_lost_record_is_written_where_nodes_look_for_it_or_where_an_operator_made_the_key(
    place: EtcdPlace, store: EtcdStore
) -> None:
    elsewhere, key = in_file(Path("/r")), place.key.decode()
    store.check_expected([store])
    with pytest.raises(CoordinationError) as refused:
        store.check_expected([elsewhere])
    assert f"there is no key {key} in etcd, and the directories lead to /r" in str(refused.value)
    assert str(refused.value).endswith(f"make the key first: etcdctl put {key} ''")
    control("put", key, "")
    store.check_expected([elsewhere])
    store.set_aside()
    store.check_expected([elsewhere])


def test_an_etcd_that_gives_no_answer_is_an_error() -> None:
    store = EtcdStore(EtcdPlace.of_url(f"127.0.0.1:{free_base_port(1)}/x"))
    store.check_writable()
    for call in (store.set_aside, lambda: store.check_expected([])):
        with pytest.raises(CoordinationError, match=r"etcd gives no answer: .* cannot be reached"):
            call()
