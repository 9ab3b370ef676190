"""The page of limits is true for ``broker_plugin.tls``."""

from __future__ import annotations

from broker_plugin.tls.accepting import HANDSHAKE_SECONDS, MOST_HELD, SHUTDOWN_SECONDS
from broker_plugin.tls.files import LARGEST
from tests.support.limits import documented

NUMBERS = {
    "accepting.HANDSHAKE_SECONDS": HANDSHAKE_SECONDS,
    "accepting.SHUTDOWN_SECONDS": SHUTDOWN_SECONDS,
    "accepting.MOST_HELD": MOST_HELD,
    "files.LARGEST": LARGEST,
}


def test_every_number_and_its_value() -> None:
    assert documented("broker_plugin.tls") == {f"broker_plugin.tls.{name}": value for name, value in NUMBERS.items()}
