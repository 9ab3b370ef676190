"""Which blocks of statements have run, in this process and in those that it starts. Instrumented modules call this.

Instrumented modules of every kind import it, so it imports nothing of ours.
"""

from __future__ import annotations

import os

FILE = "MUTANTS_HITS"
"""This environment variable names the file into which other processes than the first write what they run."""

FIRST = "MUTANTS_FIRST"
"""And this one the first process. (Nodes take all that begins with their own name for settings.)"""

_write = os.write  # tests may put something else in its place

seen: set[int] = set()
os.environ.setdefault(FIRST, str(os.getpid()))


def hit(number: int) -> None:
    """A block runs that is not in ``seen``."""
    seen.add(number)
    if os.environ[FIRST] != str(os.getpid()) and FILE in os.environ:
        descriptor = os.open(os.environ[FILE], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        _write(descriptor, f"{number}\n".encode())
        os.close(descriptor)
