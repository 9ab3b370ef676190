"""What the loop asks of a log while the thread that writes changes it."""

from __future__ import annotations

from pathlib import Path

from recovery.log import Log
from tests.recovery.helpers import frame, open_log


class Replaced(list[int]):
    """The first sequences of a log's segments; whoever looks how many there are gives the writer time to reset it."""

    def __init__(self, log: Log) -> None:
        super().__init__(log._firsts)
        self._log = log

    def __len__(self) -> int:
        self._log._firsts = []
        return super().__len__()


def test_the_first_sequence_is_asked_for_while_the_log_is_reset(tmp_path: Path) -> None:
    """The loop asks, and another thread resets the log between its two looks."""
    log, _ = open_log(tmp_path / "log")
    log.append([frame(1)])
    log._firsts = Replaced(log)
    assert log.first == 1
    assert log.first == log.tail.sequence + 1, "now there is none"


def test_a_portion_is_full_with_the_frame_that_fills_it(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path / "log")
    frames = [frame(1), frame(4), frame(7)]
    log.append(frames)
    size = len(frames[0].data)
    assert len(frames[1].data) == size
    for room, count in ((1, 1), (size, 1), (size + 1, 2), (2 * size, 2), (3 * size, 3), (9 * size, 3)):
        assert [each.first for each in log.read(1, room)] == [1, 4, 7][:count]
