"""A node of ``txha cluster`` never outlives its supervisor, not even one that was killed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    """Linux: have this process killed when ``parent`` ends, however that ends. ``parent`` is the pid that started it.

    Raises SystemExit if the parent has ended already: the system would then never send the signal.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit(1)
