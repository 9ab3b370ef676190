"""Servers in containers, as far as that can be seen without an engine: what it would be asked for, in which order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from _pytest.outcomes import Skipped
from docker.errors import DockerException
from docker.models.containers import ExecResult

from python_tests.harness.peers import RabbitMq
from python_tests.harness.servers import chosen, containers
from python_tests.harness.servers.containers import ContainerPostgreSQL, ContainerRabbitMq, NoEngine
from python_tests.harness.servers.postgresql import SETTINGS, PostgreSQL
from tests.support.servers import running_postgresql


class Engine:
    """Takes what it is asked for, in place of docker's client. A command in a container ends with ``status``."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.created: dict[str, Any] = {}
        self.status = 0
        self.client = SimpleNamespace(close=lambda: None)

    def create(self, image: str, **options: Any) -> Any:
        self.created = {"image": image, **options}
        return SimpleNamespace(
            id="0123456789ab",
            short_id="0123456789",
            start=lambda: self.asked.append("start again"),
            kill=lambda signal: self.asked.append(signal),
            wait=lambda: self.asked.append("wait"),
            remove=lambda **options: self.asked.append("remove"),
            exec_run=self.run,
            logs=lambda **options: b"",
            reload=lambda: None,
            status="running",
        )

    def start(self, container: Any) -> None:
        self.asked.append("start")

    def run(self, cmd: list[str], **options: Any) -> Any:
        self.asked.append(cmd)
        return ExecResult(self.status, b"said")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    engine = Engine()
    monkeypatch.setattr(containers, "BOOT_SECONDS", 1)
    monkeypatch.setattr("testcontainers.core.container.DockerClient", lambda **options: engine)
    monkeypatch.setattr("testcontainers.core.container.c.ryuk_disabled", True)
    monkeypatch.setenv(chosen.SERVERS, chosen.CONTAINERS)
    monkeypatch.setattr(containers.docker, "from_env", lambda: SimpleNamespace(ping=bool, close=lambda: None))
    yield engine


class Database:
    """A connection that takes every statement."""

    def __init__(self, said: list[tuple[str, str]], dsn: str) -> None:
        self._said, self._dsn = said, dsn

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing to close."""

    def close(self) -> None:
        """Nothing to close."""

    def execute(self, statement: str) -> None:
        self._said.append((self._dsn, statement))


def test_postgresql(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[str, str]] = []
    monkeypatch.setattr(psycopg, "connect", lambda dsn, **options: Database(said, dsn))
    with running_postgresql() as server:
        assert isinstance(server, ContainerPostgreSQL)
        assert server.dsn == f"host=127.0.0.1 port={server.port} dbname=bank user=owner", "as of the local one"
        assert [statement for _, statement in said] == ["CREATE DATABASE bank", "CHECKPOINT"]
        assert engine.created["image"] == containers.POSTGRESQL_IMAGE
        assert engine.created["ports"] == {"5432/tcp": ("127.0.0.1", server.port)}, (
            "on loopback, and the same after a kill"
        )
        assert engine.created["environment"] == {
            "POSTGRES_USER": "owner", "POSTGRES_DB": "postgres", "POSTGRES_HOST_AUTH_METHOD": "trust",
        }  # fmt: skip
        command = engine.created["command"]
        assert command[0] == "postgres" and "listen_addresses=*" in command
        settings = {f"{key}={value}" for key, value in SETTINGS.items() if key != "listen_addresses"}
        assert settings <= set(command) and not [word for word in command if word.startswith(("port", "unix_socket"))]
        assert engine.asked == ["start", containers.POSTGRESQL_ANSWERS]
        engine.asked.clear()
        server.kill()
        server.kill()
        server.start_again()
        server.start_again()
        assert engine.asked == ["SIGKILL", "wait", "start again"]
        engine.asked.clear()
        server.crash()
        server.stop_at_once()
        server.start()
        assert engine.asked == ["SIGQUIT", "wait", "start again", "SIGQUIT", "wait", "start again"]
        engine.asked.clear()
    assert engine.asked == ["remove"] and not server.directory.exists()


def test_a_database_that_cannot_be_made_leaves_nothing(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(dsn: str, **options: Any) -> None:
        if options:
            raise psycopg.OperationalError("no room")
        raise AssertionError

    monkeypatch.setattr(ContainerPostgreSQL, "_answers", lambda server: True)
    monkeypatch.setattr(psycopg, "connect", refused)
    server = ContainerPostgreSQL()
    with pytest.raises(psycopg.OperationalError, match="no room"):
        server.__enter__()
    assert engine.asked[-1] == "remove" and not server.directory.exists()


def test_rabbitmq(engine: Engine, tmp_path: Path) -> None:
    peer = chosen.rabbitmq(tmp_path, 1, {"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1"})
    assert isinstance(peer, ContainerRabbitMq)
    peer.start()
    assert engine.created["image"] == containers.RABBITMQ_IMAGE
    assert engine.created["ports"] == {"5672/tcp": ("127.0.0.1", peer.ports[0])}
    assert engine.created["environment"] == {"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1"}
    assert engine.asked == ["start", containers.RABBITMQ_ANSWERS]
    peer.add_virtual_hosts(["one", "two"])
    assert engine.asked[-1][:3] == ["rabbitmqctl", "-q", "eval"] and '<<"one">>,<<"two">>' in engine.asked[-1][3]
    assert peer.whole()
    engine.status = 1
    assert not peer.whole()
    with pytest.raises(RuntimeError, match="rabbitmqctl eval has failed: said"):
        peer.add_virtual_hosts(["one"])
    with pytest.raises(RuntimeError, match="not measured"):
        peer.usage()
    peer.stop()
    assert engine.asked[-1] == "remove"
    with pytest.raises(ValueError, match="3 nodes of RabbitMQ cannot run in containers"):
        chosen.rabbitmq(tmp_path, 3)


def test_images_are_pinned() -> None:
    for image in (containers.POSTGRESQL_IMAGE, containers.RABBITMQ_IMAGE):
        name, _, tag = image.partition(":")
        assert name and tag.replace(".", "").isdigit() and "." in tag, "a release, and not what is the newest"


@pytest.mark.parametrize("found", ["", "local"])
def test_without_a_choice_servers_are_local(found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(chosen.SERVERS, found)
    assert type(chosen.postgresql()) is PostgreSQL and type(chosen.rabbitmq(tmp_path, 3)) is RabbitMq


def test_another_choice_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(chosen.SERVERS, "podman")
    with pytest.raises(ValueError, match="TXHA_TEST_SERVERS is local or containers, not 'podman'"):
        chosen.postgresql()


def test_without_an_engine_tests_are_skipped_with_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise DockerException("connection refused\nmore")

    monkeypatch.setenv(chosen.SERVERS, chosen.CONTAINERS)
    monkeypatch.setattr(containers.docker, "from_env", missing)
    told = "TXHA_TEST_SERVERS=containers, and no container engine answers: connection refused"
    with pytest.raises(Skipped) as skipped, running_postgresql():
        pass
    assert str(skipped.value) == told
    with pytest.raises(NoEngine) as found:
        chosen.rabbitmq(tmp_path, 1)
    assert str(found.value) == told
