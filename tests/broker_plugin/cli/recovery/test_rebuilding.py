"""Whose store ``txha rebuild`` makes: what the log says, or the operator where it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_plugin.cli.asking import BadArgument
from broker_plugin.cli.recovery.rebuilding import run
from recovery.store.identity import FILE, GIVEN_LATER, adopt, read_identity
from tests.recovery.planner.stores import beginning, make_store
from tests.recovery.store.test_store import as_format_1
from tests.support.logs import Posts, open_store
from txobserver.ports.store import StoreError

OURS, THEIRS = "1" * 32, "2" * 32


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A node of a cluster that was founded with OURS."""
    make_store(tmp_path / "node", [(1, beginning(5))], 3)
    identity = read_identity(tmp_path / "node")
    assert identity is not None
    adopt(tmp_path / "node", identity, OURS)
    return tmp_path / "node"


def rebuilt(log: Path, cluster_id: str | None = None) -> Path:
    into = log.parent / "new"
    run(into, log, None, None, None, None, 100_000, 86_400.0, True, cluster_id)
    return into


def of_before(log: Path) -> None:
    """A log of before there were identities."""
    as_format_1(log / FILE)


def identity_of(directory: Path) -> tuple[int, str]:
    identity = read_identity(directory)
    assert identity is not None
    return identity.format, identity.cluster_id


@pytest.mark.parametrize("given", [None, OURS])
def test_the_store_is_of_the_cluster_of_the_log(log: Path, given: str | None) -> None:
    assert identity_of(rebuilt(log, given)) == (2, OURS)


def test_a_log_of_another_cluster_than_the_operator_says(log: Path) -> None:
    with pytest.raises(BadArgument, match=f"node is of the identity {OURS}, --cluster-id is of the identity {THEIRS}"):
        rebuilt(log, THEIRS)
    assert not (log.parent / "new").exists()


@pytest.mark.parametrize("damage", ["gone", "damaged", "without one"])
def test_a_log_that_does_not_say_whose_it_is(log: Path, damage: str) -> None:
    """Its node's identity is all that says it; a name may be that of two clusters."""
    if damage == "gone":
        (log / FILE).unlink()
    elif damage == "damaged":
        (log / FILE).write_text("{")
    else:
        identity = read_identity(log)
        assert identity is not None
        adopt(log, identity, "")
    with pytest.raises(BadArgument, match="node does not say which identity its cluster has"):
        rebuilt(log)
    assert not (log.parent / "new").exists()
    assert identity_of(rebuilt(log, OURS)) == (2, OURS)


def test_a_log_of_before_there_were_identities_makes_a_store_of_before(log: Path) -> None:
    """It takes what such a cluster is given, and nothing that was founded since."""
    of_before(log)
    into = rebuilt(log)
    assert identity_of(into) == (1, "")
    with pytest.raises(StoreError, match="was founded since under the same name cluster"):
        open_store(into, Posts(), node="new", cluster_id=OURS)
    given = GIVEN_LATER + "3" * 24
    open_store(into, Posts(), node="new", cluster_id=given).close()
    assert identity_of(into) == (2, given)


def test_a_log_of_before_is_of_the_cluster_that_the_operator_says(log: Path) -> None:
    of_before(log)
    assert identity_of(rebuilt(log, OURS)) == (2, OURS)


@pytest.mark.parametrize("given", ["", "cluster", "1" * 31, "G" * 32, OURS + "\n"])
def test_what_is_no_identity_is_refused(log: Path, given: str) -> None:
    with pytest.raises(BadArgument, match="32 hex digits"):
        rebuilt(log, given)
    assert not (log.parent / "new").exists()


def test_the_directory_of_a_cluster_is_no_node(log: Path) -> None:
    with pytest.raises(BadArgument, match="is not the directory of a node, as node-1 of a cluster is: it has no log/"):
        rebuilt(log.parent)
    assert not (log.parent / "new").exists()


def test_an_archived_node_without_an_archive(log: Path) -> None:
    with pytest.raises(BadArgument, match="--archived-node is for --archive, and there is none"):
        run(log.parent / "new", log, None, "node-1", None, None, 100_000, 86_400.0, True)
    assert not (log.parent / "new").exists()
