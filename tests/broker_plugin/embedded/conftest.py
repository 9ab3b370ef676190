"""A broker without a cluster, and a client with one durable queue; files that need another client have their own."""

from __future__ import annotations

import pytest

from tests.broker_plugin.embedded.harness import Client, Harness


@pytest.fixture
def harness() -> Harness:
    return Harness()


@pytest.fixture
def client(harness: Harness) -> Client:
    client = harness.client()
    client.declare("q")
    return client
