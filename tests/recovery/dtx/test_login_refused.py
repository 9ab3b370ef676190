"""A wrong password is told at once: the broker is not asked again for as long as a lost one is looked for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pika.exceptions import ProbableAuthenticationError, StreamLostError

from recovery.dtx.errors import OperationalError
from recovery.dtx.lost import why_refused
from recovery.dtx.with_aio_pika import AioDtxConnection
from recovery.dtx.with_pika import DtxConnection, TxConnection, _parameters
from recovery.pipeline.queues.options import QueueSourceOptions
from recovery.pipeline.queues.queue_intake import QueueIntake
from tests.broker_plugin.coordination.test_stale_answers import ServedByShell

SAID = "refuses the login of user 'guest': give the right user and password in its url"
FREE = "amqp://guest:guest@127.0.0.1:1/"
"""No process listens there."""


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    node = ServedByShell(tmp_path_factory.mktemp("login") / "a")
    node.start()
    yield node.port
    node.stop()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """To wait is to ask again."""

    def wait(seconds: float) -> Any:
        raise AssertionError("the broker is to be asked again")

    monkeypatch.setattr(time, "sleep", wait)
    monkeypatch.setattr(asyncio, "sleep", wait)


@pytest.mark.parametrize("kind", [DtxConnection, TxConnection])
def test_a_wrong_password_is_told_at_once(port: int, waits: None, kind: type[DtxConnection]) -> None:
    """Also where another host of the list is down: this one has answered."""
    with pytest.raises(OperationalError, match=f"^127.0.0.1:{port} {SAID}$") as found:
        kind(FREE, f"amqp://guest:secret@127.0.0.1:{port}/", patience=60.0)
    assert "secret" not in str(found.value)


async def test_a_wrong_password_is_told_at_once_by_aio_pika(port: int, waits: None) -> None:
    with pytest.raises(OperationalError, match=SAID):
        async with AioDtxConnection(f"amqp://guest:secret@127.0.0.1:{port}/", patience=60.0):
            pass


def test_a_virtual_host_that_is_not_there_is_told_at_once(port: int, waits: None) -> None:
    with pytest.raises(OperationalError, match="does not let the user into 'nope': NOT_ALLOWED"):
        DtxConnection(f"amqp://guest:guest@127.0.0.1:{port}/nope", patience=60.0)


def test_a_source_with_a_wrong_password_does_not_speak_of_another_consumer(port: int, waits: None) -> None:
    options = QueueSourceOptions(url=f"amqp://guest:secret@127.0.0.1:{port}/", queue="q")
    with pytest.raises(OperationalError, match=SAID):
        QueueIntake(options, (), 10)


def test_a_host_that_is_lost_while_it_looks_at_the_password_is_lost() -> None:
    """For pika that is an error of the same class."""
    host = _parameters(FREE)
    assert why_refused(ProbableAuthenticationError(repr(StreamLostError("reset"))), host) is None
    assert why_refused(StreamLostError("ConnectionClosedByBroker: (403) 'ACCESS_REFUSED'"), host) is None
