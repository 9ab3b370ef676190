"""``txha recover`` over real stores whose record is lost, or older than they are: what it asks, and what it writes."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from broker_plugin.cli.asking import BadArgument
from broker_plugin.cli.recovery.crashed import Given
from broker_plugin.cli.recovery.recovering import Accepted, run
from broker_plugin.coordination.address import in_file
from broker_plugin.coordination.sqlite_coordination import SqliteCoordination
from ha.membership.record import Record
from recovery.planner.founding import found
from recovery.store.identity import adopt, read_identity
from tests.recovery.planner.stores import beginning, make_store
from txobserver.events import GenerationStart
from txobserver.ids import Member
from txobserver.ports.store import StoreError

A, B = Member("a", "incarnation"), Member("b", "incarnation")
ID, ANOTHER = "0123456789abcdef" * 2, "fedcba9876543210" * 2
SHARED, ALONE = 5, 9
"""Events that both had acknowledged; and what a had, which acknowledged the rest alone"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Ready {a, b}; b was removed; a acknowledged alone; both died."""
    nodes = []
    for name, count in (("a", ALONE), ("b", SHARED)):
        make_store(tmp_path / name, [(1, beginning(count))], count + 2)
        has_identity(tmp_path, name, ID)
        nodes.append({"name": name, "pid": None, "amqp_port": 5701, "dir": str(tmp_path / name)})
    (tmp_path / "cluster.json").write_text(json.dumps({"cluster": "cluster", "nodes": nodes}))
    return tmp_path


def has_identity(directory: Path, name: str, cluster_id: str) -> None:
    identity = read_identity(directory / name)
    assert identity is not None
    adopt(directory / name, identity, cluster_id)


def record_says(directory: Path, *ready: Member, generation: int = 1, version: int = 7) -> Record:
    """This is what the coordination store holds now."""
    (directory / "coordination.sqlite").unlink(missing_ok=True)
    store = SqliteCoordination(directory / "coordination.sqlite", "cluster", create=True)
    made = store.compare_and_set(0, Record("cluster", 1, generation, ready[0], ready, cluster_id=ID))
    for _ in range(version - 1):
        made = store.compare_and_set(made.version, made)
    store.close()
    return made


def record_in(directory: Path) -> Record | None:
    store = SqliteCoordination(directory / "coordination.sqlite", "cluster")
    found = store.read()
    store.close()
    return found


def recover(
    directory: Path, capsys: pytest.CaptureFixture[str], *accepted: str, apply: bool = True
) -> tuple[int, dict[str, Any]]:
    """Status and report of ``txha recover``."""
    status = run(Given([directory]), apply, Accepted(frozenset(accepted)), as_json=True)
    return status, json.loads(capsys.readouterr().out)


def test_older_record_restored(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The record is lost. With both stores a is chosen; without a's it is asked for, by name."""
    shutil.copytree(directory, aside := directory.with_name("aside"))
    status, found = recover(directory, capsys)
    assert (status, found["promote"], found["nothing_acknowledged_is_lost"]) == (0, "a", True)
    assert record_in(directory) == Record("cluster", 1, 2, A, (A,), True, "a", ID, 0, 1)

    shutil.rmtree(aside / "a")
    for _ in range(2):
        status, found = recover(aside, capsys)
        assert (status, found["promote"], found["missing"]) == (1, "b", ["a"])
        assert "bring the missing stores back, or accept the loss with --accept-missing a" in found["refused"]
        assert record_in(aside) is None and not (aside / "coordination.sqlite").exists()
    status, found = recover(aside, capsys, "a")
    made = record_in(aside)
    assert status == 1 and "refused" not in found and made is not None
    assert made.ready == (B,) and made.generation > 1000 and made.loss_accepted == made.generation
    assert made.cluster_id == ID


def test_a_copy_of_the_record_that_a_checkpoint_contradicts_is_none(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It lists b still: if b started first, what a had acknowledged alone would be lost."""
    old = record_says(directory, A, B)
    status, found = recover(directory, capsys)
    assert (status, found["promote"]) == (0, "a") and "it is an old copy" in found["reasons"][0]
    made = record_in(directory)
    assert made is not None and (made.ready, made.version, made.generation) == ((A,), old.version + 1, 2)


def test_a_copy_of_an_earlier_generation_is_none(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    promoted_without_the_rest(directory)
    shutil.rmtree(directory / "a")
    make_store(directory / "a", [(1, beginning(ALONE))], SHARED)  # what it had alone was never acknowledged
    has_identity(directory, "a", ID)
    record_says(directory, A, generation=1)
    status, found = recover(directory, capsys)
    assert (status, found["promote"]) == (0, "b") and "generation 1 and a store of generation 3" in found["reasons"][0]


def promoted_without_the_rest(directory: Path) -> None:
    """An old copy of the record had b promoted, in generation 3, without what a had acknowledged alone."""
    shutil.rmtree(directory / "b")
    events = beginning(SHARED + 1)[-1:]
    make_store(directory / "b", [(1, beginning(SHARED)), (3, [GenerationStart(3, "b", ["b"]), *events])], SHARED + 4)
    has_identity(directory, "b", ID)


@pytest.mark.parametrize("listed", [True, False], ids=["record", "no record"])
def test_recover_says_never_of_what_a_checkpoint_holds(
    directory: Path, capsys: pytest.CaptureFixture[str], listed: bool
) -> None:
    """a refuses to be overwritten by b. What is lost either way is said; an operator names the store that counts."""
    promoted_without_the_rest(directory)
    if listed:
        record_says(directory, B, generation=3)
    before = record_in(directory)
    for apply in (False, True):
        status, found = recover(directory, capsys, apply=apply)
        assert (status, found["promote"], found["nothing_acknowledged_is_lost"]) == (1, "b", False)
        assert any("b's log lacks something that a's checkpoint holds, up to 1.11" in each for each in found["reasons"])
        assert found["lost_in_all"] == 4 and {loss["told"] for loss in found["lost"]} == {"acknowledged"}
        assert found["discarded"] == []
    assert "say which one counts with --choose b or --choose a" in found["refused"]
    assert found["choose_between"] == [
        {"node": "b", "position": "3.9", "loses": {"message": 4}, "acknowledged": 4, "unnamed": 0},
        {"node": "a", "position": "1.11", "loses": {"message": 1}, "acknowledged": 1, "unnamed": 0},
    ]
    assert record_in(directory) == before and not list(directory.glob("*recovery*")), "nothing is done"


@pytest.mark.parametrize("node", ["a", "b"])
def test_the_operator_can_have_either_store(directory: Path, capsys: pytest.CaptureFixture[str], node: str) -> None:
    """The loss stands in the record, so the other store is overwritten; reports call it accepted from then on."""
    promoted_without_the_rest(directory)
    record_says(directory, B, generation=3)
    accepted = Accepted(chosen=node)
    assert run(Given([directory]), True, accepted, as_json=True) == 1
    found = json.loads(capsys.readouterr().out)
    assert "refused" not in found and found["promote"] == node and found["lost_in_all"] == (4 if node == "b" else 1)
    made = record_in(directory)
    assert made is not None and made.ready == (Member(node, "incarnation"),)
    assert made.loss_accepted == made.generation > 3, "above the generation of whatever the other holds"
    status, found = recover(directory, capsys)
    assert (status, found["promote"], found["by_itself"], found["lost"]) == (0, node, True, [])
    assert {loss["told"] for loss in found["discarded"]} == {"accepted"}
    with pytest.raises(BadArgument, match="there is nothing to choose"):
        run(Given([directory]), True, accepted, as_json=True)


def test_a_choice_is_between_stores_that_exclude_each_other(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BadArgument, match="--choose b: no two stores exclude each other"):
        run(Given([directory]), False, Accepted(chosen="b"), as_json=True)
    promoted_without_the_rest(directory)
    with pytest.raises(BadArgument, match="--choose c: the choice is between b and a"):
        run(Given([directory]), True, Accepted(chosen="c"), as_json=True)
    assert run(Given([directory]), False, Accepted(), as_json=False) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "--choose a, whose store is at 1.11: loses 1 message (1 certainly acknowledged)" in shown


def test_a_plan_in_the_middle_is_not_changed_by_another_choice(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    promoted_without_the_rest(directory)
    assert run(Given([directory]), True, Accepted(chosen="a"), as_json=True) == 1
    capsys.readouterr()
    (directory / "recovery-1.json").rename(directory / "unfinished-recovery.json")
    with pytest.raises(BadArgument, match="a plan is in the middle of being carried out, with a: finish it"):
        run(Given([directory]), True, Accepted(chosen="b"), as_json=True)
    assert run(Given([directory]), True, Accepted(chosen="a"), as_json=True) == 1


def test_consent_is_asked_for_what_is_missing_and_nothing_else(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BadArgument, match="--accept-missing b: the plan asks for no such consent, leave it out"):
        recover(directory, capsys, "b")
    shutil.rmtree(directory / "a")
    with pytest.raises(BadArgument, match="--accept-missing b"):
        recover(directory, capsys, "a", "b")
    with pytest.raises(BadArgument, match="--accept-data-loss is for"):
        run(Given([directory]), True, Accepted(frozenset("a"), unnamed=True), as_json=True)
    (directory / "cluster.json").unlink()
    status, found = recover(directory, capsys)
    assert status == 1 and "a node that was not given" in found["refused"]
    assert run(Given([directory]), True, Accepted(unnamed=True), as_json=True) == 1
    assert record_in(directory) is not None


def test_stores_of_clusters_that_were_founded_apart_do_not_mix(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``empty_node_founds_anew``: the same name, the same generation, and other content."""
    has_identity(directory, "b", ANOTHER)
    with pytest.raises(StoreError, match="founded apart under one name"):
        recover(directory, capsys)
    record_says(directory, A)
    status, found = recover(directory, capsys)
    assert (status, found["promote"]) == (1, "a")
    assert {store["node"]: store["condition"] for store in found["stores"]} == {"a": "whole", "b": "foreign"}


def test_recover_says_that_the_record_was_founded_over_a_lost_one(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``wrong_founding_leads_to_discard``: the way out leads to the stores that there are."""
    (directory / "new").mkdir()
    store = SqliteCoordination(directory / "coordination.sqlite", "cluster", create=True)
    record = found(directory / "new" / "b", "cluster", "b", store)
    store.close()
    (directory / "b").rename(directory / "lost")
    (directory / "new" / "b").rename(directory / "b")
    status, said = recover(directory, capsys, apply=False)
    assert status == 1 and said["promote"] is None
    (doubt,) = said["doubts"]
    assert f"of identity {record.cluster_id}, was founded over a lost one" in doubt and "has data in a;" in doubt
    assert "move the coordination record away, and run `txha recover` again" in doubt
    (directory / "coordination.sqlite").rename(directory / "aside")
    status, said = recover(directory, capsys, "b")
    written = record_in(directory)
    assert said["promote"] == "a" and written is not None and (written.cluster_id, written.ready) == (ID, (A,))
    _, said = recover(directory, capsys, apply=False)
    assert said["doubts"] == [doubt for doubt in said["doubts"] if "give it up with `txha discard`" in doubt] != []


def test_a_store_that_comes_back_later_finds_a_generation_above_its_own(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What only a held was given up; its store is not lost with that until its node is overwritten or discarded."""
    shutil.move(directory / "a", aside := directory.with_name("a-aside"))
    recover(directory, capsys, "a")
    shutil.rmtree(directory / "a")
    shutil.move(aside, directory / "a")
    status, found = recover(directory, capsys, apply=False)
    assert (status, found["promote"], found["by_itself"], found["actions"]) == (0, "b", True, [])
    assert msgspec.structs.asdict(record_in(directory) or record_says(directory, A))["loss_accepted"] > 1000


@pytest.mark.parametrize("apply", [False, True])
def test_the_record_of_another_cluster_is_left_alone(directory: Path, apply: bool) -> None:
    """``another_clusters_record_set_aside``: it may be a wrong --coordination, and that cluster may only be stopped."""
    theirs = directory / "theirs.sqlite"
    store = SqliteCoordination(theirs, "other", create=True)
    store.compare_and_set(0, Record("other", 1, 1, A, (A,), cluster_id="0" * 32))
    store.close()
    before = theirs.read_bytes()
    with pytest.raises(StoreError, match="belongs to cluster other, not to cluster cluster: name the right") as refused:
        run(Given([directory], in_file(theirs)), apply, Accepted(), as_json=True)
    assert str(theirs) in str(refused.value) and "move this one away" in str(refused.value)
    assert theirs.read_bytes() == before and not list(directory.glob("*set-aside*"))


def test_who_has_run_txha_recover_is_not_told_to_run_it(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (directory / "coordination.sqlite").write_bytes(b"no database at all" * 100)
    status, said = recover(directory, capsys)
    assert status == 0 and "is damaged (file is not a database)" in said["reasons"][0]
    assert "txha recover" not in json.dumps(said["reasons"]) + json.dumps(said["actions"])


@pytest.mark.parametrize("apply", [False, True])
def test_no_record_and_empty_stores(tmp_path: Path, apply: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 1, and a sentence: status 0 would say that nothing acknowledged is lost."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    nodes = [{"name": name, "pid": None, "amqp_port": 5701, "dir": str(tmp_path / name)} for name in ("a", "b")]
    (tmp_path / "cluster.json").write_text(json.dumps({"cluster": "cluster", "nodes": nodes}))
    assert run(Given([tmp_path], None, [], [], []), apply, Accepted(), False) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("txha: ") and "every store is empty, so nothing is recovered" in line
    assert not (tmp_path / "coordination.sqlite").exists()


def test_a_primary_that_renews_slower_than_once_a_second(directory: Path) -> None:
    """On another host, with this coordination file. Its timing stands in the node.toml of every node."""
    shutil.rmtree(directory / "b")
    (directory / "a" / "node.toml").write_text("timing = { lease_ttl = 4.0, renew_every = 1.8 }\n")
    renewed, ended = [record_says(directory, Member("c", "incarnation"))], threading.Event()

    def primary() -> None:
        while not ended.wait(1.8):
            store = SqliteCoordination(directory / "coordination.sqlite", "cluster")
            renewed.append(store.compare_and_set(renewed[-1].version, renewed[-1]))
            store.close()

    thread = threading.Thread(target=primary)
    thread.start()
    try:
        with pytest.raises(StoreError, match="a primary renews its lease"):
            run(Given([directory]), True, Accepted(nodes=frozenset("c")), as_json=True)
    finally:
        ended.set()
        thread.join()
    assert record_in(directory) == renewed[-1]
