"""Ctrl-C reaches what tests start, also where the tests run in the background."""

from __future__ import annotations

import signal


def heed_interrupts() -> None:
    """A shell without job control starts what runs in the background with SIGINT ignored; processes inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
