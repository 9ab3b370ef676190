"""The comparison of stores: logs that differ and decisions that were told otherwise are found, and nothing else is."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from python_tests.harness.history import FAILED, OK, ROLLED_BACK, UNKNOWN, Attempt, History, Sighting
from python_tests.harness.stress import stores
from python_tests.harness.stress.results import Result
from python_tests.harness.stress.stores import ClusterStores, NodeLog, different_digests, different_logs, told_otherwise
from recovery.reader.log_reader import LogReader
from recovery.store.log import Log
from recovery.store.segment import SegmentInfo, segment_firsts, segment_path
from tests.support.logs import frame, open_log
from txobserver.events import Event
from txobserver.ids import Position


def log(name: str, **differing: object) -> NodeLog:
    values = {"marks": {1: 10, 2: 20, 3: 30}, "decisions": {7: True}, "attempts": {7: "w.1"}, **differing}
    return NodeLog(name, **values)  # type: ignore[arg-type]


def client(outcome: str, seen: bool) -> History:
    history = History(attempts=[Attempt("w.1", "w", 1, messages={"w.1/0": "a"}, outcome=outcome)])
    if seen:
        history.sightings.append(Sighting("a", "w.1/0", False, 1.0))
    return history


def test_equal_logs_agree_also_where_one_begins_later_or_ends_earlier() -> None:
    assert not different_logs([log("one"), log("two", marks={2: 20, 3: 30, 4: 40}), log("three", marks={1: 10})])


def test_events_that_differ_at_one_position_are_found() -> None:
    (line,) = different_logs([log("one"), log("two", marks={1: 10, 2: 21, 3: 31})])
    assert "one and two" in line and "at 2 positions, first at 2" in line


def test_two_decisions_are_found() -> None:
    (line,) = different_logs([log("one"), log("two", decisions={7: False})])
    assert "differ on transaction 0x7" in line


@pytest.mark.parametrize(
    ("outcome", "seen", "commit", "wrong"),
    [
        (OK, True, True, False),
        (OK, True, False, True),
        (FAILED, False, False, False),
        (FAILED, False, True, True),
        (ROLLED_BACK, False, True, True),
        (UNKNOWN, True, True, False),
        (UNKNOWN, False, False, False),
        (UNKNOWN, True, False, True),
        (UNKNOWN, False, True, True),
    ],
)
def test_what_a_client_was_told_is_what_the_log_says(outcome: str, seen: bool, commit: bool, wrong: bool) -> None:
    found = told_otherwise([log("one", decisions={7: commit})], client(outcome, seen))
    assert bool(found) == wrong


def test_a_transaction_without_a_decision_in_this_log_says_nothing() -> None:
    assert not told_otherwise([log("one", decisions={})], client(OK, True))


@pytest.mark.parametrize("what", ["queues", "outcomes"])
def test_nodes_at_the_same_event_have_the_same_queues(what: str) -> None:
    nodes = [{"name": name, "applied": 5, "queues": {"q": 1}, "outcomes": 1} for name in "ab"]
    assert not different_digests([*nodes, {"name": "c", "applied": 4, "queues": {"q": 9}}, {"name": "d"}])
    nodes[1][what] = {"q": 2}
    (line,) = different_digests(nodes)
    assert f"a and b have both applied 5, and their {what} differ" in line


class Meanwhile:
    """Reads a log; before the event with sequence 14 is given, ``happens`` does."""

    def __init__(self, directory: Path, happens: Callable[[], None]) -> None:
        self._log = LogReader(directory)
        self._happens = happens

    def segments(self) -> list[SegmentInfo]:
        return self._log.segments()

    def events(self, first: int) -> Iterator[tuple[Position, Event]]:
        for position, event in self._log.events(first):
            if position.sequence == 14:
                self._happens()
            yield position, event


def running(directory: Path) -> Log:
    """A log of 30 events, in segments of some frames."""
    directory.mkdir(exist_ok=True)
    log, _ = open_log(directory / "log", 300)
    for first in range(1, 31, 3):
        log.append([frame(first)])
    return log


def read(monkeypatch: pytest.MonkeyPatch, directory: Path, happens: Callable[[], None]) -> NodeLog:
    """While this happens during each reading."""
    found = NodeLog("one")
    with monkeypatch.context() as patched:
        patched.setattr(stores, "LogReader", lambda path: Meanwhile(path, happens))
        found.read(directory, 1)
    return found


def test_a_log_that_its_node_cuts_meanwhile_is_read_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing stays of what was cut off: it stands in no log any more."""
    log = running(tmp_path)

    def cut() -> None:
        log.truncate(12, Position(1, 12))
        log.append([frame(first, generation=2) for first in (13, 16)])

    found, after = read(monkeypatch, tmp_path, cut), NodeLog("one")
    after.read(tmp_path, 1)
    assert sorted(found.marks) == list(range(1, 19)) and found == after


def test_a_log_that_is_reclaimed_meanwhile_is_read_from_where_it_begins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = running(tmp_path)
    firsts = segment_firsts(tmp_path / "log")
    kept = firsts[-1]

    def reclaim() -> None:
        for first in firsts[:-1]:
            segment_path(tmp_path / "log", first).unlink(missing_ok=True)

    found = read(monkeypatch, tmp_path, reclaim)
    assert sorted(found.marks) == list(range(kept, 31)) and log.tail.sequence == 30


def test_a_log_that_is_cut_again_and_again_is_said_to_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And the run goes on."""
    log, generations = running(tmp_path / "one"), itertools.count(2)

    def cut() -> None:
        log.truncate(12, Position(1, 12))
        generation = next(generations)
        for first in range(13, 31, 3):
            log.append([frame(first, generation=generation)])

    monkeypatch.setattr(stores, "LogReader", lambda path: Meanwhile(path, cut))
    status = [{"name": "one", "state": "active", "applied": 30, "queues": {}, "outcomes": {}}]
    cluster: Any = SimpleNamespace(directory=tmp_path, names=["one"], status=lambda: status)
    clients: Any = SimpleNamespace(history=History())
    result = Result()
    ClusterStores(cluster).compare(clients, result)
    (line,) = result.disagreements
    assert line.startswith("the log of one cannot be read: ") and "was cut at event" in line
