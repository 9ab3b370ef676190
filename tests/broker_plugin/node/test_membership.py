"""Which cluster a node belongs to: the identities in its store, in the record, and in the greetings of others."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from broker_plugin.coordination.sqlite_coordination import SqliteCoordination
from broker_plugin.node.config import ConfigError, NodeConfig, parse_config
from broker_plugin.node.membership import cluster_identity
from ha.membership.record import Record
from recovery.planner.founding import found, make_empty
from recovery.store.identity import GIVEN_LATER, read_identity
from tests.recovery.store.test_store import ANOTHER, ID, as_format_1
from tests.support.logs import Posts, frame, open_store
from txobserver.ids import Member

NODE = "node"


def config(directory: Path, name: str = NODE) -> NodeConfig:
    text = f'name = "{name}"\ncluster = "cluster"\ndir = "{directory / name}"\ncoordination = "{directory / "r"}"\n'
    return parse_config(f"{text}[peer]\nport = 7\n", directory / "node.toml", environment={})


async def identity(directory: Path, name: str = NODE) -> str | None:
    """What a node learns when it starts."""
    coordination = SqliteCoordination(directory / "r", "cluster")
    try:
        return await cluster_identity(config(directory, name), coordination, lambda: False)
    finally:
        coordination.close()


async def refusal(directory: Path, name: str = NODE) -> str:
    with pytest.raises(ConfigError) as error:
        await identity(directory, name)
    return str(error.value)


def founded(directory: Path, name: str = "founder") -> Record:
    coordination = SqliteCoordination(directory / "r", "cluster", create=True)
    record = found(directory / name, "cluster", name, coordination)
    coordination.close()
    return record


def record_in(directory: Path) -> Record | None:
    coordination = SqliteCoordination(directory / "r", "cluster")
    record = coordination.read()
    coordination.close()
    return record


def older_record(directory: Path) -> None:
    """One of before there were identities."""
    member = Member(NODE, "incarnation")
    coordination = SqliteCoordination(directory / "r", "cluster", create=True)
    coordination.compare_and_set(0, Record("cluster", 1, 1, member, (member,)))
    coordination.close()


def with_data(directory: Path, cluster_id: str = "") -> None:
    posts = Posts()
    store = open_store(directory / NODE, posts, cluster_id=cluster_id)
    list(store.suffix())
    store.append(frame(1), posts.done)
    assert posts.wait() == [None]
    store.close()


async def test_empty_node_founds_anew(tmp_path: Path) -> None:
    """The record was lost, and an empty node starts first: it says what to do, and founds nothing."""
    assert "found cluster cluster with `txha init`" in await refusal(tmp_path)
    assert list(tmp_path.iterdir()) == [], "no record, no store"
    with_data(tmp_path, ID)
    said = await refusal(tmp_path)
    assert "holds data: write a new record with `txha recover`" in said
    assert not (tmp_path / "r").exists()


async def test_an_empty_node_takes_the_identity_in_the_record(tmp_path: Path) -> None:
    record = founded(tmp_path)
    assert await identity(tmp_path) == record.cluster_id
    assert not (tmp_path / NODE).exists(), "the store is made with it"
    assert await identity(tmp_path, "founder") == record.cluster_id


async def test_a_store_of_another_cluster_of_the_same_name_is_refused(tmp_path: Path) -> None:
    founded(tmp_path)
    with_data(tmp_path, ANOTHER)
    found_there = await identity(tmp_path)
    assert found_there not in (None, ANOTHER)
    with pytest.raises(Exception, match="belongs to another cluster that is also called cluster"):
        open_store(tmp_path / NODE, Posts(), cluster_id=str(found_there))


async def test_a_founder_that_is_started_once_with_a_wrong_record_stays_what_it_is(tmp_path: Path) -> None:
    """``founder_started_once_with_a_wrong_record``: its own record names this very member."""
    (tmp_path / "other").mkdir()
    own = founded(tmp_path / "other", NODE)
    (tmp_path / "other" / NODE).rename(tmp_path / NODE)
    record = founded(tmp_path)
    said = await refusal(tmp_path)
    assert own.cluster_id in said and record.cluster_id in said
    assert "name the right `coordination`, or give this store up with `txha discard`" in said
    after = read_identity(tmp_path / NODE)
    assert after is not None and after.cluster_id == own.cluster_id and after.member == own.ready[0]


async def test_an_empty_store_of_before_becomes_a_new_member(tmp_path: Path) -> None:
    record = founded(tmp_path)
    before = make_empty(tmp_path / NODE, "cluster", NODE, "")
    assert await identity(tmp_path) == record.cluster_id
    after = read_identity(tmp_path / NODE)
    assert after is not None and after.cluster_id == record.cluster_id and after.member != before.member


async def test_a_node_that_knows_its_cluster_starts_while_the_record_cannot_be_read(tmp_path: Path) -> None:
    with_data(tmp_path, ID)
    (tmp_path / "r").write_bytes(b"this is no database" * 100)
    assert await identity(tmp_path) == ID


async def test_a_node_that_does_not_know_its_cluster_waits_for_the_record(tmp_path: Path) -> None:
    (tmp_path / "r").write_bytes(b"this is no database" * 100)
    looks = iter((False, False, True))
    coordination = SqliteCoordination(tmp_path / "r", "cluster")
    assert await cluster_identity(config(tmp_path), coordination, lambda: next(looks)) is None


# -- clusters from before there were identities


async def test_record_and_store_of_before_get_one_identity(tmp_path: Path) -> None:
    older_record(tmp_path)
    with_data(tmp_path)
    as_format_1(tmp_path / NODE / "identity.json")
    given = await identity(tmp_path)
    record = record_in(tmp_path)
    assert record is not None and given == record.cluster_id and record.version == 2 and record.generation == 1
    open_store(tmp_path / NODE, Posts(), cluster_id=given).close()
    assert await identity(tmp_path) == given
    assert record_in(tmp_path) == record


async def test_a_store_of_before_does_not_take_the_identity_of_a_cluster_founded_since(tmp_path: Path) -> None:
    """``empty_node_founds_anew`` on the day of the upgrade: its own record was lost, and an operator founded anew."""
    assert not founded(tmp_path).cluster_id.startswith(GIVEN_LATER)
    with_data(tmp_path)
    as_format_1(tmp_path / NODE / "identity.json")
    before = (tmp_path / NODE / "identity.json").read_bytes()
    assert "was founded since under the same name" in await refusal(tmp_path)
    assert (tmp_path / NODE / "identity.json").read_bytes() == before


async def test_a_store_that_nobody_said_the_cluster_of_takes_no_identity(tmp_path: Path) -> None:
    """``an_archive_of_another_cluster_of_the_same_name``: made of events that do not say whose they are."""
    founded(tmp_path)
    with_data(tmp_path)
    said = await refusal(tmp_path)
    assert "was founded since under the same name" in said and "with `--cluster-id`" in said
    found_there = read_identity(tmp_path / NODE)
    assert found_there is not None and found_there.cluster_id == ""


async def test_a_node_does_not_start_beside_a_primary_of_before(tmp_path: Path) -> None:
    """``rolling_upgrade_splits_identity``: nothing is written, neither store nor record."""
    older_record(tmp_path)
    old, ended = SqliteCoordination(tmp_path / "r", "cluster"), threading.Event()

    def renew() -> None:
        while not ended.wait(0.05):
            there = old.read()
            assert there is not None
            old.compare_and_set(there.version, there)

    primary = threading.Thread(target=renew)
    primary.start()
    try:
        assert "a node of an earlier version is still the primary: stop all nodes" in await refusal(tmp_path)
    finally:
        ended.set()
        primary.join()
        old.close()
    record = record_in(tmp_path)
    assert record is not None and record.cluster_id == "" and not (tmp_path / NODE).exists()


async def test_a_copy_of_the_record_from_before_is_refused(tmp_path: Path) -> None:
    """``older_record_restored``: the store knows the identity, and the record does not."""
    older_record(tmp_path)
    with_data(tmp_path, ID)
    before = record_in(tmp_path)
    assert "a copy must never be put in the record's place" in await refusal(tmp_path)
    assert record_in(tmp_path) == before
