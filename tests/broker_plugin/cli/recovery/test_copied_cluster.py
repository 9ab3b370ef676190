"""A copy of a cluster's directory names the cluster that it is of: no command does to that what was meant for it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from broker_plugin.cli.asking import BadArgument, node_entry
from broker_plugin.cli.cluster.plan import plan_cluster
from broker_plugin.cli.commands import app
from broker_plugin.cli.layout import ClusterError, read_cluster, read_nodes, write_cluster
from broker_plugin.cli.recovery.crashed import Given, crashed_cluster
from broker_plugin.cli.recovery.settling import _urls
from broker_plugin.coordination.address import in_file
from ha.membership.record import Record
from python_tests.harness.cluster import free_base_port
from tests.broker_plugin.cli.recovery.test_recover_again import coordination, record_in
from tests.recovery.planner.stores import beginning, make_store
from txobserver.ids import Member


@pytest.fixture
def live(tmp_path: Path) -> Path:
    """A cluster of a and b, as ``txha cluster`` lays it out; a copy of it is in ``copy`` beside it."""
    directory, nodes = tmp_path / "live", []
    directory.mkdir()
    for name in "ab":
        make_store(directory / name, [(1, beginning(6))], 3)
        (directory / name / "node.toml").write_text(
            f'name = "{name}"\ncluster = "cluster"\ndir = "{directory / name}"\n'
            f'coordination = "{directory / "coordination.sqlite"}"\n[peer]\nport = 5999\n'
        )
        nodes.append({"name": name, "pid": None, "amqp_port": 5701, "dir": str(directory / name)})
    (directory / "cluster.json").write_text(json.dumps({"cluster": "cluster", "nodes": nodes}))
    a, b = (Member(name, "incarnation") for name in "ab")
    with coordination(directory) as store:
        store.compare_and_set(0, Record("cluster", 1, 1, a, (a, b)))
    shutil.copytree(directory, tmp_path / "copy")
    return directory


def held(directory: Path) -> dict[str, bytes]:
    """All that is there but locks."""
    paths = (path for path in directory.rglob("*") if path.is_file() and not path.name.startswith("lock"))
    return {str(path): path.read_bytes() for path in paths}


@pytest.mark.parametrize("words", [["discard", "b", "--yes"], ["promote", "b"], ["status"], ["tx", "list"]])
def test_a_command_for_a_copy_does_nothing_to_the_cluster_that_it_is_of(words: list[str], live: Path) -> None:
    """`txha discard` gave up the store of the live cluster."""
    copy = live.with_name("copy")
    before = held(live), held(copy)
    done = CliRunner().invoke(app, [*words, "--dir", str(copy)])
    assert isinstance(done.exception, ClusterError)
    assert str(done.exception).startswith(f"{copy} is a copy of the cluster in {live}, or was moved from there: give")
    assert (held(live), held(copy)) == before and len(record_in(live).ready) == 2


def test_a_store_is_not_given_up_by_the_configuration_of_another(live: Path) -> None:
    """The copy was started, and that was cut short behind its cluster.json."""
    copy = live.with_name("copy")
    entries = read_nodes(copy)
    for entry in entries:
        entry.directory = copy / entry.name
    write_cluster(copy, "cluster", entries)
    before = held(live), held(copy)
    done = CliRunner().invoke(app, ["discard", "--dir", str(copy), "b", "--yes"])
    assert isinstance(done.exception, ClusterError) and "nothing is discarded" in str(done.exception)
    assert (held(live), held(copy)) == before


def test_the_directory_itself_by_whatever_name(live: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (live.parent / "link").symlink_to(live)
    monkeypatch.chdir(live)
    for path in (live, live.parent / "link", Path(), Path("../live")):
        assert [entry.directory for entry in read_cluster(path)] == [live / "a", live / "b"]
        assert node_entry(path, "b").directory == live / "b"


def test_a_cluster_that_was_moved_is_started_where_it_is(tmp_path: Path) -> None:
    port = free_base_port(1)
    plan_cluster(tmp_path / "old", 1, port, []).write()
    (tmp_path / "old" / "lock").unlink()
    (tmp_path / "old").rename(tmp_path / "new")
    with pytest.raises(ClusterError, match="was moved from there"):
        read_cluster(tmp_path / "new")
    plan_cluster(tmp_path / "new", 1, port, []).write()
    assert [entry.directory for entry in read_cluster(tmp_path / "new")] == [tmp_path / "new" / "node-1"]


def test_recover_takes_no_copy_of_nodes_for_the_nodes(live: Path) -> None:
    """It planned by the record of the live cluster, and wrote its plan beside that."""
    copy = live.with_name("copy")
    given = [copy / "a", copy / "b"]
    with pytest.raises(BadArgument, match=r"node.toml is that of a node in .*/live/a: .* with --coordination"):
        crashed_cluster(Given(given))
    record = in_file(copy / "coordination.sqlite")
    assert crashed_cluster(Given(given, record)).record == record
    assert crashed_cluster(Given([copy])).record == in_file(copy / "coordination.sqlite")
    assert crashed_cluster(Given([live / "a", live / "b"])).record == in_file(live / "coordination.sqlite")


def test_the_plan_for_a_copy_settles_nothing_at_the_nodes_of_the_cluster_that_it_is_of(live: Path) -> None:
    """They listen on the ports that the copy names, and have the name of its cluster."""
    copy = live.with_name("copy")
    with pytest.raises(ClusterError, match="is a copy of the cluster in"):
        _urls(crashed_cluster(Given([copy])))
    address = "amqp://guest:guest@127.0.0.1:5701/"
    assert _urls(crashed_cluster(Given([live]))) == [f"{address},{address}"]
