"""A cluster that has given events up goes on at lower numbers: the archive says so, and no store is made of both."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec import structs

from recovery.pipeline.archive.files import write_rows
from recovery.pipeline.archive.history import completed, given_up
from recovery.pipeline.archive.job import add_files, news
from recovery.pipeline.archive.lake import Gap, Lake, Manifest
from recovery.pipeline.archive.stream import archived_events, furthest
from recovery.pipeline.archive.upkeep import compact
from recovery.pipeline.errors import PipelineError
from recovery.pipeline.node import node_table
from recovery.pipeline.source.log_sites import Directory
from tests.recovery.pipeline.events import write_node
from txobserver.events import Delivered, Event, GenerationStart
from txobserver.ids import Position
from txobserver.ports.store import StoreDamaged

Generation = tuple[int, int, int]
"""Its number, and its first and last event"""

BEFORE: tuple[Generation, ...] = ((1, 1, 20),)
AFTER: tuple[Generation, ...] = ((1, 1, 15), (2, 16, 25))
"""16 to 20 of generation 1 were given up."""
SHORT: tuple[Generation, ...] = ((1, 1, 15), (2, 16, 18))
"""The same, and fewer events have come since."""


def events_of_a_generation(number: int, first: int, last: int) -> list[Event]:
    """Its beginning, and what is not the same in two generations."""
    return [GenerationStart(number, "n1", ["n1"]), *(Delivered(number, at) for at in range(first + 1, last + 1))]


def node(directory: Path, generations: Sequence[Generation], segment_bytes: int = 1 << 20) -> Path:
    """The directory of a node whose log has these, whatever it was before."""
    shutil.rmtree(directory, ignore_errors=True)
    for number, first, last in generations:
        frames = [[event] for event in events_of_a_generation(number, first, last)]
        write_node(directory, frames, directory.name, generation=number, segment_bytes=segment_bytes)
    return directory


def archive(lake: Lake, source: Path, tolerant: bool = True, last: int = 1000, asked: bool = True) -> Manifest:
    """What the job does with the events of a node up to ``last``. ``asked``: whether the log was looked at."""
    before = lake.current()
    done = {name: end.sequence for name, end in before.ends.items()}
    rows = [
        each.filter([at <= last for at in each["position"].to_pylist()]) for each in node_table(source).to_batches()
    ]
    parted = given_up([Directory(source.name, str(source))], before) if asked else {}
    return add_files(lake, before, write_rows(lake.directory, news(rows, done)), tolerant, parted)


def positions(lake: Lake, name: str | None = None) -> list[Position]:
    return [position for position, _ in archived_events(lake.directory, name)]


def of(*generations: Generation) -> list[Position]:
    return [Position(number, at) for number, first, last in generations for at in range(first, last + 1)]


@pytest.mark.parametrize(
    ("asked", "gap"),
    [(True, Gap("n1", 16, 20, given_up=True)), (False, Gap("n1", 20, 20, given_up=True))],
)
def test_an_accepted_data_loss_is_a_gap(tmp_path: Path, asked: bool, gap: Gap) -> None:
    """The numbers 1 to 25 are all there. Without the log it is known that generation 1 ended before 20, and no more."""
    lake = Lake(tmp_path / "lake")
    archive(lake, node(tmp_path / "n1", BEFORE))
    after = node(tmp_path / "n1", AFTER)
    with pytest.raises(PipelineError, match="has given up archived events of node n1, up to 20; failOnDataLoss=false"):
        archive(lake, after, tolerant=False, asked=asked)
    manifest = archive(lake, after, asked=asked)
    assert manifest.gaps == (gap,) and manifest.ends == {"n1": Position(2, 25)}
    assert furthest(manifest.files, 1, manifest.gaps) == ("n1", gap.first - 1)
    assert furthest(manifest.files, 1) == ("n1", 20), "also where no manifest says it"
    assert positions(lake) == of((1, 1, gap.first - 1))
    compact(lake, 0)
    assert len(lake.current().files) == 1 and positions(lake) == of((1, 1, gap.first - 1))
    assert archive(lake, after).gaps == (gap,), "noted once"


def test_a_generation_that_begins_just_behind_what_was_given_up(tmp_path: Path) -> None:
    """What is archived behind it seems to go on; only the log knows of a generation between."""
    lake = Lake(tmp_path / "lake")
    archive(lake, node(tmp_path / "n1", BEFORE))
    manifest = archive(lake, node(tmp_path / "n1", ((1, 1, 15), (2, 16, 20), (3, 21, 25))))
    assert manifest.gaps == (Gap("n1", 16, 20, given_up=True),)
    assert positions(lake) == of((1, 1, 15))


def test_a_log_that_is_reclaimed_to_behind_the_parting(tmp_path: Path) -> None:
    """Where the histories parted is not known: nothing of the node is taken for sure."""
    lake = Lake(tmp_path / "lake")
    archive(lake, node(tmp_path / "n1", BEFORE))
    after = node(tmp_path / "n1", AFTER, segment_bytes=100)
    for each in sorted((after / "log").iterdir())[:-6]:
        each.unlink()
    first = Directory("n1", str(after)).extent("log").first
    assert 16 < first <= 20
    assert archive(lake, after).gaps == (Gap("n1", 1, 20, given_up=True),)
    assert positions(lake) == []


def test_another_node_goes_on_where_one_has_a_gap(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    archive(lake, node(tmp_path / "n1", BEFORE))
    archive(lake, node(tmp_path / "n1", AFTER))
    archive(lake, node(tmp_path / "n2", AFTER))
    assert positions(lake) == of(*AFTER) and positions(lake, "n1") == of((1, 1, 15))


def test_two_nodes_of_different_histories_are_not_mixed(tmp_path: Path) -> None:
    """One was archived before the loss and never again, so its log was not looked at; the other one is whole."""
    lake = Lake(tmp_path / "lake")
    archive(lake, node(tmp_path / "n1", BEFORE))
    archive(lake, node(tmp_path / "n2", AFTER))
    assert positions(lake) == of(*AFTER) and positions(lake, "n1") == of(*BEFORE)


@pytest.mark.parametrize("first", ["n1", "n2"])
def test_the_longer_of_two_histories_was_given_up(tmp_path: Path, first: str) -> None:
    """The node that had more events is gone, and was archived to its end; what counts is what came in their place."""
    lake = Lake(tmp_path / "lake")
    longer, shorter = node(tmp_path / "n1", BEFORE), node(tmp_path / "n2", SHORT)
    for each in (longer, shorter) if first == "n1" else (shorter, longer):
        archive(lake, each)
    assert positions(lake) == of(*SHORT)
    assert positions(lake, "n1") == of(*BEFORE), "it can be asked for by its name"
    compact(lake, 0)
    assert positions(lake) == of(*SHORT)


def test_a_single_event_was_given_up(tmp_path: Path) -> None:
    """Both histories are as long, and the names of the nodes say nothing about which of them counts."""
    lake, counts = Lake(tmp_path / "lake"), ((1, 1, 19), (2, 20, 20))
    archive(lake, node(tmp_path / "n1", counts))
    archive(lake, node(tmp_path / "n2", BEFORE))
    assert positions(lake) == of(*counts)


@pytest.mark.parametrize("begin", [20, 21])
def test_what_cannot_follow_is_an_error(tmp_path: Path, begin: int) -> None:
    """Another node's events, from the last one that was archived of the first on, or from the next."""
    lake = Lake(tmp_path / "lake")
    archive(lake, node(tmp_path / "n1", BEFORE))
    source = node(tmp_path / "n2", AFTER)
    rows = [batch.filter([at >= begin for at in batch["position"].to_pylist()]) for batch in
            node_table(source).to_batches()]  # fmt: skip
    add_files(lake, lake.current(), write_rows(lake.directory, rows), tolerant=False)
    with pytest.raises(StoreDamaged, match=r"2\.2[01] and 1\.(19|20) is of different histories"):
        positions(lake)


@pytest.mark.parametrize("cut", range(1, 25))
def test_a_take_over_without_loss_is_no_gap(tmp_path: Path, cut: int) -> None:
    """Wherever a batch ends; nor is it when a manifest does not say where generations begin."""
    lake = Lake(tmp_path / "lake")
    source = node(tmp_path / "n1", AFTER)
    archive(lake, source, tolerant=False, last=cut)
    manifest = archive(lake, source, tolerant=False)
    assert manifest.gaps == () and positions(lake) == of(*AFTER)
    old = tuple(structs.replace(each, begins=(), begun=()) for each in manifest.files)
    assert tuple(completed(lake.directory, each) for each in old) == manifest.files
    lake.commit(structs.replace(manifest, files=old))
    assert positions(lake) == of(*AFTER)
