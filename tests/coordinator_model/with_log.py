"""Applications whose coordinators decide in a log; they may fork, and name the log by a link."""

from __future__ import annotations

import random
from typing import Any

from recovery.coordinator.broker_resource import Broker
from recovery.coordinator.coordinator import Coordinator
from recovery.coordinator.decision_log import DecisionLog
from recovery.coordinator.decisions import ENDED_KEPT
from recovery.coordinator.postgresql import Postgresql
from recovery.coordinator.recover import recover
from recovery.coordinator.resources import Resource
from tests.coordinator_model.applications import Application, Expected, forked
from tests.coordinator_model.disk import LOG_NAME
from tests.coordinator_model.schedule import Process
from tests.coordinator_model.truth import PROTECTION, Attempt, Effect
from tests.coordinator_model.world import MACHINE, World

KINDS = ["consume", "consume", "read", "notify", "foreign", "temporary", "hold", "fail", "late", "raise", "read"]


class WithLog(Application):
    """``linked``: it names the log by a symbolic link. ``forks``: a child made behind the log's opening works, too."""

    at_the_disk = True

    def __init__(self, world: World, number: int, plan: random.Random) -> None:
        super().__init__(world, number, plan)
        self.linked = plan.random() < 0.4
        self.forks = plan.random() < 0.35
        self.compact_bytes = plan.choice((1, 1, 200, 600, 1 << 20))

    def open_log(self, user: str, linked: bool) -> DecisionLog:
        """As this user, by this name. Raises StoreError.

        Where it matters how long the log remembers what has ended, no process makes it smaller by a clock that is far
        ahead: all that use a log are on one machine, whose one clock is not set by days in these few seconds.
        """
        path = self.world.directory / ("etc" if linked else "data") / LOG_NAME
        process = self.world.schedule.current
        is_far_ahead = process is not None and process.skew > ENDED_KEPT and self.world.remembers
        return DecisionLog(path, 1 << 20 if is_far_ahead else self.compact_bytes, self.world.files(user))

    def live(self) -> None:
        log = self.open_log("app", self.linked)
        if self.forks:
            self.forks = False
            child = Process(f"child of {self.number}", "app", MACHINE, self.skew)
            inherited = forked(log, self.world.files("app"))
            self.world.schedule.spawn(child, lambda: self._work(inherited))
        self._work(log)

    def _work(self, log: DecisionLog) -> None:
        inbox: list[tuple[int, bytes]] = []
        try:
            patience = self.plan.choice((0.0, 1.0))
            coordinator = Coordinator(log, self.broker(inbox), Postgresql(self.dsn), patience)
            while self.work_left:
                self.work_left -= 1
                self.transact(coordinator, self.operations(KINDS), inbox)
            coordinator.close()
        finally:
            log.close()

    def transact(self, coordinator: Coordinator, operations: list[str], inbox: list[tuple[int, bytes]]) -> Attempt:
        """One transaction."""
        attempt = self.new_attempt(operations)

        def work() -> None:
            with coordinator.transaction() as t:
                attempt.names.add(t.name)
                for name in operations:
                    self._do(name, attempt, t, inbox)

        self.attempt(attempt, work)
        return attempt

    def _do(self, name: str, attempt: Attempt, t: Any, inbox: list[tuple[int, bytes]]) -> None:
        if name == "raise":
            raise Expected
        if name in ("publish", "consume"):
            self.at_broker(name, attempt, t.broker, inbox)
        else:
            self.in_database(name, attempt, t.database.execute)
            tx = t.database.session.tx
            if name == "read" and tx.isolation == "serializable":
                attempt.effects.append(Effect(PROTECTION, lambda: int(tx.committed)))

    def probe(self) -> Attempt:
        log = self.open_log("app", self.linked)
        coordinator = Coordinator(log, self.broker([]), Postgresql(self.dsn))
        attempt = self.transact(coordinator, ["insert", "publish"], [])
        coordinator.close()
        log.close()
        return attempt

    # -- recovery

    def recover(self, chance: random.Random, whole: bool, grace: float, forget: bool = False) -> Any:
        """A run, as root or as the application, by any name of the log. ``whole``: over all there is."""
        user = chance.choice(("root", "app"))
        log = self.open_log(user, linked=chance.random() < 0.5)
        addresses: dict[str, Resource] = {host: self.broker_at(host) for host in self.world.clusters}
        host, name = ("pooler", "app") if self.pooled else ("db", "bank")
        addresses["database"] = Postgresql(f"host={host} dbname={name} user=owner")
        names = list(addresses)
        chance.shuffle(names)
        if not whole and chance.random() < 0.3:
            names.pop()
        try:
            return recover(log, {each: addresses[each] for each in names}, grace, forget)
        finally:
            for each in addresses.values():
                each.close()
            log.close()

    def broker_at(self, host: str) -> Any:
        """A cluster as a resource."""
        return Broker(f"amqp://guest:guest@{host}:5672/", patience=1.0)
