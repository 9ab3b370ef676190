"""The model of the queue state loses what LMDB may lose; and the store confirms what it finds before it goes by it."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from recovery.store.log import Log
from recovery.store.store import Store
from tests.simulation.fake_files import Crashed, FakeFiles
from tests.simulation.fake_state import FakeState
from tests.simulation.test_models import checkpoints, seen
from tests.support.logs import describe
from txobserver.ids import Member, Position
from txobserver.ports.store import MemoryBase, StoreError

NUMBER = 8
"""Checkpoints that are durable before the one that is in doubt"""
SEEDS = range(80)


def expected(count: int) -> object:
    model = MemoryBase()
    for checkpoint in islice(checkpoints(1), count):
        model.write(checkpoint)
    return seen(model, random.Random(1))


BEFORE, BEHIND = expected(NUMBER), expected(NUMBER + 1)


def ended(seed: int, killed: bool) -> FakeState:
    """A state whose last checkpoint has failed, or was cut short by a kill."""
    state = FakeState(random.Random(seed))
    coming = checkpoints(1)
    for checkpoint in islice(coming, NUMBER):
        state.write(checkpoint)
    setattr(state, "dying" if killed else "fails", True)
    with suppress(Crashed, StoreError):
        state.write(next(coming))
    state.dying = state.fails = False
    return state


def after(act: Callable[[FakeState], object], killed: bool = True) -> set[tuple[bool, bool]]:
    """Whether the checkpoint was read by the next process, and whether it is there behind a power cut."""
    found = set()
    for seed in SEEDS:
        state = ended(seed, killed)
        read = seen(state, random.Random(1))
        act(state)
        state.crash(random.Random(seed))
        kept = seen(state, random.Random(1))
        assert all(each in (BEFORE, BEHIND) for each in (read, kept))
        found.add((read == BEHIND, kept == BEHIND))
    return found


def open_store(state: FakeState) -> None:
    """As the next process does; its log holds nothing behind the checkpoint."""

    def make_log(applied: Position) -> Log:
        return Log(Path("log"), describe, 400, applied, FakeFiles(lambda: 0.0))

    jobs: Any = None  # nothing is written
    store = Store(Member("node", "1"), state, make_log, jobs, jobs, jobs, lambda: 0.0)
    assert list(store.suffix()) == []


@pytest.mark.parametrize("killed", [False, True])
def test_a_checkpoint_that_is_read_may_be_lost_in_a_power_cut(killed: bool) -> None:
    assert after(lambda state: None, killed) == {(False, False), (True, False), (True, True)}


def test_what_is_confirmed_is_kept() -> None:
    assert after(lambda state: state.confirm(False)) == {(False, False), (True, True)}


@pytest.mark.parametrize("resyncing", [False, True])
def test_a_store_goes_by_no_checkpoint_that_a_power_cut_takes_back(resyncing: bool) -> None:
    """``head_page_in_doubt``: a copy that is whole in memory makes a node ready; behind a power cut it is none."""
    for seed in SEEDS:
        state = ended(seed, killed=True)
        state.meta = replace(state.meta, resyncing=resyncing)
        open_store(state)
        read = seen(state, random.Random(1))
        state.crash(random.Random(seed))
        assert seen(state, random.Random(1)) == read and state.log_begun == (not resyncing)


def test_a_store_that_cannot_confirm_does_not_open() -> None:
    state = FakeState(random.Random(0))
    state.fails = True
    with pytest.raises(StoreError, match="Input/output"):
        open_store(state)


def test_without_syncs_a_power_cut_takes_any_page() -> None:
    """LMDB's ``sync=False``: what a checkpoint wrote is there, or not, or its head page names what is not."""
    found = set()
    for seed in SEEDS:
        state = FakeState(random.Random(seed))
        state.syncs = False
        for checkpoint in islice(checkpoints(1), NUMBER + 1):
            state.write(checkpoint)
        state.confirm(True)
        assert state.durable.meta == FakeState(random.Random(seed)).meta, "nothing is certain"
        state.crash(random.Random(seed))
        there = seen(state, random.Random(1))
        found.add("all" if there == BEHIND else "none" if there == expected(0) else "some")
    assert found == {"all", "none", "some"}
