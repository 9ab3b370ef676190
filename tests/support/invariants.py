"""Without invariants for a while: where a fault is planted, to see whether something else finds it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from txobserver.invariants import CHECKS


@contextmanager
def unchecked() -> Iterator[None]:
    """Check no invariants within."""
    before = CHECKS.on
    CHECKS.switch_off()
    try:
        yield
    finally:
        CHECKS.on = before
