"""Brokers that the suite has not started: clients connect by URL, and a command makes and heals each kind of fault."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable, Mapping, Sequence

from python_tests.harness.history import History
from python_tests.harness.pika_clients import parameters
from python_tests.harness.stress.fault import Fault
from python_tests.harness.stress.site import ANY, BACKUP, PRIMARY
from recovery.dtx.lost import LOST, connected

COMMAND_SECONDS = 120


class CommandFault(Fault):
    """A shell command makes it, another one heals it. STRESS_NODE is the number of the target, STRESS_URL its URL."""

    def __init__(self, kind: str, target: str, url: str, make: str, heal: str | None) -> None:
        super().__init__(target)
        self._kind = kind
        self._make = make
        self._heal = heal
        self._environment = {**os.environ, "STRESS_NODE": target, "STRESS_URL": url}
        self._made = False

    def begin(self) -> str:
        self._made = self._run(self._make)
        return f"{self._kind} of {self.target}" + ("" if self._made else " (the command failed)")

    def heal(self) -> bool:
        healed = self._heal is None or self._run(self._heal)
        return self._made and healed

    def _run(self, command: str) -> bool:
        try:
            done = subprocess.run(
                command,
                shell=True,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=COMMAND_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0


class Foreign:
    """Nodes have numbers from 1 on, in the order of their URLs. Who is primary is not known."""

    cluster_wide: frozenset[str] = frozenset()
    settle = 6.0  # a RabbitMQ under load may count too few messages, and take seconds to give back what a client had

    def __init__(self, urls: Sequence[str], make: Mapping[str, str], heal: Mapping[str, str]) -> None:
        self.urls = list(urls)
        self.names = [str(number + 1) for number in range(len(urls))]
        self._make = make
        self._heal = heal

    def fault(
        self, kind: str, target: str, history: History, chance: random.Random, say: Callable[[str], None]
    ) -> tuple[Fault, str]:
        """See ``Site``."""
        name = chance.choice(self.names) if target in (PRIMARY, BACKUP, ANY) else target
        url = self.urls[self.names.index(name)]
        return CommandFault(kind, name, url, self._make[kind], self._heal.get(kind)), ""

    def healthy(self) -> bool:
        """See ``Site``: every one of them lets a client in."""
        try:
            for url in self.urls:
                connected(parameters(url)).close()
        except LOST:
            return False
        return True
