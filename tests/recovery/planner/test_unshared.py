"""What is read of a log behind damage, and where it ends (``recovery.planner.unshared``)."""

from __future__ import annotations

from pathlib import Path

import pytest

from recovery.planner.unshared import salvaged
from recovery.store.segment import segment_path
from tests.support.logs import frame, open_log
from txobserver.ids import Position


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("torn", [0, 5])
def test_a_log_ends_where_its_last_frame_does(tmp_path: Path, cut: bool, torn: int) -> None:
    """Also one that was cut there, which then says that a group ends; what is torn behind it is no frame."""
    log, _ = open_log(tmp_path / "log")
    for first in (1, 4, 7):
        log.append([frame(first)])
    if cut:
        log.truncate(6, Position(1, 6))
    if torn:
        log.append([frame(log.tail.sequence + 1)])
    log.close()
    path = segment_path(tmp_path / "log", 1)
    path.write_bytes(path.read_bytes()[: -torn or None])
    found = [None if each is None else each.first for each in salvaged(tmp_path)]
    assert found == [1, 4, *([] if cut else [7]), *([None] if torn else [])]
