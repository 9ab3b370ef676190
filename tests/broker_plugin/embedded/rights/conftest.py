"""What the tests of rights have in common."""

from __future__ import annotations

import pytest

from tests.broker_plugin.embedded.rights.ruled import Ruled, made


@pytest.fixture
def ruled() -> Ruled:
    return made()
