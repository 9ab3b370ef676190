"""What a cluster holds before its nodes are replaced, and must hold in every mixture of versions, and at the end.

A user with a permission, a policy, an exchange with a binding to a queue, a message in that queue, a branch of a
distributed transaction that is prepared, and a cluster call. What is declared first is declared on nodes of the
release; ``more`` is declared in a mixture, at whatever node is primary.
"""

from __future__ import annotations

import time

import pika

from python_tests.harness.pika_clients import PERSISTENT
from python_tests.harness.waiting import wait_until
from python_tests.suites.upgrade.cluster import MixedCluster
from recovery.dtx.lost import connected
from recovery.dtx.with_pika import DtxConnection
from recovery.reader.node_admin import ask
from tests.support.releases import Release
from txobserver.xid import Xid

QUEUE, EXCHANGE, BRANCHES = "kept", "kept.events", "branches"
PASSWORD = "an example that opens nothing else"
WAIT_SECONDS = 30.0
ANSWER_SECONDS = 20.0


class Declared:
    """On one cluster. ``made``: how many times something was declared."""

    def __init__(self, cluster: MixedCluster) -> None:
        self._cluster = cluster
        self.made = 0
        self._branches: list[Xid] = []

    def more(self, release: Release) -> None:
        """Declare one more of each, with the commands of this release."""
        number, cluster = self.made, self._cluster
        cluster.txha("users", "add", f"user-{number}", release=release, given=f"{PASSWORD}\n")
        cluster.txha("permissions", "set", f"user-{number}", "^kept", "^kept", "^kept", release=release)
        definition = f'{{"alternate-exchange": "elsewhere-{number}"}}'
        cluster.txha("policies", "set", f"policy-{number}", f"^nothing-{number}", definition, release=release)
        level = ("info", "warning")[number % 2]
        cluster.txha("calls", "call", "log_level", f"level={level}", "--timeout", "60", release=release)
        self._with_clients(number)
        self.made += 1

    def _with_clients(self, number: int) -> None:
        with pika.BlockingConnection(pika.URLParameters(self._cluster.urls[number % 3])) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.exchange_declare(f"{EXCHANGE}-{number}", "topic", durable=True)
            channel.queue_declare(f"{QUEUE}-{number}", durable=True)
            channel.queue_declare(BRANCHES, durable=True)
            channel.queue_bind(f"{QUEUE}-{number}", f"{EXCHANGE}-{number}", "a.#")
            channel.basic_publish(f"{EXCHANGE}-{number}", "a.b", b"kept", PERSISTENT)
        xid = Xid(1, f"upgrade-{number}".encode(), b"1")
        client = DtxConnection(*self._cluster.urls)
        client.tpc_begin(xid)
        client.channel.basic_publish("", BRANCHES, str(number).encode(), PERSISTENT)
        client.tpc_prepare()
        client.close()
        self._branches.append(xid)

    def missing(self) -> list[str]:
        """What is not there as it must be, as each node tells it, once it has had the time to apply it."""
        end = time.monotonic() + WAIT_SECONDS
        while (found := self._missing_now()) and time.monotonic() < end:
            time.sleep(0.5)
        return found

    def _missing_now(self) -> list[str]:
        cluster, numbers = self._cluster, range(self.made)
        found = []
        for name in cluster.runs:
            for command, kind, asked in (("users.list", "user", {}), ("rules.list", "policy", {"kinds": ["policy"]})):
                there = {each["name"] for each in ask(cluster.directory / name, command, asked, ANSWER_SECONDS)}
                found += [f"{name}: {kind}-{number}" for number in numbers if f"{kind}-{number}" not in there]
            calls = ask(cluster.directory / name, "calls.list", {}, ANSWER_SECONDS)
            if len([each for each in calls if each["operation"] == "log_level"]) < self.made:
                found.append(f"{name}: {len(calls)} of {self.made} calls are remembered")
        for node in cluster.status():
            if node["branches_in_doubt"] != len(self._branches):
                found.append(f"{node['name']}: {node['branches_in_doubt']} of {len(self._branches)} prepared branches")
            for number in numbers:
                if node["queues"].get(f"{QUEUE}-{number}", {}).get("messages") != 1:
                    found.append(f"{node['name']}: the message in {QUEUE}-{number}")
        return found

    def settled(self) -> list[str]:
        """Commit the branches, take everything; what was not there."""
        for xid in self._branches:
            client = DtxConnection(*self._cluster.urls)
            client.tpc_commit(xid)
            client.close()
        found = []
        with connected(pika.URLParameters(self._cluster.urls[0])) as connection:
            channel = connection.channel()
            took = [channel.basic_get(BRANCHES, auto_ack=True)[2] for _ in range(self.made + 1)]
            if sorted(each for each in took if each) != sorted(str(number).encode() for number in range(self.made)):
                found.append(f"the branches hold {took}")
            for number in range(self.made):
                channel.basic_publish(f"{EXCHANGE}-{number}", "a.c", b"later", PERSISTENT)
                bodies = [channel.basic_get(f"{QUEUE}-{number}", auto_ack=True)[2] for _ in range(3)]
                if bodies != [b"kept", b"later", None]:
                    found.append(f"{QUEUE}-{number} holds {bodies}")
        self._branches = []
        return found

    def alike(self) -> list[str]:
        """What the nodes hold differently, when no client is at work."""

        def same() -> bool:
            told = [(each["queues"], each["config_id"], each["outcomes"]) for each in self._cluster.status()]
            return all(each == told[0] for each in told)

        try:
            wait_until(same, WAIT_SECONDS, "the same queues on all nodes", every=0.2)
        except TimeoutError as error:
            return [str(error)]
        return []
