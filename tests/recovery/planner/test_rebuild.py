"""A store made from events is the one that a node would have made of them; and no node can start with half of it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import pytest

from ha.apply.replica import Replica
from recovery.planner import rebuild as module
from recovery.planner.rebuild import Located, Rebuilt, rebuild
from recovery.reader.log_reader import LogReader
from recovery.store.identity import FORMAT_VERSION, Identity
from recovery.store.segment import segment_firsts, segment_path
from recovery.store.store import Store
from tests.recovery.planner.stores import beginning, make_store, transaction
from tests.support.logs import Posts, message, open_store
from txobserver.events import (
    Delivered,
    DtxDecision,
    DtxOpen,
    DtxPrepare,
    Event,
    GenerationStart,
    Settle,
    TxEnqueue,
    TxOpen,
    TxToken,
)
from txobserver.ids import Position, generated_id, offset_of
from txobserver.ports.store import Loaded, StoreError
from txobserver.xid import Xid

IDENTITY = Identity(FORMAT_VERSION, "cluster", "new", "newborn")
PREPARED, OPEN, NAMED = generated_id(2, 1), generated_id(2, 2), generated_id(2, 3)


def put(tx: int) -> TxEnqueue:
    return TxEnqueue(tx, generated_id(2, 50), (1,), message("late"))


FIRST = [*beginning(20), *transaction(1)]
SECOND: list[Event] = [
    GenerationStart(2, "b", ["b"]),
    Settle(1, [(offset_of(3), generated_id(1, 0)), (offset_of(5), generated_id(1, 2))], 1),
    Delivered(1, offset_of(9)),
    *(DtxOpen(PREPARED, Xid(1, b"g", b"b")), put(PREPARED), DtxPrepare(PREPARED, 1, ["b"], 5)),
    *(DtxOpen(NAMED, Xid(1, b"h", b"b")), put(NAMED), DtxPrepare(NAMED, 1, ["b"], 6)),
    DtxDecision(NAMED, True, False, 7),
    *(TxOpen(OPEN), TxToken(OPEN, b"token"), put(OPEN)),
    *transaction(2),
]
LAST = len(FIRST) + len(SECOND)
TAIL = Position(2, LAST)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A node whose log begins at 1 and ends at LAST, all of it applied."""
    directory = tmp_path_factory.mktemp("source") / "a"
    assert make_store(directory, [(1, FIRST), (2, SECOND)], LAST) == TAIL
    return directory


def archived(source: Path, last: int = LAST, first: int = 1) -> Iterable[Located]:
    return islice(LogReader(source).events(first), last - first + 1)


def made(into: Path, archive: Iterable[Located], log: Path | None = None, commit: int = LAST, **more: int) -> Rebuilt:
    return rebuild(into, IDENTITY, archive, log, commit, **more)


def opened(directory: Path, node: str = "new") -> Store:
    return open_store(directory, Posts(), node=node)


def loaded(directory: Path, node: str = "new") -> tuple[Loaded, dict[int, list[tuple[int, int]]]]:
    """What a node finds at its start, and every queue."""
    store = opened(directory, node)
    try:
        assert list(store.suffix()) == []
        return store.loaded, {queue: list(store.base.ids(queue)) for queue in store.meta.configuration.numbers()}
    finally:
        store.close()


@pytest.mark.parametrize("portion", [1, 7, 1000])
def test_it_is_what_a_node_would_have_made(source: Path, tmp_path: Path, portion: int) -> None:
    told: list[int] = []
    found = rebuild(tmp_path / "new", IDENTITY, (), source, LAST, progress=told.append, portion_events=portion)
    assert loaded(tmp_path / "new") == loaded(source, "a")
    assert (found.applied, found.tail, found.queues["q"][0]) == (TAIL, TAIL, 23)
    assert told[-1] == LAST and len(set(told)) == -(-LAST // portion)


@pytest.mark.parametrize("joint", [*range(1, LAST, 4), LAST - 1, LAST])
def test_wherever_the_archive_ends_the_log_goes_on(source: Path, tmp_path: Path, joint: int) -> None:
    made(tmp_path / "new", archived(source, joint), source)
    assert loaded(tmp_path / "new") == loaded(source, "a")


def test_an_archive_alone_is_enough(source: Path, tmp_path: Path) -> None:
    made(tmp_path / "new", archived(source))
    assert loaded(tmp_path / "new") == loaded(source, "a")


@pytest.mark.parametrize("commit", [0, 1, 10, LAST - 3])
def test_what_has_not_certainly_passed_the_commit_point_is_log(source: Path, tmp_path: Path, commit: int) -> None:
    """Held back until a primary says that it counts; then both lead to the same."""
    found = made(tmp_path / "new", archived(source, 9), source, commit)
    assert found.applied.sequence == max(commit, 9) and found.tail == TAIL
    store, theirs = opened(tmp_path / "new"), opened(source, "a")
    replica = Replica(store.base, *store.loaded)
    for frame in store.suffix():
        replica.restore(frame)
    assert replica.tail == TAIL and replica.applied == found.applied
    replica.apply(LAST)
    assert replica.contents.meta(replica.history) == theirs.meta
    store.close()
    theirs.close()


def test_the_new_store_is_another_member_of_the_cluster(source: Path, tmp_path: Path) -> None:
    made(tmp_path / "new", archived(source, 9), source, 12)
    store = opened(tmp_path / "new")
    assert str(store.member) == "new/newborn"
    store.close()
    assert {(info.node, info.incarnation) for info in LogReader(tmp_path / "new").segments()} == {("new", "newborn")}


GAPS = {
    "the log begins too late": (lambda source: ((), cut(source, 3)), "events 1 to .* are in neither .* begins at"),
    "between archive and log": (lambda source: ([*archived(source, 2)], cut(source, 3)), "the events 3 to"),
    "in the archive": (
        lambda source: ([*archived(source, 5), *archived(source, 9, 7)], source),
        "the events 6 to 6 are in neither",
    ),
    "twice in the archive": (
        lambda source: ([*archived(source, 5), *archived(source, 9, 5)], source),
        "the event 5 comes twice",
    ),
    "another history": (
        lambda source: ([*archived(source, 27), (Position(3, 28), SECOND[2])], source),
        "ends at 3.28, and the log holds 2.28",
    ),
    "an archive of a later generation than the log behind it": (
        lambda source: ([*archived(source, LAST - 1), (Position(5, LAST), SECOND[2])], source),
        "another history",
    ),
    "generations that fall": (
        lambda source: ([*archived(source, 30), (Position(1, 31), SECOND[2])], None),
        "1.31 cannot follow 2.30",
    ),
    "an event that cannot be": (
        lambda source: ([*archived(source, 30), (Position(2, 31), put(77))], None),
        "the event 2.31 cannot be: transaction 0-77 was never opened",
    ),
    "nothing at all": (lambda source: ((), None), "no event that could be applied"),
}


def cut(source: Path, segments: int) -> Path:
    """The same log, without its first segments."""
    for first in segment_firsts(source / "log")[:segments]:
        segment_path(source / "log", first).unlink()
    return source


@pytest.mark.parametrize("name", GAPS)
def test_what_is_missing_or_cannot_follow_is_said_and_no_store_is_made(tmp_path: Path, name: str) -> None:
    make_store(tmp_path / "a", [(1, FIRST), (2, SECOND)], LAST)
    inputs, sentence = GAPS[name]
    archive, log = inputs(tmp_path / "a")  # type: ignore[no-untyped-call]
    with pytest.raises(StoreError, match=sentence):
        made(tmp_path / "new", archive, log)
    assert not (tmp_path / "new").exists()
    make_store(tmp_path / "b", [(1, FIRST), (2, SECOND)], LAST)
    made(tmp_path / "new", (), tmp_path / "b")
    assert loaded(tmp_path / "new") == loaded(tmp_path / "b", "b"), "and what was left is no hindrance"


def test_a_directory_with_a_store_is_refused(source: Path, tmp_path: Path) -> None:
    make_store(tmp_path / "a", [(1, FIRST)], 3)
    with pytest.raises(StoreError, match="holds a store already"):
        made(tmp_path / "a", (), source)
    assert not (tmp_path / "a" / "rebuilding").exists()


class Killed(BaseException):
    """Nothing more is done."""


def dies(monkeypatch: pytest.MonkeyPatch, name: str, passing: int) -> None:
    """At the n-th call of a function of the module."""
    original, left = getattr(module, name), passing

    def instead(*arguments: object, **more: object) -> object:
        nonlocal left
        left -= 1
        if not left:
            raise Killed
        return original(*arguments, **more)

    monkeypatch.setattr(module, name, instead)


@pytest.mark.parametrize(
    ("name", "passing"),
    [
        *(("_write", passing) for passing in (1, 2, 5)),
        *(("check", 1), ("_copy_log", 1), ("create_identity", 1), ("_move", 1)),
        *(("crash_point", passing) for passing in (1, 2, 3)),
    ],
)
def test_killed_and_run_again(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, passing: int
) -> None:
    with monkeypatch.context() as patched:
        dies(patched, name, passing)
        with pytest.raises(Killed):
            made(tmp_path / "new", (), source, 20, portion_events=4)
    if not (tmp_path / "new" / "identity.json").exists() and (tmp_path / "new" / "log").exists():
        with pytest.raises(StoreError, match="a log without"):
            opened(tmp_path / "new")
    found = made(tmp_path / "new", (), source, 20)
    assert (found.applied, found.tail) == (Position(1, 20), TAIL)
    store = opened(tmp_path / "new")
    assert store.tail == Position(1, 20) and len(list(store.suffix())) == LAST - 20
    store.close()
    assert not (tmp_path / "new" / "rebuilding").exists()


def test_memory_holds_one_portion(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By bytes as by number: what came before the last checkpoint is in no layer any more."""
    monkeypatch.setattr(module, "PORTION_BYTES", 50_000)
    sizes: list[int] = []
    original = module._write

    def watched(replica: Replica, *more: object) -> None:
        sizes.append(replica.contents.dirty_bytes)
        original(replica, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "_write", watched)
    many = [(Position(1, number), event) for number, event in enumerate(beginning(5000), 1)]
    found = made(tmp_path / "new", many)
    assert found.queues["q"][0] == 5000 and len(sizes) > 5 and max(sizes) < 250_000
