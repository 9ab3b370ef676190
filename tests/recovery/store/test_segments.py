"""Where a search in the segments of a log begins."""

from __future__ import annotations

import io
from pathlib import Path
from typing import BinaryIO

import pytest

from recovery.store.files import Files
from recovery.store.segments import INDEX_EVERY
from tests.support.logs import frame, open_log


class CountingFiles(Files):
    """Counts the bytes that are read."""

    def __init__(self) -> None:
        self.bytes = 0

    def reader(self, path: Path) -> BinaryIO:
        files = self

        class Reader(io.BytesIO):
            def read(self, size: int | None = -1, /) -> bytes:
                data = super().read(size)
                files.bytes += len(data)
                return data

        return Reader(path.read_bytes())


@pytest.mark.parametrize("reopened", [False, True])
def test_a_read_from_the_middle_of_a_segment_does_not_begin_at_its_beginning(tmp_path: Path, reopened: bool) -> None:
    """A joiner reads portion by portion: the segment's 64 MiB would be read for each."""
    files = CountingFiles()
    log, _ = open_log(tmp_path / "log", files=files)
    frames = [frame(1 + 3 * number, size=3000) for number in range(60)]
    for each in frames:
        log.append([each])
    if reopened:
        log.close()
        log, _ = open_log(tmp_path / "log", files=files)
    size = len(frames[0].data)
    assert len(frames) * size > 8 * INDEX_EVERY
    for each in frames:
        files.bytes = 0
        assert log.read(each.first, 1) == [each]
        assert files.bytes <= INDEX_EVERY + 2 * size
    log.close()
