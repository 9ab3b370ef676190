"""A process that never outlives the one that has started it, not even one that was killed."""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress

PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
"""Found before any thread forks: the linker's own lock may be another thread's then"""


def end_with(parent: int) -> None:
    """Linux: have this process killed when ``parent`` ends, however that ends. ``parent`` is the pid that started it.

    Linux takes the thread that started it for its parent, so that one has to wait for it. Raises SystemExit if the
    parent has ended already: the system would then never send the signal.
    """
    with suppress(AttributeError):
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit(1)
