"""The people of a world: operators who decide branches, administrators, and readers of the report of a recovery run."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import suppress

import psycopg

from recovery.coordinator.decision_log import read_decisions
from recovery.coordinator.recover import Report
from tests.coordinator_model.brokers import Cluster
from tests.coordinator_model.disk import LOG_NAME, Disk
from tests.coordinator_model.pg_server import Server
from tests.coordinator_model.taken_back import TakenBack
from tests.coordinator_model.truth import Truth
from txobserver.ports.store import StoreDamaged


class People:
    """What they do is told to the truth, which does not hold the product to what they have decided."""

    def __init__(
        self,
        chance: random.Random,
        server: Server,
        clusters: Mapping[str, Cluster],
        disk: Disk,
        truth: Truth,
        standbys: TakenBack,
        note: Callable[[str], None],
    ) -> None:
        self._chance = chance
        self._server = server
        self._clusters = clusters
        self._disk = disk
        self._truth = truth
        self._standbys = standbys
        self._note = note

    def operate(self) -> None:
        """An operator decides a branch that is prepared, or forgets one that was decided so; or an administrator."""
        cluster = self._chance.choice(list(self._clusters.values()))
        if self._server.prepared and self._chance.random() < 0.3:
            self._administer()
        elif cluster.heuristic() and self._chance.random() < 0.6:
            cluster.forget(self._chance.choice(cluster.heuristic()))
        elif cluster.prepared():
            xid, commit = self._chance.choice(cluster.prepared()), self._chance.random() < 0.4
            cluster.operate(xid, commit)
            self._touch(xid.gtrid.decode(), commit)
            if self._chance.random() < 0.6:
                cluster.forget(xid)

    def _administer(self) -> None:
        found = self._chance.choice(list(self._server.prepared.values()))
        if not found.busy:
            commit, name = self._chance.random() < 0.4, psycopg.Xid.from_string(found.gid).gtrid
            self._server.settle(found, commit)
            self._touch(name, commit)
            if name in self._ended():
                self._truth.reported.add(name)  # of a branch that came back with a standby: it is not looked for again
            elif not commit:
                self._standbys.rolled_back(found.gid, name)

    def excuse(self) -> None:
        """Commits that have ended by an answer that a standby took back, before the branch was rolled back."""
        self._truth.reported |= self._standbys.ended & self._ended()

    def _ended(self) -> set[str]:
        """Commits that every participant had carried out, as the log says; of a damaged one none, and its users will
        tell."""
        log = self._disk.directory / LOG_NAME
        with suppress(StoreDamaged):
            return set(read_decisions(log)[2]) if log.exists() else set()
        return set()

    def _touch(self, name: str, commit: bool) -> None:
        """Of a commit against the decision no trace is left once the operator makes it forget, who knows of it."""
        self._note(f"decided by people: {name} {'commit' if commit else 'rollback'}")
        self._truth.interfered.add(name)
        if commit:
            self._truth.reported.add(name)

    def take_report(self, report: Report) -> None:
        """An operator has read it."""
        self._truth.reported |= {row.transaction for row in (*report.contradicted, *report.not_known)}
