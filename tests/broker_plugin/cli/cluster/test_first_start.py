"""``txha cluster`` on a new directory: cut short anywhere, or beside another one, and the cluster is founded once."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from broker_plugin.cli.cluster import cluster, plan
from broker_plugin.cli.cluster.cluster import found_if_new
from broker_plugin.cli.cluster.plan import ClusterPlan, plan_cluster
from broker_plugin.cli.layout import ClusterError, cluster_id, is_founded
from broker_plugin.coordination.sqlite_coordination import SqliteCoordination
from ha.membership.record import Record
from python_tests.harness.cluster import free_base_port
from recovery.planner.founding import make_empty
from recovery.store.identity import read_identity


class Killed(BaseException):
    """The process ends here."""


def killed(*at: object, **options: object) -> None:
    raise Killed


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "c"


def unlock(directory: Path) -> None:
    """As the end of the process that made the cluster does: the file stays."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}") == str(directory / "lock"):
                os.close(int(name))


def start(directory: Path) -> ClusterPlan:
    """The command, up to where it starts the nodes, and its end."""
    try:
        made = plan_cluster(directory, 2, free_base_port(2), [])
        made.write()
        found_if_new(made, [])
    finally:
        unlock(directory)
    return made


def record(directory: Path) -> Record | None:
    """The coordination record of the cluster there."""
    coordination = SqliteCoordination(directory / "coordination.sqlite", cluster_id(directory) or "")
    try:
        return coordination.read()
    finally:
        coordination.close()


def is_whole(directory: Path) -> bool:
    """Whether the cluster is founded, with the store of its first node."""
    found, identity = record(directory), read_identity(directory / "node-1")
    return found is not None and identity is not None and found.ready == (identity.member,) and is_founded(directory)


@pytest.mark.parametrize(
    ("where", "what"),
    [(plan, "write_cluster"), (plan, "_section"), (cluster, "found_cluster"), (cluster, "write_cluster")],
)
def test_a_first_start_that_is_cut_short_is_gone_on_with_by_the_same_command(
    where: object, what: str, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said that the directory is not empty; or started nodes that waited for a cluster that was not founded."""
    with monkeypatch.context() as patch:
        patch.setattr(where, what, killed)
        with pytest.raises(Killed):
            start(directory)
    before = record(directory) if directory.exists() else None
    assert (before is not None) == (where is cluster and what == "write_cluster")
    start(directory)
    assert is_whole(directory) and before in (None, record(directory))


def test_a_first_start_that_was_killed_while_it_founded(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store was made, and the record was not, or its file has no record yet."""
    with monkeypatch.context() as patch:
        patch.setattr(cluster, "found_cluster", killed)
        with pytest.raises(Killed):
            start(directory)
    make_empty(directory / "node-1", cluster_id(directory) or "", "node-1", "1" * 32)
    (directory / "coordination.sqlite").touch()
    start(directory)
    assert is_whole(directory)


def test_a_cluster_that_has_been_founded_is_never_founded_anew(directory: Path) -> None:
    """Though nothing is left of it but its cluster.json: the disks of its nodes may not be mounted yet."""
    start(directory)
    for name in ("node-1", "node-2"):
        shutil.rmtree(directory / name)
    (directory / "coordination.sqlite").unlink()
    assert start(directory).resumed
    assert record(directory) is None and read_identity(directory / "node-1") is None


def test_no_cluster_is_founded_where_another_node_has_a_store(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It got that from a record, which is lost: a node that founds would overwrite the store."""
    with monkeypatch.context() as patch:
        patch.setattr(cluster, "write_cluster", killed)
        with pytest.raises(Killed):
            start(directory)
    make_empty(directory / "node-2", cluster_id(directory) or "", "node-2", "1" * 32)
    (directory / "coordination.sqlite").unlink()
    shutil.rmtree(directory / "node-1")
    start(directory)
    assert record(directory) is None and read_identity(directory / "node-1") is None


def test_two_first_starts_on_one_directory(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One was as far as the other, and has made its cluster and ended before the other locks the directory."""
    real = plan._make_directory

    def overtaken(path: Path) -> None:
        monkeypatch.undo()
        start(path)

    monkeypatch.setattr(plan, "_make_directory", overtaken)
    with pytest.raises(ClusterError, match=r"another command has made a cluster in .* run this one again"):
        start(directory)
    assert plan._make_directory is real and is_whole(directory)
    before = record(directory)
    assert start(directory).resumed and is_whole(directory) and record(directory) == before


def test_what_another_has_left_beside_the_lock_is_not_built_over(directory: Path) -> None:
    directory.mkdir()
    for name in ("lock", "precious"):
        (directory / name).touch()
    with pytest.raises(ClusterError, match="is not empty and holds no cluster"):
        plan_cluster(directory, 2, free_base_port(2), [])
    assert sorted(os.listdir(directory)) == ["lock", "precious"]
