"""A node's store out of the archive: the one that a log would have made, and damage is said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from broker_plugin.cli.asking import BadArgument
from broker_plugin.cli.recovery.rebuilding import run
from recovery.pipeline.archive.files import write_rows
from recovery.pipeline.archive.job import add_files
from recovery.pipeline.archive.lake import Lake
from recovery.pipeline.archive.stream import archived_events, cluster_of_archive, furthest
from recovery.pipeline.node import node_table
from recovery.planner.rebuild import Located
from recovery.store.identity import adopt, check_identity, read_identity
from tests.recovery.planner.stores import make_store
from tests.recovery.planner.test_rebuild import FIRST, LAST, SECOND, TAIL, archived, cut, loaded, made
from tests.support.logs import Posts, open_store
from txobserver.ports.store import StoreDamaged, StoreError


def node(directory: Path) -> Path:
    """A node that has applied all."""
    assert make_store(directory, [(1, FIRST), (2, SECOND)], LAST) == TAIL
    return directory


def archive(lake: Lake, source: Path, first: int, last: int, cluster: str = "cluster", cluster_id: str = "") -> None:
    """Part of a node's log, as the job archives it."""
    rows = [
        batch.filter([first <= at <= last for at in batch["position"].to_pylist()])
        for batch in node_table(source).to_batches()
    ]
    before = msgspec.structs.replace(lake.current(), cluster=cluster, cluster_id=cluster_id)
    add_files(lake, before, write_rows(lake.directory, rows), tolerant=False)


def events(lake: Lake, name: str | None = None) -> list[Located]:
    return list(archived_events(lake.directory, name))


def test_every_event_comes_back_and_makes_the_same_store(tmp_path: Path) -> None:
    lake, source = Lake(tmp_path / "lake"), node(tmp_path / "a")
    for first in range(1, LAST + 1, 10):
        archive(lake, source, first, first + 9)
    assert events(lake) == list(archived(source)) and cluster_of_archive(lake.directory).name == "cluster"
    made(tmp_path / "new", archived_events(lake.directory))
    assert loaded(tmp_path / "new") == loaded(source, "a")


def test_the_log_goes_on_where_the_archive_ends(tmp_path: Path) -> None:
    lake, source = Lake(tmp_path / "lake"), node(tmp_path / "a")
    whole = loaded(source, "a")
    archive(lake, source, 1, 20)
    made(tmp_path / "new", archived_events(lake.directory), cut(source, 5))
    assert loaded(tmp_path / "new") == whole


def test_what_one_node_lacks_comes_from_another(tmp_path: Path) -> None:
    """One was archived from the beginning and then died; another came later."""
    lake, a, b = Lake(tmp_path / "lake"), node(tmp_path / "a"), node(tmp_path / "b")
    archive(lake, a, 1, 12)
    archive(lake, b, 8, 30)
    archive(lake, a, 13, 15)
    assert events(lake) == list(archived(a, 30))
    assert [len(events(lake, name)) for name in "ab"] == [15, 0]
    with pytest.raises(StoreError, match=r"the events 1 to \d+ are in neither"):
        made(tmp_path / "new", archived_events(lake.directory, "b"), cut(b, 3))


def test_a_store_from_an_archive_is_of_its_cluster(tmp_path: Path) -> None:
    """By the identity: a cluster founded anew under the same name refuses the events of the one before."""
    lake = Lake(tmp_path / "lake")
    archive(lake, node(tmp_path / "a"), 1, 20, cluster_id=THEIRS)
    command(tmp_path / "one", lake.directory)
    command(tmp_path / "two", lake.directory, of_cluster(tmp_path / "b", THEIRS))
    for into in ("one", "two"):
        found = check_identity(tmp_path / into, "cluster", "new")
        assert found is not None and found.cluster_id == THEIRS
        with pytest.raises(StoreError, match="belongs to another cluster that is also called cluster"):
            check_identity(tmp_path / into, "cluster", "new", OURS)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a file is missing": lambda path: path.unlink(),
    "a file is cut short": lambda path: path.write_bytes(path.read_bytes()[:-10]),
    "a file has lost its middle": lambda path: path.write_bytes(path.read_bytes()[:200]),
    "a file is empty": lambda path: path.write_bytes(b""),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_said_and_no_store_is_made(tmp_path: Path, name: str) -> None:
    lake, source = Lake(tmp_path / "lake"), node(tmp_path / "a")
    archive(lake, source, 1, 10)
    archive(lake, source, 11, LAST)
    last = max(lake.current().files, key=lambda entry: entry.first)
    DAMAGE[name](lake.directory / last.path)
    (tmp_path / "new").mkdir()
    for into in (tmp_path / "new", tmp_path / "another"):
        with pytest.raises(StoreDamaged, match=r"lake cannot be read behind event (9|10): "):
            made(into, archived_events(lake.directory))
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["lock"] and not (tmp_path / "another").exists()


def test_a_flipped_bit_is_never_taken_for_an_event(tmp_path: Path) -> None:
    """Each page has a checksum; a bit in what is read neither of pages nor of where they are changes nothing."""
    lake, source = Lake(tmp_path / "lake"), node(tmp_path / "a")
    archive(lake, source, 1, LAST)
    path = lake.directory / lake.current().files[0].path
    data, whole, found = path.read_bytes(), events(lake), 0
    for at in range(4, len(data), 29):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
        try:
            assert events(lake) == whole
        except StoreDamaged:
            found += 1
    assert found > 50


def test_a_file_that_holds_other_rows_than_the_manifest_says(tmp_path: Path) -> None:
    lake, other, source = Lake(tmp_path / "lake"), Lake(tmp_path / "other"), node(tmp_path / "a")
    archive(lake, source, 1, 10)
    archive(lake, source, 11, 20)
    path = lake.directory / lake.current().files[1].path
    for last, sentence in ((10, "came after"), (15, "a's events 16 to 20 are not in the files that should hold them")):
        archive(other, source, last - 4, last)
        path.write_bytes((other.directory / other.current().files[-1].path).read_bytes())
        with pytest.raises(StoreDamaged, match=sentence):
            events(lake)


def test_no_archive(tmp_path: Path) -> None:
    with pytest.raises(StoreDamaged, match="is no archive"):
        cluster_of_archive(tmp_path)
    assert events(Lake(tmp_path)) == [] and furthest([], 1) is None


OURS, THEIRS = "1" * 32, "2" * 32


def command(into: Path, archived: Path, log: Path | None = None, cluster_id: str | None = None) -> None:
    """``txha rebuild``."""
    run(into, log, archived, None, "new", None, 100_000, 86_400.0, True, cluster_id)


def of_cluster(directory: Path, cluster_id: str) -> Path:
    """A node whose store says whose it is."""
    identity = read_identity(node(directory))
    assert identity is not None
    adopt(directory, identity, cluster_id)
    return directory


@pytest.mark.parametrize("said", [THEIRS, ""], ids=["it says whose it is", "it does not say it"])
def test_an_archive_of_another_cluster_of_the_same_name(tmp_path: Path, said: str) -> None:
    """It was founded apart, and our node would be ready with other content where ours says the same positions."""
    lake, into = Lake(tmp_path / "lake"), tmp_path / "new"
    archive(lake, node(tmp_path / "a"), 1, LAST, cluster_id=said)
    log = of_cluster(tmp_path / "b", OURS)
    if said:
        with pytest.raises(BadArgument, match=f"different clusters .* {THEIRS}, .*b is of the identity {OURS}"):
            command(into, lake.directory, log)
        with pytest.raises(BadArgument, match=f"different clusters .* {THEIRS}, --cluster-id is of the ident"):
            command(into, lake.directory, cluster_id=OURS)
    else:
        for behind in (log, None):
            with pytest.raises(BadArgument, match="lake does not say which identity its cluster has"):
                command(into, lake.directory, behind)
        with pytest.raises(BadArgument, match=f"b is of the identity {OURS}, --cluster-id is of the ident"):
            command(into, lake.directory, log, THEIRS)
    assert not into.exists()
    command(into, lake.directory, cluster_id=None if said else THEIRS)
    made_there = read_identity(into)
    assert made_there is not None and made_there.cluster_id == THEIRS
    with pytest.raises(StoreError, match="belongs to another cluster that is also called cluster"):
        open_store(into, Posts(), node="new", cluster_id=OURS)


@pytest.mark.parametrize("said", [OURS, ""])
def test_an_archive_of_our_cluster(tmp_path: Path, said: str) -> None:
    lake, into = Lake(tmp_path / "lake"), tmp_path / "new"
    archive(lake, node(tmp_path / "a"), 1, 20, cluster_id=said)
    command(into, lake.directory, of_cluster(tmp_path / "b", OURS), None if said else OURS)
    open_store(into, Posts(), node="new", cluster_id=OURS).close()
