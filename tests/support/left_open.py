"""Closes what a test leaves open where it plays a process that dies: the system closes the files of a real one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

import pytest

from recovery.store.files import Files

MOST = 800
"""Open descriptors that tests may leave behind. From 1,024 on ``select`` fails, and with it the thread by which Spark
calls Python: the query waits for ever.
"""


@pytest.fixture(autouse=True)
def close_what_is_left() -> Iterator[None]:
    """The logs that this test opened and did not close. Fails where other descriptors pile up."""
    opened = dict[int, tuple[int, int]]()
    create, reopen, close = Files.create, Files.open, Files.close

    def noted(descriptor: int) -> int:
        opened[descriptor] = _file_of(descriptor)
        return descriptor

    def noted_close(files: Files, descriptor: int) -> None:
        opened.pop(descriptor, None)
        close(files, descriptor)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Files, "create", lambda files, path: noted(create(files, path)))
        patched.setattr(Files, "open", lambda files, path: noted(reopen(files, path)))
        patched.setattr(Files, "close", noted_close)
        yield
    for descriptor, file in opened.items():
        with suppress(OSError):
            if _file_of(descriptor) == file:
                os.close(descriptor)
    count = len(os.listdir("/proc/self/fd"))
    assert count <= MOST, f"{count} descriptors are open: a test leaves them, this one or one before it"


def _file_of(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino
