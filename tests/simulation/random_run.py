"""A random run of a whole cluster in memory, judged by what its clients were told and what every node holds.

One seed is one run: clients publish, transact, roll back; nodes are killed, restarted, wiped, frozen, cut off; messages
and compare-and-sets are lost or late; the primary's log is reclaimed. At the end everything heals, and the promises
are checked. The oracles of the cluster (P2, P6, P11) watch every answer on the way.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.ha.memory_cluster import MemoryCluster, MemoryNode
from tests.ha.memory_host import text
from txobserver.ledger import Observer

QUEUES = ("q0", "q1", "q2")


@dataclass
class Attempt:
    """A transaction as its client knows it: the queues it publishes to, the message it takes, its outcome."""

    name: str
    queues: tuple[str, ...]
    takes: tuple[str, str] | None
    observer: Observer
    host: object
    sent: bool = False
    outcome: str = "open"


@dataclass
class RandomRun:
    """One run. ``faults`` is how often something breaks, per turn."""

    seed: int
    turns: int = 400
    faults: float = 0.04
    attempts: list[Attempt] = field(default_factory=list)
    published: dict[str, str] = field(default_factory=dict)
    published_ok: set[str] = field(default_factory=set)
    journal: list[str] = field(default_factory=list)

    def run(self) -> MemoryCluster:
        """The run, then healing, then the judgement. Raises AssertionError with the journal's end."""
        self.random = random.Random(self.seed)
        size = self.random.choice([2, 3, 3, 4, 5])
        min_ready = self.random.choice([1, 1, 2])
        self.cluster = MemoryCluster(size, checkpoint_every=0.5, min_ready=min_ready).settled()
        host = self.cluster.primary.host
        for queue in QUEUES:
            self.cluster.primary.report(lambda q=queue: host.declare(q))  # type: ignore[misc]
        self.cluster.run(lambda: all(host.answer(f"declare {queue}") == "ok" for queue in QUEUES))
        self.cluster.lose = self._lose
        self.lossy = 0.0
        try:
            for _ in range(self.turns):
                self._turn()
            self._heal()
            self._judge()
        except AssertionError as error:
            raise AssertionError(f"seed {self.seed}: {error}\n" + "\n".join(self.journal[-25:])) from error
        return self.cluster

    # -- what happens

    def _turn(self) -> None:
        if self.random.random() < 0.5:
            self._client()
        if self.random.random() < self.faults:
            action = self.random.choice(self._faults())
            self.journal.append(f"{self.cluster.now:.2f} {action.__name__}")
            action()
        self.cluster.turn()
        if self.random.random() < 0.1:
            self.cluster.check_agreement()
            self._check_whole()

    def _client(self) -> None:
        nodes = [n for n in self.cluster.nodes.values() if n.host.ledger and n.name not in self.cluster.frozen]
        if not nodes:
            return
        node = self.random.choice(nodes)
        mine = [a for a in self.attempts if a.outcome == "open" and not a.sent and a.host is node.host]
        step = self.random.random()
        if step < 0.25:
            self._publish(node)
        elif step < 0.55 or not mine:
            self._begin(node)
        elif step < 0.9:
            self._commit(node, self.random.choice(mine))
        else:
            attempt = self.random.choice(mine)
            attempt.outcome = "rolled back"
            node.report(attempt.observer.rollback)

    def _publish(self, node: MemoryNode) -> None:
        name, queue = f"m{len(self.published)}", self.random.choice(QUEUES)
        self.published[name] = queue
        ledger, number = node.host.ledger, node.host.number(queue)
        assert ledger is not None

        def done(error: str | None) -> None:
            if error is None:
                self.published_ok.add(name)
                self.cluster.check_durable(node, name)

        node.report(lambda: ledger.publish([number], text(name), done))

    def _begin(self, node: MemoryNode) -> None:
        host = node.host
        assert host.ledger is not None
        observer = host.ledger.begin()
        queues = tuple(self.random.sample(QUEUES, self.random.randint(1, 3)))
        attempt = Attempt(f"t{len(self.attempts)}", queues, None, observer, host)
        self.attempts.append(attempt)
        for queue in queues:
            number = host.number(queue)
            node.report(lambda n=number: observer.enqueue([n], text(attempt.name)))  # type: ignore[misc]
        taken = {a.takes for a in self.attempts if a.takes and a.outcome in ("open", "ok")}
        queue = self.random.choice(QUEUES)
        free = [b for b in host.bodies(queue) if (queue, b) not in taken]
        if free and self.random.random() < 0.5:
            attempt.takes = (queue, free[0])
            number, entry = host.number(queue), host.entry(queue, free[0])
            node.report(lambda: observer.dequeue(number, [entry]))

    def _commit(self, node: MemoryNode, attempt: Attempt) -> None:
        attempt.sent = True

        def done(error: str | None) -> None:
            attempt.outcome = "ok" if error is None else "failed"
            if error is None:
                self.cluster.check_durable(node, attempt.name)

        node.report(lambda: attempt.observer.commit(done))

    # -- what breaks

    def _faults(self) -> list[Callable[[], None]]:
        return [
            *(self._kill, self._restart, self._restart, self._freeze, self._thaw, self._cut, self._heal_links),
            self._hold_cas,
            self._free_cas,
            self._lose_cas,
            self._lose_messages,
            self._lose_nothing,
            self._wipe,
            self._reclaim,
            self._kill_all,
        ]

    def _some(self) -> str:
        return self.random.choice(sorted(self.cluster.disks))

    def _kill(self) -> None:
        name = self._some()
        if name in self.cluster.nodes:
            self.cluster.kill(name)

    def _kill_all(self) -> None:
        if self.random.random() < 0.3:
            for name in list(self.cluster.nodes):
                self.cluster.kill(name)

    def _restart(self) -> None:
        name = self._some()
        if name not in self.cluster.nodes:
            self.cluster.frozen.discard(name)
            self.cluster.start(name)

    def _wipe(self) -> None:
        """A disk is lost: only while another member of the ready set keeps its own (P2)."""
        record = self.cluster.coordination.record
        name = self._some()
        assert record is not None
        keepers = {m.node for m in record.ready if self.cluster.disks[m.node].incarnation == m.incarnation} - {name}
        pending = any(e.expected for _, e in self.cluster.cas)
        if keepers and not pending and name not in self.cluster.nodes and not self._lonely_promotion(name):
            self.cluster.start(name, wipe=True)

    def _lonely_promotion(self, name: str) -> bool:
        """Whether some primary may be about to acknowledge with this disk as the only copy."""
        record = self.cluster.coordination.record
        return record is None or len(record.ready) < 2 or any(m.node == name for m in record.ready)

    def _freeze(self) -> None:
        self.cluster.frozen.add(self._some())

    def _thaw(self) -> None:
        self.cluster.frozen.clear()

    def _cut(self) -> None:
        self.cluster.partition(self._some())

    def _heal_links(self) -> None:
        self.cluster.heal()

    def _hold_cas(self) -> None:
        self.cluster.cas_held.add(self._some())

    def _free_cas(self) -> None:
        self.cluster.cas_held.clear()

    def _lose_cas(self) -> None:
        """The answer to a compare-and-set is lost, or the request is, or it lands later."""
        if self.cluster.cas:
            node, effect = self.random.choice(self.cluster.cas)
            node.report(lambda: node.core.on_cas_failed(effect))
            if self.random.random() < 0.5:
                self.cluster.cas.remove((node, effect))
                if self.random.random() < 0.5:
                    self.cluster.land(node, effect, report=False)
            else:
                self.cluster.cas[self.cluster.cas.index((node, effect))] = (node, effect)
                self.cluster.late.append((node, effect))
                self.cluster.cas.remove((node, effect))

    def _lose_messages(self) -> None:
        self.lossy = 0.02

    def _lose_nothing(self) -> None:
        self.lossy = 0.0

    def _lose(self, source: str, target: str, message: object) -> bool:
        return self.lossy > 0 and self.random.random() < self.lossy

    def _reclaim(self) -> None:
        for node in self.cluster.nodes.values():
            applied = node.disk.base.meta.applied.sequence
            node.disk.frames = (
                [f for f in node.disk.frames if f.last > applied] if not node.writes else node.disk.frames
            )
            node.core.log_first = node.disk.log_first

    # -- the end

    def _heal(self) -> None:
        cluster = self.cluster
        self.lossy = 0.0
        cluster.frozen.clear()
        cluster.cas_held.clear()
        cluster.late.clear()
        cluster.heal()
        for name in cluster.disks:
            if name not in cluster.nodes:
                cluster.start(name)
        cluster.run(self._calm, seconds=60)
        cluster.pause(0.5)
        cluster.run(self._calm, seconds=60)

    def _calm(self) -> bool:
        """Everyone is ready and in step; what a lost acknowledgement held up has been resolved by a timeout."""
        nodes = self.cluster.nodes.values()
        return self.cluster.all_ready() and len({n.core.replica.applied for n in nodes}) == 1

    def _judge(self) -> None:
        cluster = self.cluster
        cluster.check_agreement()
        assert len({n.core.replica.applied for n in cluster.nodes.values()}) == 1, "P12: not in step"
        self._check_whole()
        visible = {(queue, body) for queue in QUEUES for body in cluster.primary.host.bodies(queue)}
        taken = {a.takes for a in self.attempts if a.takes and self._present(a, visible) is not False}
        for name, queue in self.published.items():
            if name in self.published_ok:
                assert (queue, name) in visible or (queue, name) in taken, f"P2: {name} is lost"
        for attempt in self.attempts:
            if attempt.outcome == "ok":
                for queue in attempt.queues:
                    assert (queue, attempt.name) in visible or (queue, attempt.name) in taken, f"P2: {attempt} is lost"
                assert attempt.takes not in visible, f"P1: {attempt} left what it took"
            elif attempt.outcome in ("rolled back", "failed") or not attempt.sent:
                assert not any((q, attempt.name) in visible for q in attempt.queues), f"P4: {attempt} is visible"

    def _present(self, attempt: Attempt, visible: set[tuple[str, str]]) -> bool | None:
        if attempt.outcome == "ok":
            return True
        return None if attempt.sent and attempt.outcome == "open" else False

    def _check_whole(self) -> None:
        """P1 on every node that serves: all of a transaction's messages, or none, but for those taken by others."""
        taken = {a.takes for a in self.attempts if a.takes}
        for node in self.cluster.nodes.values():
            if not node.host.ledger:
                continue
            visible = {(queue, body) for queue in QUEUES for body in node.host.bodies(queue)}
            for attempt in self.attempts:
                parts = [(q, attempt.name) for q in attempt.queues]
                found = [part in visible for part in parts if part not in taken]
                assert not found or all(found) or not any(found), f"P1: half of {attempt} at {node.name}"
