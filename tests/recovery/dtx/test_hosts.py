"""Urls of brokers that cannot be: one sentence, before a client connects, and no password in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika
import pytest

from recovery.coordinator.broker_resource import Broker
from recovery.dtx.errors import ProgrammingError
from recovery.dtx.hosts import urls_in, without_password
from recovery.dtx.with_aio_pika import AioDtxConnection
from recovery.dtx.with_pika import DtxConnection, TxConnection

CLIENTS = [Broker, DtxConnection, TxConnection, AioDtxConnection]
WRONG = [
    "",
    "127.0.0.1:5701",
    "http://127.0.0.1:5701/",
    "amqp://",
    "amqp://host:port/",
    "amqp://host:99999/",
    "amqp://me:hun/ter@host:5701/",
    "amqp://me:hunter@one/,amqp://me:hunter@other/",
    "amqp://me:hunter",
    "amqp://me:hunter/vhost",
    "me:hunter",
]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("url", WRONG)
def test_an_url_that_cannot_be(client: Callable[..., object], url: str) -> None:
    with pytest.raises(ProgrammingError, match="is no url of a broker: one reads amqp://") as told:
        client(url)
    assert "hun" not in str(told.value)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("hosts", [(), (["amqp://one/", "amqp://other/"],), (None,), (5672,), (b"amqp://one/",)])
def test_no_url_in_its_place(client: Callable[..., object], hosts: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError, match=r"a host is needed|each host is an url of its own"):
        client(*hosts)


def test_an_option_that_pika_does_not_know() -> None:
    with pytest.raises(ProgrammingError, match=r"'amqp://me@host/\?beat=1' cannot be used: Unknown URL parameter: 'be"):
        DtxConnection("amqp://me:hunter@host/?beat=1")


def test_pika_s_own_parameters_are_left_to_pika() -> None:
    Broker(pika.ConnectionParameters("host"))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("amqp://me:hunter@host:1/", "amqp://me@host:1/"),
        ("amqp://me:hun/t@er@host:1/", "amqp://me@host:1/"),
        ("amqp://me@corp:hunter@host:1/", "amqp://me@corp@host:1/"),
        ("amqp://m/e:hunter@host:1/", "amqp://m/e@host:1/"),
        ("amqp//me:hunter@host:1/", "amqp//me@host:1/"),
        ("postgresql://me:hun@/ter@host/db", "postgresql://me@host/db"),
        ("amqp://host:1/", "amqp://host:1/"),
        ("amqp://me@host:1/", "amqp://me@host:1/"),
        ("amqp://[::1]:1/", "amqp://[::1]:1/"),
        ("amqp://me:hunter", "amqp://me:…"),
        ("amqp://me:1hunter/", "amqp://me:…"),
        ("me:hunter", "me:…"),
        ("host:5672", "host:5672"),
        ("amqp://host:5672?beat=1", "amqp://host:5672?beat=1"),
        ("amqp://host", "amqp://host"),
    ],
)
def test_a_password_may_hold_any_sign(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_urls_with_commas() -> None:
    assert urls_in(" amqp://a:x@h/,amqps://b:y,z@i/ , amqp://j/") == ["amqp://a:x@h/", "amqps://b:y,z@i/", "amqp://j/"]
