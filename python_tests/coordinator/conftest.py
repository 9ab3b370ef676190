"""A PostgreSQL for the tests of coordinators, beside the cluster that all clients' tests use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from python_tests.postgresql import PostgreSQL


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    """A server that runs."""
    with PostgreSQL() as running:
        yield running
