"""Each declaration has a row in the queue state: a checkpoint writes what has changed, and loses or hides nothing."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from random import Random

import msgspec
import pytest

from recovery.store import lmdb_declared, lmdb_state
from recovery.store.lmdb_entries import sealed
from recovery.store.lmdb_state import LmdbState, check, read_meta
from recovery.store.lmdb_tables import FORMAT_VERSION
from tests.fixtures.formats import differences, everything
from tests.recovery.test_formats import FIXTURES, expected, opened, unpacked
from txobserver.bindings import Bindings, BindingSpec
from txobserver.configuration import Configuration, ExchangeSpec, QueueSpec
from txobserver.ids import Position
from txobserver.ports.store import Checkpoint, Meta, QueueSummary, StoreDamaged, StoreError


def declared(queues: int, exchanges: int = 2, bindings: int = 3) -> Configuration:
    found = Configuration(queues + exchanges + bindings)
    for number in range(1, queues + 1):
        found.queues[f"q{number}"] = QueueSpec(number, f"q{number}", False, {"n": number})
    for number in range(exchanges):
        found.exchanges[f"x{number}"] = ExchangeSpec(f"x{number}", "topic", False, False, {})
    found.bindings.extend(BindingSpec("x0", "q1", True, f"k{number}", {"a": True}) for number in range(bindings))
    return found


def meta(configuration: Configuration, counts: dict[int, int] | None = None, at: int = 7) -> Meta:
    summaries = {each.number: QueueSummary() for each in configuration.queues.values()}
    summaries |= {queue: QueueSummary(count, 5, 9) for queue, count in (counts or {}).items()}
    return Meta(Position(1, at), [Position(1, 1)], configuration.copy(), summaries)


def save(state: LmdbState, found: Meta) -> None:
    state.write(Checkpoint(found, {}, [], [], []))


def rows(state: LmdbState) -> dict[bytes, bytes]:
    with state._env.begin() as txn:
        return dict(txn.cursor(db=state._tables._declared))


@pytest.fixture
def puts(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The keys of the rows that are written."""
    found: list[bytes] = []
    monkeypatch.setattr(lmdb_declared, "sealed", lambda key, value: found.append(key) or sealed(key, value))  # type: ignore[func-returns-value]
    return found


def written(puts: list[bytes]) -> list[bytes]:
    found = [key for key in puts if key != b"declared"]
    puts.clear()
    return found


def test_a_checkpoint_writes_the_rows_that_have_changed(tmp_path: Path, puts: list[bytes]) -> None:
    state = LmdbState(tmp_path)
    configuration = declared(50)
    save(state, meta(configuration))
    assert len(written(puts)) == 2 * 50 + 2 + 3
    save(state, meta(configuration))
    assert written(puts) == []
    save(state, meta(configuration, {7: 1}))
    assert written(puts) == [b"s" + (7).to_bytes(8, "big")]
    configuration.queues["q9"] = msgspec.structs.replace(configuration.queues["q9"], used=True)
    configuration.bindings.append(BindingSpec("x1", "q2", True, "", {}))
    save(state, meta(configuration, {7: 1}))
    assert written(puts) == [b"q" + (9).to_bytes(8, "big"), b"b" + (4).to_bytes(8, "big")]
    assert state.load().meta == meta(configuration, {7: 1})
    state.close()


def test_so_does_the_first_one_after_a_start(tmp_path: Path, puts: list[bytes]) -> None:
    state = LmdbState(tmp_path)
    save(state, meta(declared(50)))
    state.close()
    state = LmdbState(tmp_path)
    configuration = state.load().meta.configuration.copy()
    written(puts)
    save(state, meta(configuration, {1: 1}))
    assert written(puts) == [b"s" + (1).to_bytes(8, "big")]
    state.close()


def test_an_argument_that_python_takes_for_the_same_is_written(tmp_path: Path) -> None:
    state = LmdbState(tmp_path)
    configuration = declared(1)
    for value in (1, True, 1.0):
        configuration.queues["q1"] = QueueSpec(1, "q1", False, {"n": value})
        save(state, meta(configuration))
        found = state.load().meta.configuration.queues["q1"].arguments["n"]
        assert found == value and type(found) is type(value)
    state.close()


@pytest.mark.parametrize("seed", range(8))
def test_whatever_changes_is_read_as_it_was_and_in_its_order(tmp_path: Path, seed: int) -> None:
    """Declared, deleted and declared again between two checkpoints; some come after a start, or a failed write."""
    chance, state = Random(seed), LmdbState(tmp_path)
    configuration, number = Configuration(), 0
    for step in range(60):
        for _ in range(chance.randrange(6)):
            number += 1
            name, kind = f"n{chance.randrange(8)}", chance.random()
            if kind < 0.4:
                configuration.queues.pop(name, None)
                if kind < 0.3:
                    configuration.queues[name] = QueueSpec(number, name, False, {})
            elif kind < 0.7:
                configuration.exchanges.pop(name, None)
                if kind < 0.6:
                    configuration.exchanges[name] = ExchangeSpec(name, "direct", False, False, {"n": number})
            else:
                kept = [each for each in configuration.bindings if chance.random() < 0.8]
                configuration.bindings = Bindings([*kept, BindingSpec(name, "q", True, str(number), {})])
        configuration.last_id = number
        found = meta(configuration, at=step)
        if chance.random() < 0.2:
            with pytest.raises(ZeroDivisionError), state._env.begin(write=True) as txn:
                state._tables._rows.write(txn, found)
                raise ZeroDivisionError
        save(state, found)
        if chance.random() < 0.2:
            state.close()
            check(tmp_path)
            state = LmdbState(tmp_path)
            configuration = state.load().meta.configuration
        there = state.load().meta
        assert there == found and list(there.configuration.exchanges) == list(configuration.exchanges)
        assert list(there.configuration.queues) == sorted(
            configuration.queues, key=lambda name: configuration.queues[name].number
        )
        configuration = there.configuration if chance.random() < 0.5 else configuration
    state.close()


def test_a_row_that_is_hidden_or_changed_is_found(tmp_path: Path) -> None:
    state = LmdbState(tmp_path / "state")
    save(state, meta(declared(3)))
    there = rows(state)
    for key, value in there.items():
        for damaged in (None, value[:-1] + bytes([value[-1] ^ 1]), there[b"q" + (1).to_bytes(8, "big")]):
            if damaged == value:
                continue
            with state._env.begin(write=True, db=state._tables._declared) as txn:
                txn.delete(key) if damaged is None else txn.put(key, damaged)
            with pytest.raises(StoreDamaged):
                state.load()
            with state._env.begin(write=True, db=state._tables._declared) as txn:
                txn.put(key, value)
    assert state.load().meta == meta(declared(3))
    with state._env.begin(write=True, db=state._tables._declared) as txn:
        txn.put(b"z" + bytes(8), sealed(b"z" + bytes(8), b"\x90"))
    with pytest.raises(StoreDamaged, match="of no known kind"):
        state.load()
    state.close()


def test_what_is_declared_is_read_without_the_rest(tmp_path: Path) -> None:
    LmdbState(tmp_path / "state").close()
    assert read_meta(tmp_path) == Meta()
    state = LmdbState(tmp_path / "state")
    save(state, meta(declared(3), {2: 8}))
    state.close()
    assert read_meta(tmp_path) == meta(declared(3), {2: 8})
    state = LmdbState(tmp_path / "state")
    with state._env.begin(write=True, db=state._tables._declared) as txn:
        txn.delete(b"q" + (1).to_bytes(8, "big"))
    state.close()
    with pytest.raises(StoreDamaged, match="every declaration"):
        read_meta(tmp_path)


def killed_at(point: str, directory: Path) -> None:
    """A child opens this node's store, writes a checkpoint that adds a queue, and is killed there."""
    child = os.fork()
    if child == 0:
        try:
            state = LmdbState(directory / "state")
            before = state.load().meta
            more = before.configuration.copy()
            more.last_id += 1
            more.queues["more"] = QueueSpec(more.last_id, "more", False, {})
            summaries = {**before.summaries, more.last_id: QueueSummary()}

            def crash(name: str) -> None:
                if name == point:
                    os.kill(os.getpid(), signal.SIGKILL)

            lmdb_state.crash_point = crash
            save(state, msgspec.structs.replace(before, configuration=more, summaries=summaries))
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.mark.parametrize("point", ["checkpoint.before-write", "checkpoint.before-commit", "checkpoint.committed"])
@pytest.mark.parametrize("name", FIXTURES)
def test_a_store_that_is_brought_forward_and_killed_is_the_old_one_or_the_new_one(
    name: str, point: str, tmp_path: Path
) -> None:
    directory = unpacked(name, tmp_path) / "whole"
    before = read_meta(directory)
    killed_at(point, directory)
    check(directory / "state")
    after = read_meta(directory)
    if point == "checkpoint.committed":
        assert "more" in after.configuration.queues and len(after.summaries) == len(before.summaries) + 1
        assert {**after.configuration.queues, "more": None} == {**before.configuration.queues, "more": None}
    else:
        assert after == before
        assert differences(expected(name)["whole"], everything(tmp_path)["whole"]) == []
    opened(directory).close()


def test_a_state_of_a_later_version_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    """As one before 0.1.0 refuses the state of this version: by the number that it finds."""
    state = LmdbState(tmp_path)
    save(state, meta(declared(3)))
    with state._env.begin(write=True, db=state._tables._meta) as txn:
        txn.put(b"format", str(FORMAT_VERSION + 1).encode())
    before = rows(state)
    with pytest.raises(StoreError, match=rf"has format version {FORMAT_VERSION + 1}; this version of txha reads 1 to"):
        state.load()
    assert rows(state) == before
    state.close()
