"""A reader of the queue state beside its node may be killed at any moment, and costs the node nothing by it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from recovery.store.lmdb_state import LmdbState
from tests.support.logs import message, meta_of
from txobserver.ids import Position
from txobserver.ports.store import Checkpoint, Entry

DIES_WHILE_IT_READS = """
import os, signal, sys
from pathlib import Path
import recovery.store.lmdb_state

env = recovery.store.lmdb_state._reader(Path(sys.argv[1]))
txn = env.begin()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_reader_that_is_killed_in_the_middle_does_not_make_the_state_grow(tmp_path: Path) -> None:
    """It stands in the table of readers for ever, and no page was used again that it might have been reading."""
    state = LmdbState(tmp_path)
    entries: dict[int, Entry | None] = {n: Entry(n, message("x" * 1000)) for n in range(50)}
    state.write(Checkpoint(meta_of(Position(1, 1), {1: entries}), {1: entries}, [], [], []))
    subprocess.run([sys.executable, "-c", DIES_WHILE_IT_READS, str(tmp_path)], check=False)
    assert len(state._env.readers().splitlines()) > 1, "it is in the table"
    for sequence in range(2, 40):
        state.write(Checkpoint(meta_of(Position(1, sequence), {1: entries}), {1: entries}, [], [], []))
    assert (tmp_path / "data.mdb").stat().st_size < 10 * 50 * 1000
    state.close()
