"""A PostgreSQL for the tests of coordinators, beside the cluster that all clients' tests use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import transaction

from python_tests.harness.servers.postgresql import PostgreSQL
from python_tests.suites.coordinator.shop import Shop
from tests.support.servers import running_postgresql


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    """A server that runs."""
    with running_postgresql() as running:
        yield running


@pytest.fixture
def shop(postgresql: PostgreSQL, urls: list[str]) -> Iterator[Shop]:
    """With nothing ordered; in the end nothing may be left in doubt."""
    shop = Shop(postgresql.dsn, urls)
    yield shop
    transaction.abort()
    assert shop.recover().settled
    assert shop.queue.open().in_doubt() == []
    shop.broker.broker.close()
    shop.queue.close()
