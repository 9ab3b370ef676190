"""PostgreSQL and RabbitMQ in containers, for machines without their packages: the same interfaces as the local ones.

Each container's port is bound to a loopback port that is chosen before, so that a server that was killed comes back
where it was. The images are pinned by their tags, and are of the versions that the local servers are tested with.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import docker
from docker.errors import DockerException
from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import ExecWaitStrategy

from python_tests.harness.peers import RabbitMq, Usage
from python_tests.harness.servers.postgresql import SETTINGS, START_SECONDS, PostgreSQL
from python_tests.harness.waiting import wait_until

LOOPBACK = "127.0.0.1"
POSTGRESQL_IMAGE, POSTGRESQL_PORT = "postgres:15.10", 5432
RABBITMQ_IMAGE, RABBITMQ_PORT = "rabbitmq:3.10.25", 5672
BOOT_SECONDS = 90
POSTGRESQL_ANSWERS = ["pg_isready", "-h", LOOPBACK, "-U", "owner"]
"""By TCP: while the image makes its database, the server listens on a socket of the file system alone."""
RABBITMQ_ANSWERS = ["rabbitmq-diagnostics", "-q", "check_port_connectivity"]


class NoEngine(RuntimeError):
    """No container engine answers; one sentence says what is missing."""


def check_engine() -> None:
    """Raises NoEngine."""
    try:
        client = docker.from_env()
        try:
            client.ping()
        finally:
            client.close()
    except (DockerException, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise NoEngine(f"TXHA_TEST_SERVERS=containers, and no container engine answers: {reason}") from error


class ContainerPostgreSQL(PostgreSQL):
    """The server in a container. There is no ``directory`` with its files on this machine."""

    def __init__(self) -> None:
        super().__init__()
        self._container = postgresql_container(self.port)
        self._runs = False

    def _create(self) -> None:
        self._container.start()
        self._runs = True

    def start(self) -> None:
        """Start it again, if it does not run, and wait until it takes connections."""
        self.start_again()

    def start_again(self) -> None:
        """Start it if it does not run."""
        if not self._runs:
            self._inner.start()
            self._runs = True
        wait_until(self._answers, START_SECONDS, "a connection to PostgreSQL", every=0.05)

    def crash(self) -> None:
        """As ``pg_ctl stop -m immediate`` and a start."""
        self._end("SIGQUIT")
        self.start_again()

    def kill(self) -> None:
        """SIGKILL of every process; nothing is written any more."""
        self._end("SIGKILL")

    def stop_at_once(self) -> None:
        """As ``pg_ctl stop -m immediate``: nothing is written any more, and the next start recovers."""
        self._end("SIGQUIT")

    def __exit__(self, *error: object) -> None:
        self._container.stop()
        shutil.rmtree(self.directory)

    @property
    def _inner(self) -> Any:
        return self._container.get_wrapped_container()

    def _end(self, signal: str) -> None:
        if self._runs:
            self._inner.kill(signal=signal)
            self._inner.wait()
            self._runs = False

    def _check_runs(self) -> None:
        """What has ended is not seen here: a connection to it is waited for until the time is over."""


class ContainerRabbitMq(RabbitMq):
    """One node in a container: several of them would have to find each other by name."""

    def __init__(self, directory: Path, nodes: int, environment: dict[str, str] | None = None) -> None:
        if nodes != 1:
            raise ValueError(f"{nodes} nodes of RabbitMQ cannot run in containers here; unset TXHA_TEST_SERVERS")
        super().__init__(directory, nodes, environment)
        self._container = rabbitmq_container(self.ports[0], environment or {})

    def start(self) -> None:
        """Until it takes connections."""
        self._container.start()

    def stop(self) -> None:
        """End it, and remove what it has written."""
        self._container.stop()

    def usage(self) -> Usage:
        """Raises RuntimeError: what is measured runs on this machine itself."""
        raise RuntimeError("a server in a container is not measured; unset TXHA_TEST_SERVERS")

    def _control(self, node: int, *command: str, check: bool = True, told: bool = False) -> str:
        done = self._container.exec(["rabbitmqctl", "-q", *command])
        output = done.output.decode(errors="replace")
        if check and done.exit_code != 0:
            raise RuntimeError(f"rabbitmqctl {command[0]} has failed: {output.strip()[-500:]}")
        return (output or "ok") if done.exit_code == 0 else ""


def postgresql_container(port: int) -> DockerContainer:
    """Not started. The user ``owner`` needs no password, as with the local server."""
    local = ("listen_addresses", "port", "unix_socket_directories")
    settings = {"listen_addresses": "*", **{key: value for key, value in SETTINGS.items() if key not in local}}
    options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
    made = DockerContainer(POSTGRESQL_IMAGE).with_command(["postgres", *options])
    made = made.with_envs(POSTGRES_USER="owner", POSTGRES_DB="postgres", POSTGRES_HOST_AUTH_METHOD="trust")
    return _listening(made, POSTGRESQL_PORT, port).waiting_for(_until(POSTGRESQL_ANSWERS))


def rabbitmq_container(port: int, environment: dict[str, str]) -> DockerContainer:
    """Not started. ``guest`` may come from anywhere: the image says so, and only loopback leads to it."""
    made = DockerContainer(RABBITMQ_IMAGE).with_envs(**environment)
    return _listening(made, RABBITMQ_PORT, port).waiting_for(_until(RABBITMQ_ANSWERS))


def _listening(container: DockerContainer, inside: int, port: int) -> DockerContainer:
    """On loopback only: the servers ask for no password."""
    container.ports[f"{inside}/tcp"] = (LOOPBACK, port)  # type: ignore[assignment]
    return container


def _until(command: list[str]) -> ExecWaitStrategy:
    return ExecWaitStrategy(command).with_startup_timeout(BOOT_SECONDS)
