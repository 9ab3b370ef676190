"""A sync fails or is never reached, the process ends, and the log is opened again: what counts then is on the disk.

Linux takes what a failed sync was to write for clean. So it is read at the next start, no sync writes it any more, and
the power cut after that takes it away.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from recovery.store import files as files_module
from recovery.store.files import REAL_FILES
from recovery.store.log import Log
from tests.simulation.fake_files import Crashed, FakeFiles
from tests.support.logs import describe, frame
from txobserver.ids import Position
from txobserver.ports.store import StoreDamaged, StoreError

LOG = Path("log")
SEEDS = range(40)
NOTHING = Position(0, 0)


def opened(files: FakeFiles, before: Position = NOTHING) -> tuple[Log, list[int]]:
    """A log of short segments, and the last sequence of each frame that is found behind ``before``."""
    log = Log(LOG, describe, 400, before, files)
    return log, [each.last for each in log.recover(before)]


def fails(files: FakeFiles, act: Callable[[], None]) -> None:
    """The disk does not sync while this is done; then the process ends, and the disk works again."""
    files.sync_fails = True
    with pytest.raises(StoreError, match="Input/output"):
        act()
    files.sync_fails = False


@pytest.mark.parametrize("seed", SEEDS)
def test_sync_failed_then_restart(seed: int) -> None:
    """What the reopened log shows counts as durable from then on: a power cut leaves it, and what came behind it."""
    files = FakeFiles(lambda: 0.0)
    log, _ = opened(files)
    log.append([frame(1)])
    fails(files, lambda: log.append([frame(4)]))
    log, found = opened(files)
    assert found == [3, 6] and files.last_durable() == (1, 6)
    log.append([frame(7)])
    files.crash(random.Random(seed))
    assert opened(files)[1] == [3, 6, 9]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_behind_the_checkpoint_is_written_again_and_the_rest_was_durable(seed: int) -> None:
    files = FakeFiles(lambda: 0.0)
    log, _ = opened(files)
    log.append([frame(1)])
    log.append([frame(4)])
    fails(files, lambda: log.append([frame(7)]))
    _, found = opened(files, Position(1, 5))
    assert found == [6, 9]
    files.crash(random.Random(seed))
    assert opened(files)[1] == [3, 6, 9]


@pytest.mark.parametrize("seed", SEEDS)
def test_sync_failed_twice_then_restart(seed: int) -> None:
    """The second start fails too, before it has synced what it wrote again."""
    files = FakeFiles(lambda: 0.0)
    log, _ = opened(files)
    fails(files, lambda: log.append([frame(1), frame(4)]))
    fails(files, lambda: opened(files) and None)
    log, found = opened(files)
    log.append([frame(log.tail.sequence + 1)])
    files.crash(random.Random(seed))
    assert opened(files)[1] == [*found, log.tail.sequence]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("renewed", [False, True])
def test_a_new_segment_whose_sync_failed_is_made_durable(seed: int, renewed: bool) -> None:
    """Its header, or its name: the next process goes on in it."""
    files = FakeFiles(lambda: 0.0)
    log, _ = opened(files)
    if renewed:
        log.append([frame(1), frame(4), frame(7)])
    tail = log.tail.sequence
    fails(files, lambda: log.append([frame(tail + 1)]))
    log, before = opened(files)
    log.append([frame(tail + 1)])
    files.crash(random.Random(seed))
    assert opened(files)[1] == [*before, tail + 3]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("last", [0, 3, 12, 15])
def test_a_cut_whose_sync_failed_does_not_come_undone(seed: int, last: int) -> None:
    """What was cut, and the segments that were removed, must not come back behind what another primary wrote there."""
    files = FakeFiles(lambda: 0.0)
    log, _ = opened(files)
    for first in range(1, 40, 3):
        log.append([frame(first)])
    fails(files, lambda: log.truncate(last, Position(1, last)))
    log, _ = opened(files)
    log.truncate(last, Position(1, last))
    for first in range(last + 1, last + 16, 3):
        log.append([frame(first, generation=2)])
    files.crash(random.Random(seed))
    log, found = opened(files)
    assert found == list(range(3, last + 16, 3)) and log.tail == Position(2, last + 15)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_reset_whose_sync_failed_does_not_come_undone(seed: int) -> None:
    """The log that a snapshot has overwritten stays away, also if the next process found it gone already."""
    files = FakeFiles(lambda: 0.0)
    log, _ = opened(files)
    for first in range(1, 40, 3):
        log.append([frame(first)])
    fails(files, lambda: log.reset(Position(2, 36)))
    log = Log(LOG, describe, 400, Position(0, 0), files)  # the store is resyncing: its log is not read
    log.reset(Position(2, 36))
    files.crash(random.Random(seed))
    log, found = opened(files, Position(2, 36))
    assert found == [] and log.tail == Position(2, 36)


def test_an_older_event_behind_a_younger_one_is_damage() -> None:
    files = FakeFiles(lambda: 0.0)
    log, _ = opened(files)
    log.append([frame(1)])
    with pytest.raises(StoreDamaged, match=r"holds 1.3 behind events of generation 2"):
        opened(files, Position(2, 2))


@pytest.mark.parametrize("steps", range(10))
def test_a_start_that_is_cut_short_anywhere_can_be_repeated(steps: int) -> None:
    """It loses nothing that was acknowledged, wherever the process or the machine ends."""
    for seed in SEEDS:
        files = FakeFiles(lambda: 0.0)
        log, _ = opened(files)
        log.append([frame(1)])
        fails(files, lambda: log.append([frame(4)]))  # noqa: B023
        files.steps_to_crash = steps
        with contextlib.suppress(Crashed):
            opened(files)
        files.steps_to_crash = None
        if seed % 2:
            files.crash(random.Random(seed))
        log, found = opened(files)
        assert found in ([3], [3, 6])
        log.append([frame(log.tail.sequence + 1)])
        files.crash(random.Random(seed))
        assert opened(files)[1] == [*found, log.tail.sequence]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_first_frame_behind_the_checkpoint_is_written_again_too(seed: int) -> None:
    """P2, P11: it may be the very one whose sync failed."""
    files = FakeFiles(lambda: 0.0)
    log, _ = opened(files)
    log.append([frame(1)])
    log.append([frame(4)])
    fails(files, lambda: log.append([frame(7)]))
    _, found = opened(files, Position(1, 6))
    assert found == [9]
    files.crash(random.Random(seed))
    assert opened(files)[1] == [3, 6, 9]


def test_all_of_a_long_tail_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what lies behind the first of the blocks in which it is read."""
    data, written, pwrite = bytes(range(250)), bytearray(), os.pwrite
    (tmp_path / "segment").write_bytes(data)
    monkeypatch.setattr(files_module, "REWRITE_BYTES", 100)

    def seen(descriptor: int, block: bytes, offset: int) -> int:
        written.extend(block)
        return pwrite(descriptor, block, offset)

    monkeypatch.setattr(os, "pwrite", seen)
    REAL_FILES.rewrite(tmp_path / "segment", 20)
    assert written == data[20:] and (tmp_path / "segment").read_bytes() == data
