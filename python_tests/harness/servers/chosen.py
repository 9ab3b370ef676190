"""Where tests get their servers from: the packages of this machine, or containers (``TXHA_TEST_SERVERS``)."""

from __future__ import annotations

import os
from pathlib import Path

from python_tests.harness.peers import RabbitMq
from python_tests.harness.servers.postgresql import PostgreSQL

SERVERS = "TXHA_TEST_SERVERS"
LOCAL, CONTAINERS = "local", "containers"


def in_containers() -> bool:
    """Whether servers shall run in containers. Raises ValueError if the variable says neither."""
    found = os.environ.get(SERVERS) or LOCAL
    if found not in (LOCAL, CONTAINERS):
        raise ValueError(f"{SERVERS} is {LOCAL} or {CONTAINERS}, not {found!r}")
    return found == CONTAINERS


def postgresql() -> PostgreSQL:
    """A server that is not started. Raises ``containers.NoEngine``."""
    if not in_containers():
        return PostgreSQL()
    from python_tests.harness.servers.containers import ContainerPostgreSQL, check_engine

    check_engine()
    return ContainerPostgreSQL()


def rabbitmq(directory: Path, nodes: int, environment: dict[str, str] | None = None) -> RabbitMq:
    """Nodes that are not started. Raises ``containers.NoEngine``, and ValueError for several in containers."""
    if not in_containers():
        return RabbitMq(directory, nodes, environment)
    from python_tests.harness.servers.containers import ContainerRabbitMq, check_engine

    check_engine()
    return ContainerRabbitMq(directory, nodes, environment)
