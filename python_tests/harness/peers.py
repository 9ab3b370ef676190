"""What is measured: txha and RabbitMQ, each started for the run on loopback and ended with it."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pika

from python_tests.harness.cluster import LocalCluster, free_base_port

RABBITMQ_BIN = "/usr/lib/rabbitmq/bin"
STOP_SECONDS = 20.0
"""For which a node may end by itself, which one that boots does not."""
HELP = "rabbitmq-server is missing; on Debian: apt-get install rabbitmq-server (and stop the service that it starts)"


@dataclass
class Usage:
    """CPU seconds so far, and resident bytes now, of all processes of a peer."""

    cpu: float
    resident: int


def usage_of(pids: list[int]) -> Usage:
    """Added up over these processes, from /proc."""
    cpu, resident = 0.0, 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        cpu += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        resident += int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
    return Usage(cpu, resident)


class Txha:
    """A cluster of ours."""

    def __init__(self, directory: Path, nodes: int) -> None:
        self._cluster = LocalCluster(directory, nodes)

    def start(self) -> None:
        """Until every node is ready."""
        self._cluster.start()

    def stop(self) -> None:
        """End it."""
        self._cluster.stop()

    @property
    def ports(self) -> list[int]:
        """The primary's: clients of a benchmark connect to where the work is done, as with RabbitMQ's leader."""
        name = self._cluster.primary()
        assert name is not None, "no primary"
        return [self._cluster.ports[int(name.removeprefix("node-")) - 1]]

    def usage(self) -> Usage:
        """Of all nodes."""
        return usage_of([self._cluster.pid(node["name"]) for node in self._cluster.status()])

    def whole(self) -> bool:
        """Whether no node has left the ready set since the start."""
        log = self._cluster.directory.with_name(self._cluster.directory.name + ".err").read_text()
        return "out of the ready set" not in log and "stepping down" not in log


class RabbitMq:
    """Nodes of the installed RabbitMQ, joined to one cluster; queues named ``ha.*`` are mirrored on all."""

    def __init__(self, directory: Path, nodes: int, environment: dict[str, str] | None = None) -> None:
        self._directory = directory
        self._more = environment or {}
        self._count = nodes
        self._base = free_base_port(2 * nodes)
        self._tag = secrets.token_hex(3)
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Until the nodes form a cluster. Raises RuntimeError if there is no RabbitMQ, or if it does not start."""
        if not Path(RABBITMQ_BIN).is_dir():
            raise RuntimeError(HELP)
        (self._directory / "home").mkdir(parents=True)
        cookie = self._directory / "home" / ".erlang.cookie"
        cookie.write_text(secrets.token_hex(20))
        cookie.chmod(0o400)
        for node in range(self._count):
            self._boot(node)
        for node in range(self._count):
            self._await(node)
        for node in range(1, self._count):
            for command in (["stop_app"], ["reset"], ["join_cluster", self._name(0)], ["start_app"]):
                self._control(node, *command)
        if self._count > 1:
            policy = '{"ha-mode":"all","ha-sync-mode":"automatic"}'
            self._control(0, "set_policy", "ha-all", "^ha\\.", policy)

    def stop(self) -> None:
        """End the nodes that were started here, also those that are booting still."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._processes.clear()

    @property
    def ports(self) -> list[int]:
        """The first node's, where the queues are declared and so have their leaders."""
        return [self._base]

    def add_virtual_hosts(self, names: list[str]) -> None:
        """All of them at once, for guest."""
        listed = ",".join(f'<<"{name}">>' for name in names)
        each = 'rabbit_vhost:add(V, N), rabbit_auth_backend_internal:set_permissions(<<"guest">>, V, A, A, A, N)'
        self._control(0, "eval", f'A = <<".*">>, N = <<"none">>, [begin {each} end || V <- [{listed}]].')

    def usage(self) -> Usage:
        """Of all nodes."""
        return usage_of(self.pids())

    def pids(self) -> list[int]:
        """Of all nodes, in their order."""
        return [int(self._control(node, "eval", "os:getpid().").strip().strip('"')) for node in self._nodes()]

    def whole(self) -> bool:
        """Every node is running."""
        return all(self._control(node, "ping", check=False) for node in self._nodes())

    def _nodes(self) -> range:
        return range(self._count)

    def _name(self, node: int) -> str:
        return f"txha-{self._tag}-{node}@localhost"

    def _environment(self, node: int) -> dict[str, str]:
        own = self._directory / f"node-{node}"
        own.mkdir(parents=True, exist_ok=True)
        return {
            **os.environ,
            "PATH": f"{RABBITMQ_BIN}:{os.environ['PATH']}",
            "HOME": str(self._directory / "home"),
            "RABBITMQ_NODENAME": self._name(node),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self._base + node),
            "RABBITMQ_DIST_PORT": str(self._base + self._count + node),
            "RABBITMQ_MNESIA_BASE": str(own / "mnesia"),
            "RABBITMQ_LOG_BASE": str(own / "log"),
            "RABBITMQ_PID_FILE": str(own / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(own / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(own / "none"),
            **self._more,
        }

    def _boot(self, node: int) -> None:
        """In a session of its own, so that Ctrl-C reaches this process alone, which ends what it has started."""
        environment = self._environment(node)
        with self._said(node).open("wb") as said:
            started = subprocess.Popen(
                [f"{RABBITMQ_BIN}/rabbitmq-server"], env=environment, stdin=subprocess.DEVNULL, stdout=said,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        self._processes.append(started)

    def _said(self, node: int) -> Path:
        return self._directory / f"node-{node}" / "said"

    def _await(self, node: int) -> None:
        deadline = time.monotonic() + 90
        while not self._control(node, "await_startup", check=False, told=True):
            if time.monotonic() > deadline or self._processes[node].poll() is not None:
                said = self._said(node).read_text(errors="replace").strip()[-500:]
                raise RuntimeError(f"RabbitMQ node {self._name(node)} did not start: {said}")
            time.sleep(1)

    def _control(self, node: int, *command: str, check: bool = True, told: bool = False) -> str:
        run = subprocess.run(
            [f"{RABBITMQ_BIN}/rabbitmqctl", "-q", "-n", self._name(node), *command],
            env=self._environment(node),
            check=False,
            capture_output=True,
            text=True,
        )
        if check and run.returncode != 0:
            raise RuntimeError(f"rabbitmqctl {command[0]} has failed: {(run.stderr or run.stdout).strip()[-500:]}")
        return (run.stdout or "ok") if run.returncode == 0 else ""


def declare(port: int, names: list[str], quorum: bool) -> None:
    """Durable queues, classic or quorum."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
        channel = connection.channel()
        for name in names:
            channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum"} if quorum else None)


def waiting(port: int, names: list[str]) -> int:
    """How many messages these queues hold."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
        channel = connection.channel()
        return sum(int(channel.queue_declare(name, passive=True).method.message_count) for name in names)


def purge(port: int, names: list[str]) -> None:
    """Empty the queues, so that each round begins alike."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
        channel = connection.channel()
        for name in names:
            channel.queue_purge(name)
