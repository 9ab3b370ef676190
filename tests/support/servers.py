"""Servers for fixtures, local or in containers; where they cannot be had, the tests that need them are skipped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from python_tests.harness.servers.chosen import in_containers, postgresql
from python_tests.harness.servers.postgresql import PostgreSQL


@contextmanager
def running_postgresql() -> Iterator[PostgreSQL]:
    """A server that runs. Skips the test, with a sentence, if it shall run in a container and no engine answers."""
    if in_containers():
        from python_tests.harness.servers.containers import NoEngine

        try:
            server = postgresql()
        except NoEngine as missing:
            pytest.skip(str(missing))
    else:
        server = postgresql()
    with server:
        yield server
