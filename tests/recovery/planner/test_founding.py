"""Founding a cluster: once, on purpose, and under an identity that nothing else has."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from ha.membership.record import CasConflict, CoordinationError, MemoryCoordination, Record
from recovery.planner import founding
from recovery.planner.founding import found, holds_nothing, identity_in_record, make_empty, new_cluster_id
from recovery.store.identity import GIVEN_LATER, lock_directory, may_take, read_identity
from recovery.store.lmdb_state import LmdbState
from tests.recovery.planner.stores import beginning, make_store
from tests.support.logs import Posts, frame, open_store
from txobserver.ids import Member, Position
from txobserver.ports.store import Checkpoint, Meta, StoreError

ROOT = Path(__file__).parents[3]


def with_data(directory: Path, **options: str) -> None:
    posts = Posts()
    store = open_store(directory, posts, node="a", **options)  # type: ignore[arg-type]
    list(store.suffix())
    store.append(frame(1), posts.done)
    assert posts.wait() == [None]
    store.close()


def files(directory: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file() and p.suffix != ".mdb"}


def test_store_and_record_carry_one_random_identity(tmp_path: Path) -> None:
    store = MemoryCoordination()
    record = found(tmp_path / "a", "cluster", "a", store)
    identity = read_identity(tmp_path / "a")
    assert identity is not None and len(identity.cluster_id) == 32 and int(identity.cluster_id, 16)
    assert record == store.read()
    assert record == Record("cluster", 1, 0, None, (identity.member,), True, "", identity.cluster_id)
    other = found(tmp_path / "b", "cluster", "a", MemoryCoordination())
    assert other.cluster_id != record.cluster_id
    open_store(tmp_path / "a", Posts(), node="a", cluster_id=record.cluster_id).close()


def test_a_cluster_is_founded_once(tmp_path: Path) -> None:
    store = MemoryCoordination()
    found(tmp_path / "a", "cluster", "a", store)
    before = files(tmp_path), store.read()
    for name in "ab":
        with pytest.raises(StoreError, match="cluster cluster has been founded already"):
            found(tmp_path / name, "cluster", name, store)
    assert (files(tmp_path), store.read()) == before and not (tmp_path / "b").exists()


def test_a_store_with_data_founds_nothing(tmp_path: Path) -> None:
    """Its record was lost: a new one is written from the stores."""
    store = MemoryCoordination()
    with_data(tmp_path / "a", cluster_id="1" * 32)
    before = files(tmp_path)
    with pytest.raises(StoreError, match=r"holds data already, .* `txha recover`"):
        found(tmp_path / "a", "cluster", "a", store)
    assert files(tmp_path) == before and store.read() is None


@pytest.mark.parametrize("checkpoint", [9, 0])
def test_a_queue_state_that_has_lost_its_identity_and_its_log_is_not_founded_over(
    checkpoint: int, tmp_path: Path
) -> None:
    """It was: the node served what the state held under a new identity. Without a checkpoint, its log was all."""
    make_store(tmp_path / "a", [(1, beginning(9))], checkpoint)
    (tmp_path / "a" / "identity.json").unlink()
    shutil.rmtree(tmp_path / "a" / "log")
    before, held = files(tmp_path), (tmp_path / "a" / "state" / "data.mdb").read_bytes()
    store = MemoryCoordination()
    with pytest.raises(StoreError, match=r"holds a queue state without .*identity.json; restore that file, or move"):
        found(tmp_path / "a", "cluster", "a", store)
    with pytest.raises(StoreError, match="holds a queue state without"):
        open_store(tmp_path / "a", Posts(), node="a")
    assert files(tmp_path) == before and (tmp_path / "a" / "state" / "data.mdb").read_bytes() == held
    assert store.read() is None
    (tmp_path / "a" / "state").rename(tmp_path / "away")
    found(tmp_path / "a", "cluster", "a", store)


def test_a_queue_state_that_was_only_made_can_be_founded_over(tmp_path: Path) -> None:
    """The process that made it was killed before the identity, or before LMDB wrote anything."""
    LmdbState(tmp_path / "a" / "state").close()
    found(tmp_path / "a", "cluster", "a", MemoryCoordination())
    (tmp_path / "b" / "state").mkdir(parents=True)
    (tmp_path / "b" / "state" / "data.mdb").touch()
    found(tmp_path / "b", "cluster", "b", MemoryCoordination())


def test_data_that_comes_before_the_store_is_locked_is_not_founded_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node was still running when it was looked at, and has written and ended since."""
    store, lock = MemoryCoordination(), founding.lock_directory

    def after_data(directory: Path) -> int:
        with_data(directory, cluster_id="1" * 32)
        return lock(directory)

    monkeypatch.setattr(founding, "lock_directory", after_data)
    with pytest.raises(StoreError, match="holds data already"):
        found(tmp_path / "a", "cluster", "a", store)
    identity = read_identity(tmp_path / "a")
    assert store.read() is None and identity is not None and identity.cluster_id == "1" * 32


@pytest.mark.parametrize("resyncing", [False, True])
def test_a_store_whose_log_is_empty_behind_its_checkpoint_founds_nothing(tmp_path: Path, resyncing: bool) -> None:
    """So it is after the end of a copy, before the first event behind it."""
    posts = Posts()
    store = open_store(tmp_path / "a", posts, node="a")
    list(store.suffix())
    store.checkpoint(Checkpoint(Meta(Position(3, 70), resyncing=resyncing), {}, [], [], []), posts.done)
    store.reset(Position(3, 70), posts.done)
    assert posts.wait(2) == [None, None]
    store.close()
    assert not holds_nothing(tmp_path / "a")
    with pytest.raises(StoreError, match="holds data already"):
        found(tmp_path / "a", "cluster", "a", MemoryCoordination())


def test_a_store_that_is_another_node_s_or_in_use_founds_nothing(tmp_path: Path) -> None:
    store = MemoryCoordination()
    open_store(tmp_path / "a", Posts(), node="a").close()
    with pytest.raises(StoreError, match="belongs to node a"):
        found(tmp_path / "a", "cluster", "b", store)
    lock = lock_directory(tmp_path / "a")
    with pytest.raises(StoreError, match="in use"):
        found(tmp_path / "a", "cluster", "a", store)
    os.close(lock)
    assert store.read() is None


def test_an_empty_joiner_does_not_found_its_old_cluster_again(tmp_path: Path) -> None:
    """``empty_node_founds_anew``, by an operator: the record is lost, and he runs `txha init` where a new node waited
    to be copied to. Under the same identity its cluster would be founded a second time, in the same generation."""
    record = found(tmp_path / "a", "cluster", "a", MemoryCoordination())
    make_empty(tmp_path / "b", "cluster", "b", record.cluster_id)
    waiting = open_store(tmp_path / "b", Posts(), node="b")
    assert list(waiting.suffix()) == []
    waiting.close()
    anew = found(tmp_path / "b", "cluster", "b", MemoryCoordination())
    assert anew.cluster_id != record.cluster_id
    with pytest.raises(StoreError, match="another cluster"):
        open_store(tmp_path / "a", Posts(), node="a", cluster_id=anew.cluster_id)


class Racing(MemoryCoordination):
    """Another node founds the cluster between our look and our change."""

    def read(self) -> Record | None:
        return None

    def compare_and_set(self, expected: int, record: Record) -> Record:
        self.record = msgspec.structs.replace(record, cluster_id="2" * 32, ready=(Member("b", "1"),))
        raise CasConflict(self.record)


def test_one_of_two_founders_wins(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="founded already"):
        found(tmp_path / "a", "cluster", "a", Racing())
    assert holds_nothing(tmp_path / "a"), "so it can join the cluster of the other"


class Second(MemoryCoordination):
    """While the record is written, another process founds with the same node a second time."""

    directory: Path

    def compare_and_set(self, expected: int, record: Record) -> Record:
        with pytest.raises(StoreError, match="in use"):
            found(self.directory, "cluster", "a", MemoryCoordination())
        return super().compare_and_set(expected, record)


def test_the_founder_named_in_the_record_has_its_store(tmp_path: Path) -> None:
    """No process makes the store anew between its making and the record: no node could ever stand then."""
    store = Second()
    store.directory = tmp_path / "a"
    record = found(tmp_path / "a", "cluster", "a", store)
    identity = read_identity(tmp_path / "a")
    assert identity is not None and record.ready == (identity.member,) and record.cluster_id == identity.cluster_id


class Broken(MemoryCoordination):
    def read(self) -> Record | None:
        raise CoordinationError("it burns")


def test_a_store_that_cannot_be_read_is_not_founded_over(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be founded: it burns"):
        found(tmp_path / "a", "cluster", "a", Broken())
    assert list(tmp_path.iterdir()) == []


FOUNDER = """
import sys
from pathlib import Path
from broker_plugin.coordination.sqlite_coordination import SqliteCoordination
from recovery.planner.founding import found
found(Path(sys.argv[1]) / "a", "cluster", "a", SqliteCoordination(Path(sys.argv[1]) / "r", "cluster", create=True))
"""


@pytest.mark.parametrize("point", ["store.identity-synced", "store.identity-written", "init.store-made"])
def test_sigkill_before_the_record_is_written(tmp_path: Path, point: str) -> None:
    """It is done again; once the record is there, it is refused."""
    for environment, status in (({"TXHA_CRASH_POINT": point}, -signal.SIGKILL), ({}, 0), ({}, 1)):
        run = subprocess.run(
            [sys.executable, "-c", FOUNDER, str(tmp_path)],
            env={**os.environ, **environment},
            cwd=ROOT,
            check=False,
            capture_output=True,
            text=True,
        )
        assert run.returncode == status, run.stderr
    assert "founded already" in run.stderr


def test_sigkill_behind_the_record_has_founded_it(tmp_path: Path) -> None:
    for environment, status in (({"TXHA_CRASH_POINT": "init.record-written"}, -signal.SIGKILL), ({}, 1)):
        command = [sys.executable, "-c", FOUNDER, str(tmp_path)]
        run = subprocess.run(command, env={**os.environ, **environment}, cwd=ROOT, check=False, capture_output=True)
        assert run.returncode == status
    assert json.loads((tmp_path / "a" / "identity.json").read_text())["cluster_id"]


# -- clusters from before there were identities


def old_record() -> MemoryCoordination:
    store = MemoryCoordination()
    store.record = Record("cluster", 41, 3, Member("a", "1"), (Member("a", "1"),))
    return store


def unchanged() -> bool:
    """No primary renews the record while it is watched."""
    return True


def test_a_record_of_before_gets_an_identity_once() -> None:
    store = old_record()
    given = identity_in_record(store, "", unchanged)
    assert given and len(given) == 32 and given.startswith(GIVEN_LATER)
    assert store.record == msgspec.structs.replace(old_record().record, version=42, cluster_id=given)  # type: ignore[type-var]
    assert identity_in_record(store, "", unchanged) == given and store.record.version == 42
    assert identity_in_record(MemoryCoordination(), "", unchanged) is None


def test_of_two_nodes_that_give_it_one_wins() -> None:
    store = old_record()

    def other_is_faster() -> str:
        if store.record is not None and not store.record.cluster_id:
            store.compare_and_set(41, msgspec.structs.replace(store.record, cluster_id="0" * 32))
        return "1" * 32

    assert identity_in_record(store, "", unchanged, other_is_faster) == "0" * 32


def test_rolling_upgrade_splits_identity() -> None:
    """A primary of the former version renews its lease: it would write the record back without the identity."""
    store = old_record()

    def renewed() -> bool:
        assert store.record is not None
        store.compare_and_set(store.record.version, store.record)
        return True

    with pytest.raises(StoreError, match="a node of an earlier version is still the primary: stop all nodes, then"):
        identity_in_record(store, "", renewed)
    assert store.record == msgspec.structs.replace(old_record().record, version=42)  # type: ignore[type-var]
    assert identity_in_record(store, "", lambda: False) == "", "told to end before it was watched for long enough"
    assert store.record is not None and store.record.cluster_id == ""

    def taken_over() -> str:
        if store.record is not None and store.record.version == 42:
            renewed()
        return "1" * 32

    with pytest.raises(StoreError, match="is still the primary"):
        identity_in_record(store, "", unchanged, taken_over)


def test_a_copy_of_the_record_of_before_gets_none() -> None:
    """``older_record_restored``: a store that knows the identity shows that the record is older than that."""
    store = old_record()
    assert identity_in_record(store, "3" * 32, unchanged) == ""
    assert store.record == old_record().record


def test_identities_are_random_and_never_look_as_if_given_later() -> None:
    seen = {new_cluster_id() for _ in range(1000)}
    assert len(seen) == 1000 and not any(each.startswith(GIVEN_LATER) for each in seen)


def test_which_identity_a_store_without_one_may_take() -> None:
    later, founded = GIVEN_LATER + "1" * 24, "3" * 32
    assert may_take(later) and not may_take(founded), "that cluster was founded since"


def test_a_founded_identity_never_looks_as_if_given_later(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = [GIVEN_LATER + "1" * 24, GIVEN_LATER + "2" * 24, "3" * 32]
    monkeypatch.setattr(founding.secrets, "token_hex", lambda size: drawn.pop(0))
    assert new_cluster_id() == "3" * 32
