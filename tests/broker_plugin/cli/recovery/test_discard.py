"""``txha discard``: what is given up, when it must not be, and killed at every step."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from broker_plugin.coordination.sqlite_coordination import SqliteCoordination
from ha.membership.record import CasConflict, CoordinationError, MemoryCoordination, Record
from recovery.planner import discarding
from recovery.planner.discarding import discard as set_store_aside
from recovery.planner.discarding import look
from recovery.planner.founding import holds_nothing, make_empty
from recovery.store.aside import PARTS
from recovery.store.identity import lock_directory, read_identity
from tests.broker_plugin.cli.recovery.test_recover import has_identity
from tests.broker_plugin.cli.test_commands import TXHA, refused
from tests.recovery.planner.stores import beginning, make_store, transaction
from tests.support.commands import txha_here
from tests.support.logs import Posts, open_store
from txobserver.ids import Member
from txobserver.ports.store import StoreError

A, B = Member("a", "incarnation"), Member("b", "incarnation")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Node b with five messages on its disk, out of a ready set that is a alone."""
    make_store(tmp_path / "b", [(1, [*beginning(3), *transaction(1)])], 4)
    record_says(tmp_path, A)
    path = tmp_path / "b.toml"
    path.write_text(
        f'name = "b"\ncluster = "cluster"\ndir = "{tmp_path}/b"\ncoordination = "{tmp_path}/r"\n[peer]\nport = 7\n'
    )
    return path


def record_says(directory: Path, *ready: Member) -> None:
    (directory / "r").unlink(missing_ok=True)
    store = SqliteCoordination(directory / "r", "cluster", create=True)
    store.compare_and_set(0, Record("cluster", 1, 1, ready[0], ready))
    store.close()


def discard(config: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    if not environment:
        return txha_here("discard", "--config", str(config), *words)
    return subprocess.run(
        [*TXHA, "discard", "--config", str(config), *words],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )


def files(directory: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(directory)): p.read_bytes()
        for p in sorted(directory.rglob("*"))
        if p.is_file() and p.name not in ("lock", "lock.mdb")
    }


def test_it_says_what_is_given_up_and_does_nothing_without_a_yes(config: Path) -> None:
    before = files(config.parent)
    answer = discard(config)
    assert answer.returncode == 1 and answer.stdout == ""
    assert "whole, at 1.10, 5 messages" in answer.stderr and "nothing is discarded without --yes" in answer.stderr
    told = discard(config, "--json")
    said = json.loads(told.stdout)
    assert told.returncode == 1 and (said["position"], said["messages"], said["discarded"]) == ("1.10", 5, False)
    assert (said["queues"], said["ready"], said["others"]) == ({"q": 5}, False, ["a"])
    assert files(config.parent) == before


def test_the_store_is_renamed_and_the_node_starts_with_a_new_one(config: Path) -> None:
    node = config.parent / "b"
    before = files(node)
    said = json.loads(discard(config, "--yes", "--json").stdout)
    aside = Path(said["aside"])
    assert said["discarded"] and aside.parent == node and aside.name.startswith("discarded-")
    assert files(aside) == before and holds_nothing(node)
    store = open_store(node, Posts(), node="b", incarnation="after")
    assert store.tail.sequence == 0 and store.member.incarnation == "after"
    store.close()
    assert "nothing" not in discard(config, "--yes").stderr, "the new one can be given up as well"
    assert "holds no store: there is nothing to discard" in refused("discard", "--config", str(config), "--yes")
    assert len(list(node.glob("discarded-*"))) == 2


def test_it_is_refused_where_the_store_may_be_needed(config: Path) -> None:
    before = files(config.parent / "b")
    words = ("discard", "--config", str(config), "--yes")
    record_says(config.parent, B)
    assert "b is the only member of the ready set" in refused(*words)
    (config.parent / "r").unlink()
    assert "write a new record with `txha recover` first" in refused(*words)
    (config.parent / "r").write_bytes(b"this is no database" * 100)
    assert "whether b's store is needed cannot be known" in refused(*words)
    record_says(config.parent, A, B)
    lock = lock_directory(config.parent / "b")
    assert "b is running" in refused(*words)
    os.close(lock)
    assert files(config.parent / "b") == before
    assert "in which the stores of a are left: keep those" in discard(config).stderr
    assert discard(config, "--yes").returncode == 0


def test_wrong_founding_leads_to_discard(config: Path) -> None:
    """The record was founded over a lost one: the stores of the lost cluster are what there is of it."""
    node = config.parent / "b"
    has_identity(config.parent, "b", "1" * 32)
    before = files(node)
    said = refused("discard", "--config", str(config), "--yes")
    assert f"identity {'1' * 32}, and the record to that of none" in said, "a copy of the record from before"
    (config.parent / "r").unlink()
    store = SqliteCoordination(config.parent / "r", "cluster", create=True)
    store.compare_and_set(0, Record("cluster", 1, 0, None, (A,), True, cluster_id="2" * 32))
    store.close()
    said = refused("discard", "--config", str(config), "--yes")
    assert f"identity {'1' * 32}, and the record to that of {'2' * 32}" in said
    assert "move its file away and let `txha recover` write a new one" in said and files(node) == before
    shutil.rmtree(node)
    make_empty(node, "cluster", "b", "1" * 32)
    assert discard(config, "--yes").returncode == 0, "one that holds nothing can be given up"


def test_a_damaged_store_can_be_given_up(config: Path) -> None:
    (config.parent / "b" / "identity.json").write_text("{")
    assert "damaged" in discard(config).stderr
    assert discard(config, "--yes").returncode == 0
    assert not any((config.parent / "b" / part).exists() for part in PARTS)


def test_which_store_is_said_once(config: Path) -> None:
    for words in ((), ("--dir", str(config.parent)), ("b", "--config", str(config)), ("b",)):
        assert "say which store" in refused("discard", *words)
    assert "holds no cluster" in refused("discard", "--dir", str(config.parent), "b")


def ready(directory: Path) -> tuple[Member, ...]:
    store = SqliteCoordination(directory / "r", "cluster")
    record = store.read()
    store.close()
    assert record is not None
    return record.ready


def test_discard_one_after_the_other(config: Path) -> None:
    """With all nodes stopped: what is discarded is out of the record, so the last one is refused."""
    make_store(config.parent / "a", [(1, [*beginning(3), *transaction(1)])], 4)
    other = config.with_name("a.toml")
    other.write_text(config.read_text().replace('"b"', '"a"').replace("/b", "/a"))
    record_says(config.parent, A, B)
    assert discard(config).returncode == 1 and ready(config.parent) == (A, B), "a question changes nothing"
    assert discard(config, "--yes").returncode == 0 and ready(config.parent) == (A,)
    before = files(config.parent / "a")
    assert "a is the only member of the ready set" in refused("discard", "--config", str(other), "--yes")
    assert files(config.parent / "a") == before and ready(config.parent) == (A,)


def test_a_store_that_does_not_say_which_it_is_leaves_as_any_of_its_node(config: Path) -> None:
    """Neither its identity nor its log can be read: the record may list it."""
    (config.parent / "b" / "identity.json").write_text("{")
    for path in (config.parent / "b" / "log").iterdir():
        path.write_bytes(b"")
    record_says(config.parent, B)
    assert "b is the only member of the ready set" in refused("discard", "--config", str(config), "--yes")
    record_says(config.parent, A, B)
    assert discard(config, "--yes").returncode == 0 and ready(config.parent) == (A,)


class Renewing(MemoryCoordination):
    """A primary changes the record behind each read, so many times; then ``then`` happens to the next change."""

    def __init__(self, record: Record, times: int, then: CoordinationError | None = None) -> None:
        super().__init__()
        self.record, self.times, self.then = record, times, then

    def read(self) -> Record | None:
        found = super().read()
        if found is not None and self.times:
            self.times -= 1
            super().compare_and_set(found.version, found)
        return found

    def compare_and_set(self, expected: int, record: Record) -> Record:
        if self.then is not None:
            raise self.then
        return super().compare_and_set(expected, record)


def test_a_primary_that_renews_its_lease_meanwhile_goes_on(config: Path) -> None:
    node, record = config.parent / "b", Record("cluster", 1, 1, A, (A, B), preferred="a", loss_accepted=1)
    coordination = Renewing(record, 0)
    found = look(node, "cluster", "b", coordination)
    coordination.times = 5
    assert set_store_aside(node, "cluster", found, coordination).parent == node
    assert coordination.record == replace(record, version=7, ready=(A,)), "five renewals and the removal, nothing else"


def test_discarded_while_an_addition_is_on_its_way(config: Path) -> None:
    """b's node has died just as the primary a was to add it: listed after all, b would let a's store be discarded."""
    node, coordination = config.parent / "b", Renewing(Record("cluster", 1, 1, A, (A,)), 0)
    before = coordination.record
    set_store_aside(node, "cluster", look(node, "cluster", "b", coordination), coordination)
    assert before is not None
    with pytest.raises(CasConflict):
        coordination.compare_and_set(before.version, replace(before, ready=(A, B)))
    assert coordination.record == replace(before, version=before.version + 1)


@pytest.mark.parametrize(
    ("times", "then", "sentence"),
    [(0, CoordinationError("no answer"), "cannot be known: no answer"), (1000, None, "changes all the time")],
)
def test_who_cannot_be_taken_out_keeps_its_store(
    config: Path, times: int, then: CoordinationError | None, sentence: str
) -> None:
    node, coordination = config.parent / "b", Renewing(Record("cluster", 1, 1, A, (A, B)), 0, then)
    found, before = look(node, "cluster", "b", coordination), files(config.parent / "b")
    coordination.times = times
    with pytest.raises(StoreError, match=sentence):
        set_store_aside(node, "cluster", found, coordination)
    assert files(node) == before


def test_who_has_become_the_last_member_since_it_was_looked_at_is_kept(config: Path) -> None:
    node, coordination = config.parent / "b", MemoryCoordination()
    coordination.record = Record("cluster", 1, 1, A, (A, B))
    found, before = look(node, "cluster", "b", coordination), files(config.parent / "b")
    coordination.record = last = Record("cluster", 2, 2, B, (B,))
    with pytest.raises(StoreError, match="b is the only member of the ready set"):
        set_store_aside(node, "cluster", found, coordination)
    assert files(node) == before and coordination.record == last


def test_the_store_of_another_node_or_cluster_is_not_given_up(config: Path) -> None:
    coordination = MemoryCoordination()
    coordination.record = Record("cluster", 1, 1, A, (A,))
    for cluster, name in (("cluster", "x"), ("other", "b")):
        with pytest.raises(StoreError, match="it belongs to node b of cluster cluster"):
            look(config.parent / "b", cluster, name, coordination)


def test_only_this_store_is_taken_out_and_not_a_later_one_of_its_node(config: Path) -> None:
    """A store that was restored beside the node's, or in its place: the member is another one."""
    node, coordination = config.parent / "b", MemoryCoordination()
    for ready in ((A, Member("b", "later")), (Member("b", "later"),)):
        coordination.record = Record("cluster", 1, 1, A, ready)
        found = look(node, "cluster", "b", coordination)
        assert not found.ready and found.others == tuple(member.node for member in ready)
    set_store_aside(node, "cluster", found, coordination)
    assert coordination.record is not None and coordination.record.ready == (Member("b", "later"),)


def test_each_store_has_a_directory_of_its_own_also_within_a_second(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, coordination = config.parent / "b", MemoryCoordination()
    coordination.record = Record("cluster", 1, 1, A, (A,))
    monkeypatch.setattr(discarding.time, "strftime", lambda *words: "20200101T000000Z")
    kept = {}
    for name in ("discarded-20200101T000000Z", "discarded-20200101T000000Z-2", "discarded-20200101T000000Z-3"):
        before = files(node)
        aside = set_store_aside(node, "cluster", look(node, "cluster", "b", coordination), coordination)
        assert aside == node / name
        kept[aside] = {path: data for path, data in before.items() if not path.startswith("discarded")}
        make_store(node, [(1, beginning(len(kept)))], 2)
    assert {aside: files(aside) for aside in kept} == kept


def test_killed_when_it_is_out_of_the_ready_set_and_run_again(config: Path) -> None:
    node = config.parent / "b"
    before = files(node)
    record_says(config.parent, A, B)
    killed = discard(config, "--yes", TXHA_CRASH_POINT="discard.left-ready-set")
    assert killed.returncode == -signal.SIGKILL
    assert ready(config.parent) == (A,) and files(node) == before, "it could start, and join again"
    assert discard(config, "--yes").returncode == 0 and holds_nothing(node)


@pytest.mark.parametrize("point", ["discard.part-set-aside"])
@pytest.mark.parametrize("passing", [1, 2, 3])
def test_killed_there_and_run_again(config: Path, point: str, passing: int) -> None:
    """No node starts with what is left, and the whole store comes to be in one directory."""
    node = config.parent / "b"
    before = files(node)
    killed = discard(config, "--yes", TXHA_CRASH_POINT=f"{point}:{passing}")
    assert killed.returncode == -signal.SIGKILL
    if passing < len(PARTS):
        with pytest.raises(StoreError):
            open_store(node, Posts(), node="b")
        assert read_identity(node) is not None, "it is the same store still, and not whole"
        assert discard(config, "--yes").returncode == 0
    (aside,) = node.glob("discarded-*")
    assert files(aside) == before and holds_nothing(node)
