"""A host that is killed at the moment at which pika has just reached it."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from pika.adapters.utils import io_services_utils

from python_tests.harness.pika_clients import Client, parameters
from python_tests.harness.waiting import wait_until
from recovery.dtx.errors import OperationalError
from recovery.dtx.with_pika import DtxConnection


def is_reset(client: socket.socket) -> bool:
    with contextlib.suppress(OSError):
        client.getpeername()
        return False
    return True


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Of a host that resets between pika's last look for an error of the socket and its next one: a ValueError."""
    look = io_services_utils._AsyncStreamConnector.__init__

    def reset_and_look(self: Any, *given: Any, sock: socket.socket, **more: Any) -> None:
        accepted, _ = host.accept()
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        accepted.close()
        wait_until(lambda: is_reset(sock), 30, "a reset")
        look(self, *given, sock=sock, **more)

    monkeypatch.setattr(io_services_utils._AsyncStreamConnector, "__init__", reset_and_look)
    with socket.create_server(("127.0.0.1", 0)) as host:
        yield f"amqp://guest:guest@127.0.0.1:{host.getsockname()[1]}/"


def test_a_host_that_is_killed_while_pika_connects_is_lost(url: str) -> None:
    with pytest.raises(OperationalError):
        DtxConnection(parameters(url), patience=0.1)


def test_a_client_of_the_harness_goes_on_behind_a_reset_while_connecting(url: str) -> None:
    """It ended with the ValueError, and the run with it."""
    client = Client("client", [url])
    client.start()
    wait_until(lambda: client.lives > 1 or not client.is_alive(), 30, "a second attempt")
    client.stop()
    assert client.lives > 1
