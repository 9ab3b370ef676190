"""``txha init``, ``discard`` and ``recover`` of a record in etcd: what they write there, and what they refuse."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from broker_plugin.cli.asking import BadArgument
from broker_plugin.cli.recovery.crashed import Given
from broker_plugin.cli.recovery.recovering import Accepted, run
from broker_plugin.coordination.address import store_at
from broker_plugin.coordination.etcd.etcd_coordination import EtcdCoordination
from broker_plugin.coordination.etcd.place import EtcdPlace
from ha.membership.record import Record, RecordStore
from python_tests.harness.cluster import free_base_port
from tests.broker_plugin.cli.recovery.test_recover import ID, A, B
from tests.broker_plugin.cli.recovery.test_recover import directory as directory
from tests.broker_plugin.coordination.contract import place_below
from tests.support.commands import txha_here
from tests.support.etcd import one_member
from txobserver.ports.store import StoreError


@pytest.fixture(name="place")
def of_this_test(tmp_path: Path) -> EtcdPlace:
    return place_below(tmp_path)


@pytest.fixture(name="plans")
def where_plans_are_kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plans")


@pytest.fixture(name="store")
def with_plans(place: EtcdPlace, plans: Path) -> RecordStore:
    return store_at(place.with_option("plans", str(plans)))


def record_in(place: EtcdPlace) -> Record | None:
    with closing(EtcdCoordination(place, "cluster")) as store:
        return store.read()


def recorded(place: EtcdPlace, *ready: object) -> Record:
    with closing(EtcdCoordination(place, "cluster", create=True)) as store:
        return store.compare_and_set(0, Record("cluster", 1, 1, ready[0], ready, cluster_id=ID))  # type: ignore[arg-type]


def control(*words: str) -> str:
    found = one_member().control(0, *words)
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_a_lost_record_is_written_where_an_operator_made_the_key(
    directory: Path, place: EtcdPlace, store: RecordStore, plans: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And nowhere without: the directories lead to another store."""
    with pytest.raises(BadArgument, match=f"there is no key {place.key.decode()} in etcd"):
        run(Given([directory], store), True, Accepted(), as_json=True)
    assert control("get", "--prefix", place.prefix) == "" and not list(plans.iterdir())
    control("put", place.key.decode(), "")
    assert run(Given([directory], store), True, Accepted(), as_json=True) == 0
    found, written = json.loads(capsys.readouterr().out), record_in(place)
    assert found["promote"] == "a" and written is not None and (written.cluster_id, written.ready) == (ID, (A,))
    assert found["applied"] == str(plans / "recovery-1.json") and not (directory / "coordination.sqlite").exists()


def test_a_cluster_moves_from_a_file_to_etcd(
    directory: Path, place: EtcdPlace, plans: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its nodes are stopped, their files name etcd, and the record is written from their stores."""
    address = place.with_option("plans", str(plans))
    for name, other in (("a", "b"), ("b", "a")):
        text = f'name = "{name}"\ncluster = "cluster"\ndir = "{directory / name}"\ncoordination = "{address}"\n'
        (directory / name / "node.toml").write_text(f'{text}[peer]\nport = 7\n[[peers]]\nname = "{other}"\nport = 8\n')
    assert run(Given([directory / "a", directory / "b"]), True, Accepted(), as_json=True) == 0
    found, written = json.loads(capsys.readouterr().out), record_in(place)
    assert found["promote"] == "a" and written is not None and (written.cluster_id, written.ready) == (ID, (A,))


@pytest.mark.parametrize("how", ["changed", "a copy from another etcd"])
def test_what_cannot_be_gone_by_is_set_aside(
    how: str, directory: Path, place: EtcdPlace, store: RecordStore, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(place, A, B)
    key = place.key.decode()
    stored = msgspec.json.decode(control("get", "--print-value-only", key))
    part = {"checksum": 7} if how == "changed" else {"etcd": "7"}
    control("put", key, content := msgspec.json.encode(stored | part).decode())
    assert run(Given([directory], store), True, Accepted(), as_json=True) == 0
    said, written = json.loads(capsys.readouterr().out), record_in(place)
    assert control("get", "--print-value-only", f"{key}.set-aside-1").strip() == content
    assert written is not None and (written.generation, written.version) == (2, 1)
    assert "txha recover" not in json.dumps(said["reasons"])


@pytest.mark.parametrize("every", [0.1, 1.5])
def test_a_primary_that_renews_is_noticed(directory: Path, place: EtcdPlace, store: RecordStore, every: float) -> None:
    """On another host: its locks are not seen here. No node.toml here says how long its lease is, and with etcd it is
    longer by default than with a file."""
    record, ended = recorded(place, A, B), threading.Event()

    def renew() -> None:
        with closing(EtcdCoordination(place, "cluster")) as primary:
            version = record.version
            while not ended.wait(every):
                version = primary.compare_and_set(version, record).version

    with ThreadPoolExecutor(1) as thread:
        renewing = thread.submit(renew)
        try:
            with pytest.raises(StoreError, match="is being written: a primary renews its lease"):
                run(Given([directory], store), True, Accepted(), as_json=True)
        finally:
            ended.set()
        renewing.result()


def test_without_a_place_for_plans_nothing_is_begun(directory: Path, place: EtcdPlace) -> None:
    recorded(place, A, B)
    for apply in (False, True):
        with pytest.raises(BadArgument, match="the address of etcd names none: add plans=DIR"):
            run(Given([directory], store_at(place.url)), apply, Accepted(), as_json=True)


def test_a_record_of_another_cluster_is_left_alone(directory: Path, place: EtcdPlace, store: RecordStore) -> None:
    with closing(EtcdCoordination(place, "other", create=True)) as theirs:
        there = theirs.compare_and_set(0, Record("other", 1, 1, A, (A,), cluster_id="0" * 32))
        with pytest.raises(StoreError, match="belongs to cluster other, not to cluster cluster"):
            run(Given([directory], store), True, Accepted(), as_json=True)
        assert theirs.read() == there


def config(directory: Path, address: str) -> Path:
    directory.mkdir(exist_ok=True)
    text = f'name = "a"\ncluster = "c"\ndir = "{directory}/a"\ncoordination = "{address}"\n[peer]\nport = 7\n'
    (directory / "node.toml").write_text(text)
    return directory / "node.toml"


def test_a_cluster_is_founded_once(place: EtcdPlace, tmp_path: Path) -> None:
    """And its founder's store, which is the only one in the ready set, is not discarded."""
    founded = txha_here("init", "--config", str(config(tmp_path / "n", place.url)), "--json")
    assert founded.returncode == 0 and json.loads(founded.stdout)["coordination"] == place.url
    with closing(EtcdCoordination(place, "c")) as store:
        record = store.read()
        assert record is not None and str(record.ready[0]) == json.loads(founded.stdout)["founder"]
    again = txha_here("init", "--config", str(config(tmp_path / "n", place.url)))
    assert again.returncode == 2 and "cluster c has been founded already" in again.stderr
    discarded = txha_here("discard", "--config", str(tmp_path / "n" / "node.toml"), "--yes")
    assert discarded.returncode == 2 and len(discarded.stderr.splitlines()) == 1
    assert record_of(place) == record


def record_of(place: EtcdPlace) -> Record | None:
    with closing(EtcdCoordination(place, "c")) as store:
        return store.read()


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("etcd://127.0.0.1:{port}/x", "cluster c cannot be founded: etcd gives no answer: 127.0.0.1:{port} cannot be"),
        ("etcd://127.0.0.1:{port}/x?ca=/nowhere/ca.pem", "coordination: ca of etcd: /nowhere/ca.pem cannot be read"),
        ("etcd://127.0.0.1:{port}/x?tls=1", "coordination: etcd has no option 'tls'"),
        ("sqlite:///x?ca=/ca.pem", "coordination: sqlite:///x?ca=/ca.pem has options, and there are none"),
    ],
)
def test_what_cannot_be_founded_is_said_in_a_sentence_and_nothing_is_left(
    address: str, said: str, tmp_path: Path
) -> None:
    port = free_base_port(1)
    path = config(tmp_path / "n", address.format(port=port))
    refused = txha_here("init", "--config", str(path))
    assert refused.returncode == 2 and said.format(port=port) in refused.stderr
    assert len(refused.stderr.splitlines()) == 1 and list(path.parent.iterdir()) == [path]
