"""How much is free on the disk, and when that is too little."""

from __future__ import annotations

import os
import queue
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from broker_plugin.node.disk_watch import DiskRoom, DiskWatch, free_bytes, next_room


@pytest.mark.parametrize(
    ("free", "short"),
    [((100,), False), ((99,), True), ((99, 124), True), ((99, 125), False), ((99, 125, 100), False), ((0,), True)],
)
def test_a_disk_is_short_until_a_quarter_more_is_free(free: tuple[int, ...], short: bool) -> None:
    room = DiskRoom()
    for each in free:
        room = next_room(room, 100, each)
    assert room == (free[-1], short, "")


def test_without_a_limit_no_disk_is_short() -> None:
    assert next_room(DiskRoom(), 0, 0) == (0, False, "")


def test_what_is_free_is_what_this_process_may_write(tmp_path: Path) -> None:
    assert free_bytes(tmp_path) > 0
    with pytest.raises(OSError, match="No such file"):
        free_bytes(tmp_path / "none")


def test_what_only_the_administrator_may_write_is_not_free(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Blocks are reserved for that: the store finds no room while the disk has some."""
    found = SimpleNamespace(f_frsize=4096, f_bsize=1 << 20, f_blocks=1000, f_bfree=70, f_bavail=20)
    monkeypatch.setattr(os, "statvfs", lambda path: found)
    assert free_bytes(tmp_path) == 20 * 4096


class Disk:
    """A disk of which the test says how it is; looks are carried out in the test's own thread."""

    def __init__(self) -> None:
        self.posted: queue.Queue[Callable[[], None]] = queue.Queue()
        self.answers: queue.Queue[int | OSError] = queue.Queue()
        self.seen: list[tuple[DiskRoom, DiskRoom]] = []
        self.watch = DiskWatch(
            Path("/x"), 100, self.posted.put, lambda before, after: self.seen.append((before, after)), self._look
        )

    def _look(self, directory: Path) -> int:
        answer = self.answers.get()
        if isinstance(answer, OSError):
            raise answer
        return answer

    def next(self, answer: int | OSError) -> DiskRoom:
        self.answers.put(answer)
        self.posted.get(timeout=10)()
        return self.watch.room


def test_what_a_look_has_found_is_told_in_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker_plugin.node.disk_watch.EVERY", 0.0)
    disk = Disk()
    disk.watch.start()
    assert disk.next(500) == (500, False, "") and disk.next(50) == (50, True, "")
    assert disk.next(OSError(5, "Input/output error")) == (50, True, "Input/output error"), "short as it was"
    assert disk.next(500) == (500, False, "")
    assert [after.short for _, after in disk.seen] == [False, True, True, False]
    assert disk.seen[0][0] == DiskRoom()
    disk.watch.stop()
    assert disk.next(5) == (5, True, "") and len(disk.seen) == 4, "a look that was on its way tells nothing"
