"""Reading stores as they are found: every condition, what damage leaves to be read, and not a byte changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from recovery.planner.facts import RecordState, StoreCondition, SurveyedStore
from recovery.planner.founding import make_empty
from recovery.planner.site import cluster_of, look
from recovery.planner.survey import contents_of, survey
from recovery.planner.unshared import unshared
from recovery.store.condemned import condemn
from recovery.store.identity import FILE, adopt, read_identity
from recovery.store.segment import segment_firsts, segment_path
from tests.recovery.planner.stores import beginning, make_store, transaction
from tests.support.logs import Posts, open_store
from txobserver.events import GenerationStart, Publish
from txobserver.ids import Position, generated_id
from txobserver.ports.store import Meta, StoreError

EVENTS = [*beginning(10), *transaction(1), *transaction(2)]
TAIL = Position(1, len(EVENTS))
CHECKPOINT = 6


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("stores") / "a"
    assert make_store(directory, [(1, EVENTS)], CHECKPOINT) == TAIL
    return directory


@pytest.fixture
def a(original: Path, tmp_path: Path) -> Path:
    """A store that a test may damage."""
    return Path(shutil.copytree(original, tmp_path / "a"))


def surveyed(directory: Path, node: str = "a") -> SurveyedStore:
    """What is found, while nothing is changed."""
    before = contents(directory)
    found = survey(node, directory, "cluster").facts
    assert contents(directory) == before
    return found


def contents(directory: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in sorted(directory.rglob("*"))}


def flip(path: Path, marker: bytes) -> None:
    """One bit, a few bytes behind where this first stands."""
    data = bytearray(path.read_bytes())
    data[data.index(marker) + 60] ^= 1
    path.write_bytes(data)


def segment(directory: Path, which: int) -> Path:
    return segment_path(directory / "log", segment_firsts(directory / "log")[which])


def test_a_whole_store(a: Path) -> None:
    found = surveyed(a)
    assert (found.condition, found.tail, found.applied) == (StoreCondition.WHOLE, TAIL, Position(1, CHECKPOINT))
    assert found.history == (Position(1, 1),) and found.complete and found.why == ""
    leads_to = contents_of(survey("a", a, "cluster"))
    assert leads_to.queues["q"][0] == 14 and leads_to.branches == () and leads_to.open_transactions == 0


def test_a_torn_tail_is_no_damage(a: Path) -> None:
    last = segment(a, -1)
    last.write_bytes(last.read_bytes()[:-1])
    found = surveyed(a)
    assert (found.condition, found.tail, found.complete) == (StoreCondition.WHOLE, Position(1, TAIL.sequence - 1), True)
    assert contents_of(survey("a", a, "cluster")).open_transactions == 1


def test_nothing_there(tmp_path: Path) -> None:
    assert surveyed(tmp_path / "none").condition is StoreCondition.MISSING
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "node.toml").touch()
    assert surveyed(tmp_path / "a").condition is StoreCondition.EMPTY
    open_store(tmp_path / "b", Posts(), node="b").close()
    found = surveyed(tmp_path / "b", "b")
    assert (found.condition, found.tail) == (StoreCondition.EMPTY, Position(0, 0)) and found.member is not None


def test_of_another_cluster_or_node(a: Path) -> None:
    assert survey("a", a, "other").facts.condition is StoreCondition.FOREIGN
    found = survey("b", a, "cluster").facts
    assert found.condition is StoreCondition.FOREIGN and "node a of cluster cluster" in found.why
    (a / FILE).unlink()
    assert survey("a", a, "other").facts.condition is StoreCondition.FOREIGN, "its log says so, too"


def test_of_another_cluster_of_the_same_name(a: Path, tmp_path: Path) -> None:
    """Its store is left alone, and whether it holds anything is said; one of before identities is ours."""
    ours, other = "1" * 32, "2" * 32
    assert survey("a", a, "cluster", ours).facts.condition is StoreCondition.WHOLE
    identity = read_identity(a)
    assert identity is not None
    adopt(a, identity, other)
    make_empty(tmp_path / "b", "cluster", "b", other)
    for node, has_data in (("a", True), ("b", False)):
        found = survey(node, tmp_path / node, "cluster", ours).facts
        assert (found.condition, found.cluster_id, found.has_data) == (StoreCondition.FOREIGN, other, has_data)
        assert survey(node, tmp_path / node, "cluster", other).facts.cluster_id == other
    assert survey("a", a, "cluster").facts.condition is StoreCondition.WHOLE, "where it is not known which is ours"


@pytest.mark.usefixtures("without_invariants")
def test_being_overwritten(a: Path) -> None:
    posts = Posts()
    store = open_store(a, posts, node="a")
    store.checkpoint(checkpoint_of(Meta(applied=Position(1, 3), resyncing=True)), posts.done)
    assert posts.wait() == [None]
    store.close()
    assert surveyed(a).condition is StoreCondition.RESYNCING
    (a / FILE).write_text("{")
    assert surveyed(a).condition is StoreCondition.DAMAGED, "no node starts with it, so it has to go"


def checkpoint_of(meta: Meta) -> object:
    from txobserver.ports.store import Checkpoint, Dropped

    return Checkpoint(meta, {}, [Dropped(1)], [], [])


DAMAGE: dict[str, tuple[Callable[[Path], object], Position, bool]] = {
    "a bit in the log": (lambda a: flip(segment(a, -2), b"TXHA"), Position(1, 0), False),
    "all of the log is gone": (
        lambda a: [each.unlink() for each in (a / "log").iterdir()],
        Position(1, CHECKPOINT),
        False,
    ),
    "a segment is missing": (lambda a: segment(a, -2).unlink(), Position(1, 0), False),
    "the identity is gone": (lambda a: (a / FILE).unlink(), TAIL, True),
    "a bit in the identity": (
        lambda a: (a / FILE).write_text((a / FILE).read_text().replace('uster"', 'astro"')),
        TAIL,
        True,
    ),
    "the state is gone": (lambda a: shutil.rmtree(a / "state"), TAIL, True),
    "damage that was found while it was served": (lambda a: condemn(a / "state", "a page"), TAIL, True),
    "a bit in the state": (lambda a: flip_state(a), TAIL, True),
}
"""What is done; the position up to which the log is whole, or so far as the damaged segment; whether that is its end"""


def flip_state(directory: Path) -> None:
    """One bit in each copy of the name of the queue, which every checkpoint holds."""
    path = directory / "state" / "data.mdb"
    path.write_bytes(path.read_bytes().replace(b"\xa1q", b"\xa1s"))


@pytest.mark.parametrize("name", DAMAGE)
def test_damage(a: Path, name: str) -> None:
    damage, tail, complete = DAMAGE[name]
    if not tail.sequence:
        tail = Position(1, segment_firsts(a / "log")[-2] - 1)
    damage(a)
    found = surveyed(a)
    assert (found.condition, found.tail, found.complete) == (StoreCondition.DAMAGED, tail, complete)
    assert found.why and found.member is not None and found.member.incarnation == "incarnation"
    with pytest.raises(StoreError):
        list(open_store(a, Posts(), node="a").suffix())  # the node itself would find it, too


def test_damage_before_the_checkpoint_is_not_what_a_node_looks_at(a: Path) -> None:
    flip(segment(a, 0), b"TXHA")
    assert surveyed(a).condition is StoreCondition.WHOLE


def test_what_a_lagging_store_lacks(a: Path, tmp_path: Path) -> None:
    make_store(tmp_path / "b", [(1, EVENTS[:18])], CHECKPOINT)
    lost, unnamed = unshared(
        surveyed(tmp_path / "b", "b"), [survey("a", a, "cluster"), survey("b", tmp_path / "b", "cluster")]
    )
    assert [(loss.kind, loss.name, loss.nodes) for loss in lost] == [("transaction", "1-1002", ("a",))]
    assert lost[0].position == TAIL and not unnamed


def test_what_stands_behind_damage_is_named_and_the_rest_is_counted(a: Path, tmp_path: Path) -> None:
    make_store(tmp_path / "b", [(1, EVENTS[:4])], 3)
    flip(segment(a, 3), b"TXHA")
    first = segment_firsts(a / "log")[3]
    lost, unnamed = unshared(surveyed(tmp_path / "b", "b"), [survey("a", a, "cluster")])
    named = {loss.position.sequence for loss in lost}
    assert {5, TAIL.sequence} <= named and first not in named
    assert [(gap.node, gap.first, gap.last) for gap in unnamed] == [("a", first, first)]


def test_what_is_behind_a_damaged_end_nobody_knows(a: Path, tmp_path: Path) -> None:
    make_store(tmp_path / "b", [(1, EVENTS[:4])], 3)
    last = segment(a, -1)
    data = bytearray(last.read_bytes())
    data[data.rindex(b"TXHA") + 50] ^= 1
    last.write_bytes(data)
    _, unnamed = unshared(surveyed(tmp_path / "b", "b"), [survey("a", a, "cluster")])
    assert [(gap.first, gap.last) for gap in unnamed] == [(TAIL.sequence, None)]


def test_each_event_is_told_once_with_all_who_have_it(a: Path, tmp_path: Path) -> None:
    make_store(tmp_path / "b", [(1, EVENTS[:4])], 3)
    make_store(tmp_path / "c", [(1, EVENTS[:5])], 3)
    found = [survey(node, tmp_path / node, "cluster") for node in "abc"]
    lost, unnamed = unshared(found[1].facts, found)
    assert len({(loss.kind, loss.position) for loss in lost}) == len(lost) and not unnamed
    assert [loss.nodes for loss in lost if loss.position.sequence in (5, 6)] == [("a", "c"), ("a",)]


def test_two_generations_part_where_the_later_one_begins(tmp_path: Path) -> None:
    """What only the former primary has behind that place is lost, and what only the later one has to the former."""
    make_store(tmp_path / "a", [(1, EVENTS)], CHECKPOINT)
    later = [GenerationStart(2, "b", ["b"]), Publish(generated_id(2, 1), (1,), EVENTS[2].message)]  # type: ignore[union-attr]
    make_store(tmp_path / "b", [(1, EVENTS[:8]), (2, later)], CHECKPOINT)
    found = [survey(node, tmp_path / node, "cluster") for node in "ab"]
    lost, _ = unshared(found[1].facts, found)
    assert [loss.position.sequence for loss in lost][:4] == [9, 10, 11, 12]
    lost, _ = unshared(found[0].facts, found)
    assert [(loss.name, loss.position) for loss in lost] == [("2-1", Position(2, 10))]


def test_what_a_log_does_not_hold_any_more_is_counted(a: Path, tmp_path: Path) -> None:
    make_store(tmp_path / "b", [(1, EVENTS[:4])], 3)
    for first in segment_firsts(a / "log")[:3]:
        segment_path(a / "log", first).unlink()
    begins = segment_firsts(a / "log")[0]
    _, unnamed = unshared(surveyed(tmp_path / "b", "b"), [survey("a", a, "cluster")])
    assert [(gap.first, gap.last) for gap in unnamed] == [(5, begins - 1)]


def test_which_cluster(a: Path, tmp_path: Path) -> None:
    open_store(tmp_path / "x", Posts(), node="x", cluster="other").close()
    with pytest.raises(StoreError, match="belong to clusters cluster and other"):
        cluster_of([a, tmp_path / "x"])
    with pytest.raises(StoreError, match="no store says"):
        cluster_of([tmp_path])
    make_store(tmp_path / "b", [(1, EVENTS[:4])], 3)
    assert cluster_of([a, tmp_path / "b", tmp_path / "x"]) == "cluster"
    site, _ = look("cluster", {"a": a, "x": tmp_path / "x"}, (None, RecordState.GONE, ""), None)
    assert [store.condition for store in site.stores] == [StoreCondition.WHOLE, StoreCondition.FOREIGN]


def test_which_identity(a: Path, tmp_path: Path) -> None:
    """That of the stores which hold something, where the record does not say it; they must agree on one."""
    none, ours, other = (None, RecordState.GONE, ""), "1" * 32, "2" * 32
    make_store(tmp_path / "b", [(1, EVENTS[:4])], 3)
    make_empty(tmp_path / "c", "cluster", "c", other)
    directories = {node: tmp_path / node for node in "abc"}
    assert look("cluster", directories, none, None)[0].cluster_id == "", "founded before there were any"
    for node, identity in (("a", ours), ("b", other)):
        found = read_identity(tmp_path / node)
        assert found is not None
        if node == "b":
            assert look("cluster", directories, none, None)[0].cluster_id == ours
        adopt(tmp_path / node, found, identity)
    with pytest.raises(StoreError, match=rf"founded apart under one name \(a to {ours}; b to {other}\)"):
        look("cluster", directories, none, None)
