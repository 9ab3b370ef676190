"""What the tests of calls share."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _level() -> Iterator[None]:
    """Calls set the level of the whole process's log: it is put back."""
    before = logging.getLogger().level
    yield
    logging.getLogger().setLevel(before)
