"""Run something in a forked child, because it may end its process."""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Callable

from txobserver.store import StoreDamaged, StoreError

TEXT_BYTES = 4096
"""Of what the child says; a pipe holds more, so the child never waits for its parent."""


def in_a_child(job: Callable[[], None]) -> None:
    """Run ``job`` in a forked child and wait for it. Raises StoreError as it did, StoreDamaged if the child died.

    The child has one thread and a copy of this process's memory; what ``job`` leaves behind there is gone with it.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 3
        try:
            os.close(reading)
            status = _outcome(job, writing)
        finally:  # whatever it fails with, a parent that has gone included: it must not go on as its parent would
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read().decode()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status == 1:
        raise StoreDamaged(text)
    if status == 2:
        raise StoreError(text)
    if status != 0:
        raise StoreDamaged(text or f"reading ended with status {status}")


def _outcome(job: Callable[[], None], writing: int) -> int:
    faulthandler.disable()  # the parent says what happened
    try:
        job()
    except BaseException as error:
        os.write(writing, str(error).encode()[:TEXT_BYTES])
        return 1 if isinstance(error, StoreDamaged) else 2 if isinstance(error, StoreError) else 3
    return 0
