"""The archive holds each event of each node once, whenever its job dies, and gives it back exactly."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from pyspark.sql import datasource as s

from recovery.pipeline.archive import files as files_module
from recovery.pipeline.archive import job as job_module
from recovery.pipeline.archive import lake as lake_module
from recovery.pipeline.archive import upkeep as upkeep_module
from recovery.pipeline.archive.files import write_rows
from recovery.pipeline.archive.job import ArchiveJob, add_files, news, sweep
from recovery.pipeline.archive.lake import Lake
from recovery.pipeline.archive.reading import archive_rows
from recovery.pipeline.archive.upkeep import compact, remove_unnamed, retain
from recovery.pipeline.errors import PipelineError
from recovery.pipeline.node import node_table
from recovery.pipeline.rows.events import events_of
from recovery.pipeline.source.offsets import Cluster
from recovery.store.identity import adopt, read_identity
from tests.recovery.pipeline.events import STORY, apply_up_to, write_node
from tests.recovery.pipeline.source.test_source import FILTERS, read_with
from tests.support.examples import examples
from txobserver.events import Delivered
from txobserver.ids import Position

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

END = sum(map(len, STORY))
DAY_MS = 86_400_000
EVENTS = [event for frame in STORY for event in frame]


class Killed(Exception):
    """Stands for SIGKILL at a crash point."""


@pytest.fixture
def node(tmp_path: Path) -> Path:
    directory = tmp_path / "nodes" / "n1"
    write_node(directory, STORY, segment_bytes=380)
    apply_up_to(directory, END)
    return directory


def rows(batches: Any) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def batch(lake: Lake, node: Path, first: int, last: int) -> None:
    """What the job does with the events from ``first`` to ``last``, without Spark."""
    table = node_table(node)
    chosen = [b.filter([first <= at <= last for at in b["position"].to_pylist()]) for b in table.to_batches()]
    before = lake.current()
    done = {name: end.sequence for name, end in before.ends.items()}
    add_files(lake, before, write_rows(lake.directory, news(chosen, done)), tolerant=False)


def archived(lake: Lake, node: Path) -> bool:
    """Whether the archive gives back just what the log says, up to where it says that it goes."""
    end = lake.current().ends.get("n1", Position(0, 0)).sequence
    wanted = [row for row in node_table(node).to_pylist() if row["position"] <= end]
    return rows(archive_rows(lake.directory, "n1")) == wanted


def kill_at(monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    def crash_point(name: str) -> None:
        if name == point:
            raise Killed(name)

    for module in (job_module, lake_module, upkeep_module):
        monkeypatch.setattr(module, "crash_point", crash_point)


@pytest.mark.parametrize(
    "point",
    [
        "archive.files-written",
        "archive.manifest-written",
        "archive.committed",
        "archive.compacted",
        "archive.files-removed",
    ],
)
def test_whoever_dies_at_any_step_leaves_each_event_once(
    node: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    lake = Lake(tmp_path / "archive")

    def work() -> None:
        for first in range(1, END + 1, 5):
            batch(lake, node, first, min(first + 4, END))
            assert archived(lake, node)
            compact(lake, now_ms=first)
            assert archived(lake, node)
            remove_unnamed(lake, now_ms=first + 1, grace_seconds=0.001)
            assert archived(lake, node)

    with monkeypatch.context() as patched:
        kill_at(patched, point)
        with pytest.raises(Killed):
            work()
    assert archived(lake, node)
    sweep(lake)
    work()
    assert lake.current().ends == {"n1": Position(1, END)}
    assert [each.event for each in events_of(archive_rows(lake.directory, "n1"))] == EVENTS
    named = {lake.directory / entry.path for entry in lake.current().files}
    assert set(lake.files()) == named, "nothing that no reader sees is left"
    assert len(named) == 1


def test_a_batch_behind_a_gap_is_refused_or_noted(node: Path, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "archive")
    batch(lake, node, 1, 5)
    with pytest.raises(PipelineError, match=f"of the events 6 to {END} of node n1 only {END - 7} can be archived"):
        batch(lake, node, 8, END)
    assert lake.current().ends == {"n1": Position(1, 5)}
    table = node_table(node)
    written = write_rows(lake.directory, news(table.to_batches(), {"n1": 7}))
    manifest = add_files(lake, lake.current(), written, tolerant=True)
    assert [(gap.first, gap.last) for gap in manifest.gaps] == [(6, END)]
    assert [row["position"] for row in rows(archive_rows(lake.directory, "n1"))] == [
        at for at in table["position"].to_pylist() if at not in (6, 7)
    ]


@examples(15)
@given(times=st.lists(st.integers(0, 3), min_size=1, max_size=30), cut=st.integers(0, 30), small=st.booleans())
def test_days_cross_at_midnight(
    tmp_path_factory: pytest.TempPathFactory, times: list[int], cut: int, small: bool
) -> None:
    """The clocks of two primaries differ, so days come and go; and files end anywhere."""
    directory = tmp_path_factory.mktemp("midnight")
    write_node(directory / "n1", [[Delivered(1, at)] for at in range(len(times))])
    table = node_table(directory / "n1")
    at_days = table.set_column(table.schema.get_field_index("time"), table.schema.field("time"), [[
        datetime(2026, 1, 1 + day, tzinfo=UTC) for day in times
    ]])  # fmt: skip
    lake = Lake(directory / "archive")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(files_module, "FILE_BYTES", 1 if small else 1 << 30)
        for part in (at_days.slice(0, cut), at_days.slice(cut)):
            each = [batch for one in range(part.num_rows) for batch in part.slice(one, 1).to_batches()]
            add_files(lake, lake.current(), write_rows(lake.directory, each), tolerant=False)
        for _ in range(2):
            assert rows(archive_rows(lake.directory, "n1")) == at_days.to_pylist()
            compact(lake, 0)
    assert {(entry.date, entry.node) for entry in lake.current().files} == {(f"2026-01-0{1 + d}", "n1") for d in times}


def test_old_days_go_and_readers_who_began_before_can_end(node: Path, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "archive")
    batch(lake, node, 1, END)
    before = lake.current()
    assert retain(lake, 1, date(1970, 1, 2), DAY_MS) == before
    after = retain(lake, 1, date(1970, 1, 3), 2 * DAY_MS)
    assert (after.files, after.dropped, after.ends) == ((), {"n1": END}, {"n1": Position(1, END)})
    assert rows(archive_rows(lake.directory, "n1")) == []
    assert all((lake.directory / entry.path).exists() for entry in before.files)
    remove_unnamed(lake, 2 * DAY_MS + 3_599_999, 3600)
    assert all((lake.directory / entry.path).exists() for entry in before.files)
    assert remove_unnamed(lake, 2 * DAY_MS + 3_600_000, 3600).removed == {}
    assert list(lake.files()) == []


def test_every_filter_is_applied_as_to_the_log(node: Path, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "archive")
    for first, last in ((1, 7), (8, END)):
        batch(lake, node, first, last)
    for text, pushed in [*FILTERS, ("two", s.GreaterThan(("position",), 9))]:
        assert read_with(lake.directory, [pushed]) == read_with(node, [pushed]), text


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "archive")
    with lake.writing(), pytest.raises(PipelineError, match="another job writes"), Lake(lake.directory).writing():
        pass
    before = lake.current()
    lake.commit(before)
    with pytest.raises(PipelineError, match="has been written by another job"):
        lake.commit(before)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("part", ["manifest/00000000000000000001.json", "manifest"])
def test_a_dangling_symlink_is_no_empty_archive(node: Path, tmp_path: Path, part: str) -> None:
    """Its disk is not mounted. Nothing waits for ever for it, and nothing is swept away."""
    lake = Lake(tmp_path / "lake")
    with lake.writing():
        batch(lake, node, 1, 30)
    files, moved = list(lake.files()), tmp_path / "unmounted"
    (lake.directory / part).rename(moved)
    (lake.directory / part).symlink_to(tmp_path / "disk")
    for use in (lake.current, lambda: sweep(lake)):
        with pytest.raises(PipelineError, match="leads to nothing: bring back"):
            use()
    assert files and list(lake.files()) == files
    moved.rename(tmp_path / "disk")
    assert lake.current().version == 1


def test_a_manifest_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.commit(lake.current())
    (path,) = (tmp_path / "manifest").glob("*.json")
    path.write_text(path.read_text().replace('"format":1', '"format":2'))
    with pytest.raises(PipelineError, match="has format version 2, not 1"):
        lake.current()
    path.write_text("{")
    with pytest.raises(PipelineError, match="cannot be read"):
        lake.current()


@pytest.mark.every
def test_the_job_goes_on_where_it_died(
    spark: SparkSession, node: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_node(node.parent / "n2", STORY, "n2")
    apply_up_to(node.parent / "n2", END)
    identity = read_identity(node)
    assert identity is not None
    adopt(node, identity, "a1")
    lake = Lake(tmp_path / "archive")
    job = ArchiveJob(lake.directory, {"path": str(node.parent)}, max_events=12)
    with monkeypatch.context() as patched:
        kill_at(patched, "archive.committed")
        with pytest.raises(PipelineError, match="FOREACH_BATCH_USER_FUNCTION_ERROR"):
            job.run(spark)
    assert lake.current().ends == {"n1": Position(1, 6), "n2": Position(1, 6)} and archived(lake, node)
    replace(job, max_events=1000).run(spark)
    assert lake.current().ends == {"n1": Position(1, END), "n2": Position(1, END)} and archived(lake, node)
    assert lake.current().whose == Cluster("c", "a1")
    found = spark.read.format("txha").load(str(lake.directory)).groupBy("node", "queue").count().collect()
    counted = {(row["node"], row["queue"]): row["count"] for row in found}
    in_logs = Counter(
        (row["node"], row["queue"]) for name in ("n1", "n2") for row in node_table(node.parent / name).to_pylist()
    )
    assert counted == in_logs


def test_an_archive_is_of_one_cluster(node: Path, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "archive")
    lake.commit(structs.replace(lake.current(), cluster="another"))
    with pytest.raises(PipelineError, match="an archive is of one cluster, not of 2: another, c"):
        ArchiveJob(lake.directory, {"path": str(node)}).cluster(lake.current())
