"""The page of limits is true for ``broker_plugin.logs``."""

from __future__ import annotations

from broker_plugin.logs.seldom import QUIET_SECONDS
from tests.support.limits import documented


def test_every_number_and_its_value() -> None:
    assert documented("broker_plugin.logs") == {"broker_plugin.logs.seldom.QUIET_SECONDS": QUIET_SECONDS}
