"""What two-phase clients say of a server that has no class dtx."""

from __future__ import annotations

import pytest

from broker_plugin.amqp import handshake
from python_tests.dtx.clients import MAKES
from recovery.dtx.errors import NotSupportedError
from tests.amqp.conftest import Served


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("two_phase", [True, False])
def test_a_server_without_the_class(
    served: Served, monkeypatch: pytest.MonkeyPatch, make: str, two_phase: bool
) -> None:
    """It would close the connection, with a code that says little."""
    monkeypatch.delitem(handshake.SERVER_PROPERTIES["capabilities"], "dtx")
    with pytest.raises(NotSupportedError, match="has no class dtx"):
        MAKES[make](f"amqp://guest:guest@127.0.0.1:{served.port}/", two_phase=two_phase)
