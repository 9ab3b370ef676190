"""Clients of both makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from python_tests.suites.tx.clients import MAKES, TxClient

Open = Callable[[str], TxClient]


@pytest.fixture(params=MAKES)
def client(request: pytest.FixtureRequest) -> Iterator[Open]:
    """Opens clients of one make at a url, and closes them in the end."""
    opened: list[TxClient] = []

    def client(url: str) -> TxClient:
        opened.append(MAKES[request.param](url))
        return opened[-1]

    yield client
    for each in opened:
        each.close()
