"""The queue state: a checkpoint is there as a whole, and a flipped bit is never served."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lmdb
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from recovery.store import lmdb_state
from recovery.store.condemned import NAME
from recovery.store.lmdb_entries import sealed
from recovery.store.lmdb_errors import explained
from recovery.store.lmdb_state import LmdbState, _reader, check, read_meta
from tests.support.logs import message, meta_of
from txobserver.bindings import written
from txobserver.events import Terms, TxEnqueue, TxEvent, TxOpen
from txobserver.ids import Position
from txobserver.outcomes import Kind, Outcomes, OutcomesMeta, Remembered, name_of
from txobserver.ports.store import (
    END,
    Changes,
    Checkpoint,
    Dropped,
    Entry,
    Ids,
    Loaded,
    MemoryBase,
    Meta,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFull,
    TxRun,
    mix,
)
from txobserver.state.contents import Contents


def checkpoint(*puts: tuple[int, int, str], deletes: tuple[tuple[int, int], ...] = ()) -> Checkpoint:
    changes: Changes = {}
    for queue, offset, body in puts:
        changes.setdefault(queue, {})[offset] = Entry(offset + 1000, message(body))
    for queue, offset in deletes:
        changes.setdefault(queue, {})[offset] = None
    return Checkpoint(Meta(applied=Position(1, 7)), changes, [], [], [])


def test_round_trip(tmp_path: Path) -> None:
    state = LmdbState(tmp_path)
    state.write(checkpoint((1, 5, "a"), (1, 6, "b"), (2, 5, "c")))
    state.write(checkpoint((1, 9, "d"), deletes=((1, 5),)))
    state.close()
    state = LmdbState(tmp_path)
    meta = state.load().meta
    assert meta.applied == Position(1, 7)
    assert [(offset, entry.message.body) for offset, entry in state.page(1, -1, 10)] == [(6, b"b"), (9, b"d")]
    assert state.get(1, 5) is None and list(state.ids(2)) == [(5, 1005)]
    assert [offset for offset, _ in state.page(1, 6, 10)] == [9]


def test_ids_by_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One queue's, in order, from any offset on, and no message is read for them."""
    state = LmdbState(tmp_path)
    state.write(checkpoint(*[(1, offset, "a") for offset in (3, 5, 7, 9)], (2, 4, "b"), (2, 6, "b")))
    monkeypatch.setattr(lmdb_state, "entry_of", None)
    assert state.ids_page(1, -1, 10) == ([(3, 1003), (5, 1005), (7, 1007), (9, 1009)], END)
    assert state.ids_page(1, 3, 2) == ([(5, 1005), (7, 1007)], 7)
    assert state.ids_page(1, 3, 2, {5, 8}) == ([(7, 1007), (9, 1009)], END)
    assert state.ids_page(1, 9, 2) == ([], END) == state.ids_page(3, -1, 1)
    assert list(state.ids(2)) == [(4, 1004), (6, 1006)]


def test_a_page_has_no_more_than_was_asked_for_and_nothing_of_another_queue(tmp_path: Path) -> None:
    state = LmdbState(tmp_path)
    state.write(checkpoint(*((queue, offset, "m") for queue in (1, 2, 3) for offset in range(5))))
    for limit in (1, 2, 5, 6):
        assert state.ids_page(2, -1, limit).entries == [(offset, offset + 1000) for offset in range(min(limit, 5))]
        assert [offset for offset, _ in state.page(2, -1, limit)] == list(range(min(limit, 5)))
    assert state.ids_page(2, 2, 9) == ([(3, 1003), (4, 1004)], END) and state.ids_page(2, 4, 9) == ([], END)
    assert [offset for offset, _ in state.page(2, 2, 9)] == [3, 4] and not list(state.page(2, 4, 9))
    state.close()


def test_dropped_queues_and_transactions(tmp_path: Path) -> None:
    state = LmdbState(tmp_path)
    events: list[tuple[int, TxEvent]] = [(3, TxOpen(77)), (4, TxEnqueue(77, 1, (1,), message("x")))]
    state.write(checkpoint((1, 5, "a"), (2, 5, "b"))._replace(tx_events=[TxRun(77, events)]))
    assert state.load().transactions == {77: events}
    state.write(checkpoint((1, 6, "new"))._replace(dropped=[Dropped(1)], tx_ended=[77]))
    assert [offset for offset, _ in state.page(1, -1, 10)] == [6] and state.load().transactions == {}
    assert [offset for offset, _ in state.page(2, -1, 10)] == [5]


def outcome(number: int) -> Remembered:
    return Remembered(Kind.BRANCH, 1, b"gtrid %d" % number, b"bqual", True, number, number, number)


def test_outcomes(tmp_path: Path) -> None:
    """They are remembered, forgotten, replaced by a snapshot's; and one too many or too few is damage."""
    state = LmdbState(tmp_path)
    outcomes = Outcomes(OutcomesMeta(), ())

    def save(**changes: Any) -> None:
        meta = Meta(applied=Position(1, 7), outcomes=outcomes.meta)
        remembered, anew = outcomes.take_changes()
        state.write(Checkpoint(meta, {}, [], [], [], remembered, anew)._replace(**changes))

    outcomes.remember(outcome(1))
    outcomes.remember(outcome(2))
    save()
    outcomes.forget(name_of(outcome(1)))
    outcomes.remember(outcome(3))
    save()
    assert state.load().remembered == [outcome(2), outcome(3)] and state.load().meta.outcomes == outcomes.meta
    outcomes.replace(Outcomes(OutcomesMeta(), [outcome(4)]).meta, [outcome(4)])
    save()
    assert state.load().remembered == [outcome(4)]
    outcomes.remember(outcome(5))
    save(remembered={})
    with pytest.raises(StoreDamaged, match="does not hold what its last checkpoint wrote"):
        state.load()


def test_a_state_of_version_1_can_be_read(tmp_path: Path) -> None:
    state = LmdbState(tmp_path)
    state.write(checkpoint((1, 5, "a")))
    old = {k: v for k, v in msgspec.to_builtins(state.load().meta, enc_hook=written).items() if k != "outcomes"}
    with state._env.begin(write=True) as txn:
        txn.put(b"format", b"1", db=state._tables._meta)
        txn.put(b"meta", sealed(b"meta", msgspec.msgpack.encode(old)), db=state._tables._meta)
        [txn.drop(table, delete=True) for table in (state._tables._outcomes, state._tables._declared)]
    state.close()
    for read_only in (True, False):
        state = LmdbState(tmp_path, read_only)
        assert state.load().meta.applied == Position(1, 7) and state.load().meta.outcomes == OutcomesMeta()
        assert state.get(1, 5) is not None
        state.close()


def test_to_read_only_changes_nothing(tmp_path: Path) -> None:
    state = LmdbState(tmp_path / "state")
    state.write(checkpoint((1, 5, "a")))
    state.close()
    (tmp_path / "state" / "lock.mdb").unlink()

    def seen() -> dict[str, tuple[bytes, int]]:
        return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in (tmp_path / "state").iterdir()}

    before = seen()
    state = LmdbState(tmp_path / "state", read_only=True)
    assert state.get(1, 5) is not None and list(state.ids(1)) == [(5, 1005)]
    state.close()
    assert seen() == before
    with pytest.raises(StoreError):
        LmdbState(tmp_path / "none", read_only=True)
    assert not (tmp_path / "none").exists()


def test_every_flipped_byte_of_a_value_is_found(tmp_path: Path) -> None:
    state = LmdbState(tmp_path / "a")
    state.write(checkpoint((1, 5, "a message that can be recognised")))
    state.close()
    data = (tmp_path / "a" / "data.mdb").read_bytes()
    at = data.index(b"a message that can")
    for offset in range(at - 16, at + 32):
        directory = tmp_path / f"b{offset}"
        directory.mkdir()
        (directory / "data.mdb").write_bytes(data[:offset] + bytes([data[offset] ^ 4]) + data[offset + 1 :])
        damaged = LmdbState(directory)
        with pytest.raises(StoreDamaged):
            damaged.get(1, 5)
        with pytest.raises(StoreDamaged):
            damaged.page(1, -1, 10)
        damaged.close()


def everything(directory: Path, queues: list[int]) -> tuple[Loaded, dict[int, dict[int, Entry]]]:
    """What a node would serve: meta, open transactions, outcomes, the queues' entries."""
    state = LmdbState(directory)
    try:
        return state.load(), {queue: dict(state.page(queue, -1, 1000)) for queue in queues}
    finally:
        state.close()


@pytest.mark.parametrize("every", [15, pytest.param(1, marks=pytest.mark.slice)])
def test_every_page_damaged_in_turn_is_found_before_anything_is_served(tmp_path: Path, every: int) -> None:
    """Flips in the tree's own pages: entries hidden from a search or a scan, open transactions that lose an event."""
    contents: Changes = {q: {7 * n: Entry(n, message(f"{n}" * 50)) for n in range(1, 120)} for q in range(1, 5)}
    events = [TxRun(77, [(3, TxOpen(77)), (4, TxEnqueue(77, 1, (1,), message("x")))])]
    remembered = [outcome(number) for number in range(100)]
    meta = replace(meta_of(Position(1, 7), contents), outcomes=Outcomes(OutcomesMeta(), remembered).meta)
    state = LmdbState(tmp_path)
    state.write(Checkpoint(meta, contents, [], events, [], {each.key: each for each in remembered}))
    state.close()
    found, earlier, image = 0, 0, (path := tmp_path / "data.mdb").read_bytes()
    headers = [page + at for page in range(0, len(image), 4096) for at in (*range(0, 64, 3), 100, 120)]
    keys = [at for at in range(8192, len(image)) if image[at : at + 5] == b"\x0c\0\0\0\0"]
    for at in (headers + [key + part for key in keys for part in (0, 5, 12, 13)][::13])[::every]:
        path.write_bytes(image[:at] + bytes([image[at] ^ 4]) + image[at + 1 :])
        (tmp_path / NAME).unlink(missing_ok=True)
        try:
            check(tmp_path)
            read, queues = everything(tmp_path, list(contents))
        except StoreError as error:
            found += 1
            assert not isinstance(error, StoreBusy), "who starts the node again and again would never hear of it"
            continue
        if read.meta == Meta():  # as it was before the checkpoint: the log leads on from there, or the log has a gap
            assert not (read.transactions or read.remembered or any(queues.values()))
            earlier += 1
        else:
            assert (read.meta, read.transactions, queues) == (meta, {77: events[0].events}, contents)
            assert sorted(read.remembered, key=lambda each: each.sequence) == remembered
    assert found > 100 / every and earlier < 10


def test_entries_that_nobody_counted_or_that_are_gone_are_damage(tmp_path: Path) -> None:
    state = LmdbState(tmp_path)
    whole = checkpoint((1, 5, "a"), (1, 6, "b"))
    state.write(whole._replace(meta=meta_of(Position(1, 7), whole.changes)))
    state.verify(state.load().meta)
    for changes in (checkpoint((1, 7, "c")), checkpoint(deletes=((1, 7), (1, 5))), checkpoint((2, 5, "a"))):
        state.write(changes._replace(meta=state.load().meta))
        with pytest.raises(StoreDamaged, match="does not hold what its last checkpoint wrote"):
            state.verify(state.load().meta)


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    state = LmdbState(tmp_path)
    state.write(checkpoint())
    with state._env.begin(write=True) as txn:
        txn.put(b"format", b"99", db=state._tables._meta)
    with pytest.raises(StoreError, match="format version 99; this version of txha reads 1"):
        state.load()
    with state._env.begin(write=True) as txn:
        txn.put(b"format", b"x", db=state._tables._meta)
    with pytest.raises(StoreDamaged, match="has no format version"):
        state.load()


steps = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.integers(1, 3), st.integers(0, 200)),
        st.tuples(st.just("remove"), st.integers(1, 3), st.integers(0, 200)),
        st.tuples(st.just("drop"), st.integers(1, 3), st.just(0)),
        st.tuples(st.just("purge"), st.integers(1, 3), st.integers(0, 60)),
        st.tuples(st.just("freeze"), st.just(0), st.just(0)),
        st.tuples(st.just("written"), st.just(0), st.just(0)),
    ),
    max_size=80,
)


def walked(contents: Contents, queue: int, limit: int) -> list[tuple[int, int]]:
    """All ids of a queue by pages of so many."""
    found, page = list[tuple[int, int]](), Ids([], -1)
    while page.more:
        page = contents.messages.ids_page(queue, page.through, limit)
        assert len(page.entries) <= limit and (page.entries or not page.more)
        found += page.entries
    return found


@settings(max_examples=200, deadline=None)
@given(steps)
def test_contents_show_the_same_whatever_checkpoint_is_on_its_way(script: list[tuple[str, int, int]]) -> None:
    """Against a plain dictionary; offsets rise as in the stream, and a dropped queue never comes back."""
    base = MemoryBase()
    contents = Contents(base, Meta())
    model: dict[int, dict[int, int]] = {1: {}, 2: {}, 3: {}}
    for queue in model:
        contents.queues.add(queue)
    frozen: Checkpoint | None = None
    offset = 0
    for step, queue, number in script:
        if step == "insert" and queue in model:
            offset += 1
            contents.queues.insert(queue, offset, number, message("x"))
            model[queue][offset] = number
        elif step == "remove" and model.get(queue):
            victim = list(model[queue])[number % len(model[queue])]
            rid = model[queue][victim]
            assert contents.queues.remove(queue, victim, rid) and not contents.queues.remove(queue, victim, rid)
            del model[queue][victim]
        elif step == "drop" and queue in model:
            contents.queues.drop(queue)
            del model[queue]
        elif step == "purge" and queue in model:
            spared = [p for p in model[queue] if p % 3 == 0]
            doomed = [p for p in model[queue] if p <= number and p % 3]
            rids = {p: model[queue][p] for p in spared if p % 2}
            assert contents.queues.purge(queue, number, spared, rids) == len(doomed)
            for each in doomed:
                del model[queue][each]
        elif step == "freeze" and frozen is None:
            changes, dropped = contents.freeze()
            frozen = Checkpoint(contents.meta([]), changes, dropped, [], [])
        elif step == "written" and frozen is not None:
            base.write(frozen)
            contents.thaw()
            frozen = None
        for each, expected in model.items():
            assert [(p, e.rid) for p, e in contents.messages.page(each, -1, 1000)] == sorted(expected.items())
            assert contents.messages.ids(each) == walked(contents, each, 1 + number % 3) == sorted(expected.items())
            spared = [p for p in range(offset + 3) if p % (2 + number % 3)]
            assert contents.holds(each, Terms(True, spared)) == any(p not in spared for p in expected)
            assert contents.holds(each, Terms(True, [], through=number)) == any(p > number for p in expected)
            summary = contents.queues.summary(each)
            digest = sum(mix(p, rid) for p, rid in expected.items()) % 2**64
            assert (summary.count, summary.digest) == (len(expected), digest)


def test_to_confirm_writes_a_transaction_of_its_own(tmp_path: Path) -> None:
    """LMDB writes and syncs nothing for a transaction that changes nothing."""
    state = LmdbState(tmp_path)
    state.write(checkpoint((1, 5, "a")))
    state.close()
    state = LmdbState(tmp_path)
    found = state._env.info()["last_txnid"]
    for opened in (1, 2):
        state.confirm(log_begun=False)
        assert state._env.info()["last_txnid"] == found + opened
    assert state.load().meta.applied == Position(1, 7)
    state.close()


def test_the_meta_of_a_state_that_has_none_is_empty_and_reading_it_makes_nothing(tmp_path: Path) -> None:
    """A first start that was cut short left a directory, or a file without anything in it, or no checkpoint."""
    assert read_meta(tmp_path) == Meta() and not (tmp_path / "state").exists()
    (tmp_path / "state").mkdir()
    assert read_meta(tmp_path) == Meta() and not list((tmp_path / "state").iterdir())
    lmdb.open(str(tmp_path / "state"), max_dbs=4).close()
    before = (tmp_path / "state" / "data.mdb").read_bytes()
    assert read_meta(tmp_path) == Meta()
    assert (tmp_path / "state" / "data.mdb").read_bytes() == before
    LmdbState(tmp_path / "state").close()
    assert read_meta(tmp_path) == Meta()
    state = LmdbState(tmp_path / "state")
    state.write(checkpoint((1, 5, "a")))
    state.close()
    assert read_meta(tmp_path).applied == Position(1, 7)


def test_to_check_changes_nothing(tmp_path: Path) -> None:
    """Whatever is there is still there to be looked at when it is found to be damaged."""
    state, one = LmdbState(tmp_path), checkpoint((1, 5, "a"))
    state.write(one._replace(meta=meta_of(Position(1, 7), one.changes)))
    state.close()
    (tmp_path / "lock.mdb").unlink()
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()}
    check(tmp_path)
    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()} == before


def test_whoever_reads_beside_a_node_can_write_nothing_and_stands_in_its_table_of_readers(tmp_path: Path) -> None:
    """So the node keeps the pages that are being read. Where there is no such table, none is made."""
    LmdbState(tmp_path).close()
    with _reader(tmp_path) as env:
        assert env.flags()["lock"]
        with pytest.raises(lmdb.ReadonlyError):
            env.begin(write=True)
    (tmp_path / "lock.mdb").unlink()
    with _reader(tmp_path) as env:
        assert not env.flags()["lock"]
    assert [path.name for path in tmp_path.iterdir()] == ["data.mdb"]
    with pytest.raises(lmdb.Error):
        _reader(tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (lmdb.MapFullError("mdb_put: MDB_MAP_FULL"), StoreFull),
        (lmdb.DiskError("mdb_txn_commit: No space left on device"), StoreFull),
        (lmdb.Error("mdb_txn_commit: No space left on device"), StoreFull),
        (lmdb.CorruptedError("mdb_get: MDB_CORRUPTED"), StoreDamaged),
        (lmdb.InvalidError("MDB_INVALID"), StoreDamaged),
        (lmdb.Error("mdb_txn_commit: Input/output error"), StoreError),
        (OSError("Permission denied"), StoreError),
    ],
)
def test_each_failure_is_told_as_what_it_is(tmp_path: Path, error: Exception, kind: type[StoreError]) -> None:
    found = explained(error, tmp_path / "state")
    assert type(found) is kind and str(tmp_path / "state") in str(found)


def test_a_state_that_has_lost_its_meta_is_damaged_and_not_empty(tmp_path: Path) -> None:
    LmdbState(tmp_path / "state").write(Checkpoint(Meta(applied=Position(1, 3)), {}, [], [], []))
    with lmdb.open(str(tmp_path / "state"), max_dbs=4) as environment, environment.begin(write=True) as txn:
        assert txn.delete(b"meta", db=environment.open_db(b"meta", txn=txn))
    with pytest.raises(StoreDamaged, match="holds no checkpoint"):
        LmdbState(tmp_path / "state").load()
