"""Waiting for something that will come about."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], seconds: float, what: str, every: float = 0.02) -> None:
    """Look again and again. Raises TimeoutError with ``what`` did not come about."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come about within {seconds:.0f} s")
        time.sleep(every)
