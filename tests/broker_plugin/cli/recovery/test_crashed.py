"""Which cluster is meant by directories of one that does not run."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from broker_plugin.cli.asking import BadArgument
from broker_plugin.cli.recovery.crashed import Given, crashed_cluster
from broker_plugin.cli.recovery.recovering import Accepted, run
from broker_plugin.coordination.address import in_file
from broker_plugin.coordination.sqlite_coordination import SqliteCoordination
from recovery.planner import apply
from recovery.store.segment import segment_firsts, segment_path
from tests.recovery.planner.stores import beginning, make_store

NODES = frozenset({"a", "b"})


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A cluster of a and b, as ``txha cluster`` leaves it."""
    nodes = []
    for name, port in (("a", 5701), ("b", 5702)):
        make_store(tmp_path / name, [(1, beginning(2))], 2)
        peers = "".join(f'[[peers]]\nname = "{other}"\nhost = "h"\nport = 1\n' for other in sorted(NODES - {name}))
        record = tmp_path / "coordination.sqlite"
        (tmp_path / name / "node.toml").write_text(f'name = "{name}"\ncoordination = "{record}"\n{peers}')
        nodes.append({"name": name, "pid": 17, "amqp_port": port, "dir": f"/where/it/once/was/{name}"})
    (tmp_path / "cluster.json").write_text(json.dumps({"cluster": "cluster", "nodes": nodes}))
    return tmp_path


def test_a_cluster_s_directory_wherever_it_stands_now(directory: Path) -> None:
    make_store(directory / "b.old", [(1, beginning(2))], 2)
    found = crashed_cluster(Given([directory]))
    assert found.directories == {name: directory / name for name in NODES}
    assert (found.cluster, found.nodes, found.ports) == ("cluster", NODES, (5701, 5702))
    assert found.record == in_file(directory / "coordination.sqlite")
    assert set(found.locked) == {*NODES, "the cluster"}


def test_without_the_cluster_s_file_what_looks_like_a_node_is_one(directory: Path) -> None:
    for damage in (lambda path: path.write_text("{"), lambda path: path.unlink()):
        damage(directory / "cluster.json")
        found = crashed_cluster(Given([directory]))
        assert set(found.directories) == NODES and found.cluster == "cluster"
    for name in NODES:
        (directory / name / "node.toml").unlink()
    found = crashed_cluster(Given([directory]))
    assert set(found.directories) == NODES and found.nodes is None, "it is not said whether there are more"


def test_the_nodes_of_a_directory_without_the_cluster_s_file_say_where_their_record_is(directory: Path) -> None:
    """As they do when they are named one by one. A record that is not there would be taken for a lost one."""
    record = directory / "shared" / "record.sqlite"
    for name in NODES:
        text = (directory / name / "node.toml").read_text()
        there = text.replace(str(directory / "coordination.sqlite"), str(record))
        (directory / name / "node.toml").write_text("timing = { lease_ttl = 3.0 }\n" * (name == "b") + there)
    (directory / "cluster.json").write_text("{")
    found, one_by_one = crashed_cluster(Given([directory])), crashed_cluster(Given([directory / "a", directory / "b"]))
    assert found.record == one_by_one.record == in_file(record) and found.nodes == one_by_one.nodes == NODES
    assert set(found.locked) == {*NODES, "the cluster"} and found.lease_ttl == 3.0
    make_store(directory / "b.old", [(1, beginning(2))], 2)
    (directory / "b" / "identity.json").rename(directory / "b.old" / "identity.json")
    with pytest.raises(BadArgument, match="are both of b: name one directory of each node"):
        crashed_cluster(Given([directory]))


def test_directories_of_nodes_say_who_else_there_is(directory: Path) -> None:
    found = crashed_cluster(Given([directory / "a"]))
    assert found.directories == {"a": directory / "a"} and found.nodes == NODES and found.directory is None
    assert found.record == in_file(directory / "coordination.sqlite")
    (directory / "a" / "node.toml").unlink()
    found = crashed_cluster(Given([directory / "a", directory / "b"]))
    assert set(found.directories) == NODES and found.nodes is None, "one of them does not say"


def test_a_node_without_its_identity_is_known_by_its_configuration(directory: Path) -> None:
    (directory / "a" / "identity.json").unlink()
    (directory / "a").rename(directory / "somewhere")
    assert set(crashed_cluster(Given([directory / "somewhere"])).directories) == {"a"}


def misnamed(directory: Path, *, damaged: bool = False) -> list[Path]:
    """Both nodes' directories, called otherwise and without configurations; a has lost its identity, and more of its
    log than b is all that is left of what it did. The cluster's file and its record are gone."""
    (directory / "cluster.json").unlink()
    shutil.rmtree(directory / "a")
    make_store(directory / "a", [(1, beginning(9))], 3)
    identity = directory / "a" / "identity.json"
    identity.write_text("{") if damaged else identity.unlink()
    (directory / "b" / "node.toml").unlink()
    return [(directory / name).rename(directory / f"data-{name}") for name in "ab"]


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize("one_by_one", [False, True])
def test_a_store_without_its_identity_is_called_what_its_log_says(
    directory: Path, capsys: pytest.CaptureFixture[str], one_by_one: bool, damaged: bool
) -> None:
    """``misnamed_store_is_foreign``: it is damaged, and not another node's whose losses are not looked for."""
    paths = misnamed(directory, damaged=damaged)
    given = Given(paths if one_by_one else [directory])
    assert crashed_cluster(given).directories == dict(zip("ab", paths, strict=True))
    assert run(given, apply=False, accepted=Accepted(), as_json=True) == 1
    report = json.loads(capsys.readouterr().out)
    assert {store["node"]: store["condition"] for store in report["stores"]} == {"a": "damaged", "b": "whole"}
    assert report["promote"] == "b" and "a" in report["missing"] and not report["nothing_acknowledged_is_lost"]
    assert [loss["kind"] for loss in report["lost"]] == ["message"] * 7


def test_a_segment_whose_header_is_damaged_hides_no_name(directory: Path) -> None:
    """The newest that is whole says it."""
    paths = misnamed(directory)
    last = segment_path(paths[0] / "log", segment_firsts(paths[0] / "log")[-1])
    last.write_bytes(b"x" * 40 + last.read_bytes()[40:])
    found = crashed_cluster(Given(paths))
    assert set(found.directories) == NODES and found.cluster == "cluster"


def test_without_log_and_identity_the_directory_s_name_is_all_there_is(directory: Path) -> None:
    paths = misnamed(directory)
    shutil.rmtree(paths[0] / "log")
    assert set(crashed_cluster(Given(paths)).directories) == {"data-a", "b"}
    (paths[0] / "node.toml").write_text('name = "a"\n')
    assert set(crashed_cluster(Given(paths)).directories) == NODES, "a configuration that lacks the rest says that much"


def test_what_does_not_belong_together(directory: Path, tmp_path: Path) -> None:
    (directory / "b" / "node.toml").write_text('name = "b"\ncoordination = "/elsewhere/record"\n')
    with pytest.raises(BadArgument, match="do not share one coordination record"):
        crashed_cluster(Given([directory / "a", directory / "b"]))
    given = crashed_cluster(Given([directory / "a", directory / "b"], in_file(tmp_path / "record")))
    assert given.record == in_file(tmp_path / "record")
    with pytest.raises(BadArgument, match="are both of a"):
        crashed_cluster(Given([directory / "a", directory / "a"]))


def test_the_plan_ends_with_commands_that_can_be_given(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The cluster by its command; its nodes one by one where the cluster is not known any more."""
    for cluster_file in ("there", "damaged"):
        if cluster_file == "damaged":
            (directory / "cluster.json").write_text("{")
        status = run(Given([directory]), apply=False, accepted=Accepted(), as_json=True)
        report = json.loads(capsys.readouterr().out)
        assert (status, report["promote"]) == (0, "b")
        commands = [step["command"] for step in report["next"]]
        if cluster_file == "there":
            assert commands == [f"txha cluster --dir {directory} --nodes 2 --base-port 5701"]
        else:
            assert commands == [f"txha node --config {directory}/{name}/node.toml" for name in "ab"]
        run(Given([directory]), apply=False, accepted=Accepted(), as_json=False)
        assert "Promote b." in capsys.readouterr().out


def test_what_is_no_file_is_no_coordination_file(directory: Path) -> None:
    """A pipe would be waited for, and a directory ended with a traceback."""
    os.mkfifo(directory / "pipe")
    for path in (directory / "pipe", directory / "a"):
        with pytest.raises(BadArgument, match=f"{path} is no file: name the coordination file with --coordination"):
            crashed_cluster(Given([directory], in_file(path)))


@pytest.mark.parametrize("text", ["", "timing = 1", "[timing]\nlease_ttl = 'x'", "[timing]\nlease_ttl = inf", "="])
def test_the_greatest_lease_of_the_nodes_that_say_one(directory: Path, text: str) -> None:
    for name in NODES:
        (directory / name / "node.toml").write_text(text)
    assert crashed_cluster(Given([directory])).lease_ttl == 0.0
    (directory / "b" / "node.toml").write_text("[timing]\nlease_ttl = 7\n")
    for given in ([directory], [directory / "a", directory / "b"]):
        assert crashed_cluster(Given(given)).lease_ttl == 7.0


def refused(given: Given) -> str:
    """What ``txha recover`` says, which changes nothing."""
    said = set()
    for change in (False, True):
        with pytest.raises(BadArgument) as error:
            run(given, change, Accepted(), as_json=True)
        said.add(str(error.value))
    (sentence,) = said
    return sentence


def test_a_mistyped_coordination_file_does_not_become_a_record(directory: Path, tmp_path: Path) -> None:
    """The record would be where no node looks for it; and the one that is there would be taken for lost."""
    for given in ([directory], [directory / "a", directory / "b"]):
        before = sorted(tmp_path.rglob("*"))
        sentence = refused(Given(given, in_file(tmp_path / "coordinaton.sqlite")))
        assert sentence == (
            f"there is no coordination file {tmp_path}/coordinaton.sqlite, and the directories lead to "
            f"{tmp_path}/coordination.sqlite: name the right one with --coordination, or, if the record is lost and a "
            f"new one is to be written to that file, make it first: touch {tmp_path}/coordinaton.sqlite"
        )
        sentence = refused(Given(given, in_file(tmp_path / "sharde" / "coordination.sqlite")))
        assert sentence == (
            f"there is no directory {tmp_path}/sharde for the coordination file coordination.sqlite: mount it, or name "
            "the right file with --coordination"
        )
        assert sorted(tmp_path.rglob("*")) == before


def test_nodes_that_have_their_record_elsewhere_get_none_beside_them(directory: Path, tmp_path: Path) -> None:
    """Their directory is given, and no option: their record is where they say it is."""
    (directory / "cluster.json").unlink()
    shared = tmp_path / "shared"
    for name in NODES:
        (directory / name / "node.toml").write_text(f'name = "{name}"\ncoordination = "{shared}/record"\n')
    assert f"there is no directory {shared} for the" in refused(Given([directory]))
    assert f"there is no directory {shared} for the" in refused(Given([directory / "a", directory / "b"]))
    assert f"there is no directory {shared} for the" in refused(Given([directory], in_file(shared / "record")))


def recovered(given: Given, capsys: pytest.CaptureFixture[str], record: Path) -> None:
    """Their record is lost, and is in this file then."""
    assert run(given, True, Accepted(unnamed=crashed_cluster(given).nodes is None), as_json=True) in (0, 1)
    report = json.loads(capsys.readouterr().out)
    assert any(f"write {record}: " in action for action in report["actions"]) and report["applied"]
    store = SqliteCoordination(record, "cluster")
    written = store.read()
    store.close()
    assert written is not None and written.preferred == "b"


@pytest.mark.parametrize("nodes", [False, True], ids=["cluster", "nodes"])
@pytest.mark.parametrize("named", [False, True])
def test_a_lost_record_is_written_where_the_nodes_look_for_it(
    directory: Path, capsys: pytest.CaptureFixture[str], named: bool, nodes: bool
) -> None:
    given = [directory / "a", directory / "b"] if nodes else [directory]
    record = directory / "coordination.sqlite"
    recovered(Given(given, in_file(record) if named else None), capsys, record)


@pytest.mark.parametrize("configured", [False, True])
def test_a_lost_record_is_written_to_an_empty_file(
    directory: Path, capsys: pytest.CaptureFixture[str], configured: bool
) -> None:
    """It is the sign that the operator wants it there: the stores may have been brought to another machine."""
    given = Given([directory / "a", directory / "b"], in_file(directory / "new record"))
    if not configured:
        for name in NODES:
            (directory / name / "node.toml").unlink()
    assert f"make it first: touch '{directory}/new record'" in refused(given)
    (directory / "new record").touch()
    recovered(given, capsys, directory / "new record")


def test_a_damaged_record_that_was_set_aside_is_written_anew(
    directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--apply`` was cut short between the two, with a file that no node.toml names, and is run again."""
    given = Given([directory], in_file(directory / "elsewhere.sqlite"))
    (directory / "elsewhere.sqlite").write_bytes(b"no database at all" * 100)

    def killed(point: str) -> None:
        if point == "recover.action-done":
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(apply, "crash_point", killed)
        run(given, True, Accepted(), as_json=True)
    assert not (directory / "elsewhere.sqlite").exists()
    recovered(given, capsys, directory / "elsewhere.sqlite")
