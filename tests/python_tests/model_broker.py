"""A broker of a hundred lines and its clients, on a clock of their own: honest, or with one chosen flaw.

Clients are generators; which one steps next is drawn by lot, so anything may happen between any two steps: a kill, a
rest, a count. They write their record as the real clients do. From an honest run the judge must find nothing; for each
flaw there is a promise that it breaks, and the judge must find that one.
"""

from __future__ import annotations

import random
from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from python_tests.harness.history import FAILED, OK, ROLLED_BACK, Attempt, History, Session

INPUT = "in"
OUTPUTS = ("a", "b", "c")
PREFETCH = 3

FLAWS = {
    "commit without one queue": "partial",
    "one queue later than the others": "partial",
    "commit forgotten by a kill": "lost",
    "input gone with the rollback": "lost",
    "input kept by the commit": "duplicated",
    "message twice in a queue": "duplicated",
    "redelivery without the mark": "duplicated",
    "mark on everything": "mismarked",
    "rollback that leaves a message": "phantom",
    "failed commit that happened": "phantom",
    "visible when published": "phantom",
    "message of nobody": "from_nowhere",
    "newest first": "out_of_order",
    "messages of one commit backwards": "out_of_order",
    "counts what is not committed": "miscounted",
    "counts one too few": "miscounted",
}


class Lost(Exception):
    """The client notices that its connection is gone."""


@dataclass(order=True)
class Item:
    place: int
    id: str = field(compare=False)
    redelivered: bool = field(default=False, compare=False)


class Hands:
    """What one consumer was given and has not settled."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.items: list[Item] = []
        self.dead = False


class ModelBroker:
    """Queues in memory. ``flaw`` is one of FLAWS, or empty."""

    def __init__(self, rng: random.Random, flaw: str) -> None:
        self.rng, self.flaw = rng, flaw
        self.queues: dict[str, list[Item]] = {name: [] for name in (INPUT, *OUTPUTS)}
        self.hands: list[Hands] = []
        self.late: list[tuple[str, str]] = []
        self.uncommitted = 0
        self._place = 0

    def bad(self, flaw: str) -> bool:
        """Whether that flaw shows now."""
        return self.flaw == flaw and self.rng.random() < 0.4

    def put(self, queue: str, message: str) -> None:
        """A message becomes visible."""
        self._place += 1
        place = -self._place if self.bad("newest first") else self._place
        insort(self.queues[queue], Item(place, message, self.bad("mark on everything")))
        if self.bad("message twice in a queue"):
            self.put(queue, message)

    def connect(self, queue: str) -> Hands:
        """A consumer comes."""
        self.hands.append(Hands(queue))
        return self.hands[-1]

    def take(self, hands: Hands) -> Item | None:
        """Hand out the first message."""
        if hands.dead or not self.queues[hands.queue]:
            return None
        item = self.queues[hands.queue].pop(0)
        hands.items.append(item)
        return item

    def give_back(self, hands: Hands) -> None:
        """The consumer is gone. What it had returns to its place, marked."""
        for item in hands.items:
            item.redelivered = not self.bad("redelivery without the mark")
            insort(self.queues[hands.queue], item)
        hands.items.clear()
        hands.dead = True

    def commit(self, messages: dict[str, str], acked: Item | None, hands: Hands) -> None:
        """A transaction happens."""
        if hands.dead:
            raise Lost
        entries = list(messages.items())
        self.uncommitted -= len(entries)
        if self.bad("messages of one commit backwards"):
            entries.reverse()
        left_out = OUTPUTS[0] if self.bad("commit without one queue") else None
        later = OUTPUTS[1] if self.bad("one queue later than the others") else None
        for message, queue in entries:
            if queue == later:
                self.late.append((queue, message))
            elif queue != left_out and self.flaw != "visible when published":
                self.put(queue, message)
        if acked is not None:
            hands.items.remove(acked)
            if self.bad("input kept by the commit"):
                insort(self.queues[INPUT], Item(acked.place, acked.id, True))

    def count(self, queue: str) -> int:
        """What it says when asked."""
        true = len(self.queues[queue])
        if self.flaw == "counts what is not committed":
            return true + self.uncommitted
        return max(0, true - 1) if self.bad("counts one too few") else true

    def kill(self) -> None:
        """A survivor takes over: what clients held is free again."""
        for hands in self.hands:
            self.give_back(hands)
        self.hands.clear()
        self.uncommitted = 0
        if self.flaw == "commit forgotten by a kill":
            for name in OUTPUTS:
                self.queues[name] = [item for item in self.queues[name] if item.redelivered]


class Run:
    """One run, drawn from ``rng``; ``history`` is the clients' record of it."""

    def __init__(
        self, rng: random.Random, flaw: str = "", steps: int = 600, kills: int = 2, prefix: str = "", began: float = 0.0
    ) -> None:
        self.now = began
        self.rng = rng
        self.history = History(prefix, clock=lambda: self.now)
        self.broker = ModelBroker(rng, flaw)
        self.draining = False
        self.clients = {f"worker{n}": self.worker(f"worker{n}") for n in range(4)}
        self.clients |= {f"consumer-{queue}": self.consumer(queue) for queue in OUTPUTS}
        self.clients |= {"feeder": self.feeder(), "counter": self.counter()}
        kill_at = {rng.randrange(steps) for _ in range(kills)}
        for step in range(steps):
            if step in kill_at:
                self.kill()
            self.step()
            if self.broker.late and rng.random() < 0.02:
                self.broker.put(*self.broker.late.pop())
        self.drain()

    def tick(self) -> None:
        self.now += self.rng.choice((0.001, 0.01, 0.1))

    def step(self) -> None:
        self.tick()
        next(self.clients[self.rng.choice(sorted(self.clients))])

    def kill(self) -> None:
        self.tick()
        self.history.kills.append(self.now)
        self.broker.kill()

    def drain(self) -> None:
        """No more inputs, kills and rollbacks; until everything is empty and settled."""
        self.draining = True
        for queue, message in self.broker.late:
            self.broker.put(queue, message)
        if self.broker.flaw == "message of nobody":
            self.broker.put(OUTPUTS[0], "who knows")
        for _ in range(100_000):
            self.step()
            held = any(hands.items for hands in self.broker.hands)
            if not held and not self.history.open_attempts() and not any(self.broker.queues.values()):
                return
        raise AssertionError("the model does not come to an end")

    # -- the clients

    def feeder(self) -> Iterator[None]:
        while True:
            if not self.draining:
                attempt = self.history.begin("feeder", plain=True)
                message = self.history.publishing(attempt, INPUT)
                self.history.committing(attempt)
                yield
                if self.rng.random() < 0.9:
                    self.broker.put(INPUT, message)
                    yield
                    self.history.answer(attempt, OK)
                else:
                    if self.rng.random() < 0.5:
                        self.broker.put(INPUT, message)
                    self.history.interrupted(attempt)
            yield

    def worker(self, name: str) -> Iterator[None]:
        lives = 0
        while True:
            lives += 1
            hands = self.broker.connect(INPUT)
            session = self.history.watching(INPUT, name, 1)
            try:
                while True:
                    item = self.broker.take(hands)
                    marked = item is not None and item.redelivered
                    yield
                    if item is not None:
                        self.history.saw(session, item.id, marked)
                        yield from self.transact(f"{name}#{lives}", item, hands)
                    elif hands.dead:
                        raise Lost
            except Lost:
                self.broker.give_back(hands)
                self.history.watched(session, clean=False)
            yield

    def transact(self, channel: str, item: Item, hands: Hands) -> Iterator[None]:
        """One transaction; each way of ending it."""
        end = "commit" if self.draining else self.rng.choice(("commit",) * 6 + ("roll back", "fail", "leave"))
        attempt = self.history.begin(channel, [item.id], on_purpose=end == "roll back")
        try:
            for queue in self.rng.sample(OUTPUTS, 3) * self.rng.choice((1, 1, 2)):
                message = self.history.publishing(attempt, queue)
                self.broker.uncommitted += 1
                if self.broker.flaw == "visible when published":
                    self.broker.put(queue, message)
                yield
                if hands.dead:
                    raise Lost
            yield from self.finish(end, attempt, item, hands)
        finally:
            self.history.interrupted(attempt)

    def finish(self, end: str, attempt: Attempt, item: Item, hands: Hands) -> Iterator[None]:
        if end == "leave":
            raise Lost
        if end == "roll back":
            if self.broker.bad("rollback that leaves a message"):
                self.broker.put(*reversed(next(iter(attempt.messages.items()))))
            self.history.answer(attempt, ROLLED_BACK)
            if self.broker.bad("input gone with the rollback") and item in hands.items:
                hands.items.remove(item)
            raise Lost
        self.history.committing(attempt)
        yield
        if end == "fail":
            if self.broker.bad("failed commit that happened"):
                self.broker.commit(attempt.messages, item, hands)
            self.history.answer(attempt, FAILED)
            raise Lost
        self.broker.commit(attempt.messages, item, hands)
        yield
        if hands.dead:
            raise Lost
        self.history.answer(attempt, OK)

    def consumer(self, queue: str) -> Iterator[None]:
        while True:
            hands, transit = self.broker.connect(queue), []
            session = self.history.watching(queue, f"consumer-{queue}", PREFETCH)
            resting = False
            while not (hands.dead and not transit) and not (resting and not hands.items):
                resting = resting or (not self.draining and self.rng.random() < 0.03)
                if not resting and len(hands.items) < PREFETCH and (item := self.broker.take(hands)):
                    transit.append(replace(item))
                yield
                yield from self.receive(session, hands, transit)
            self.history.watched(session, clean=not hands.dead)
            for _ in range(self.rng.randrange(20)):
                yield

    def receive(self, session: Session, hands: Hands, transit: list[Item]) -> Iterator[None]:
        """What was on its way arrives, and is acknowledged some time later."""
        while transit and self.rng.random() < 0.7:
            item = transit.pop(0)
            self.history.saw(session, item.id, item.redelivered)
            if self.rng.random() < 0.8:
                yield
        if not transit and not hands.dead and self.rng.random() < 0.5:
            hands.items.clear()

    def counter(self) -> Iterator[None]:
        while True:
            for queue in OUTPUTS:
                asked = self.now
                yield
                count = self.broker.count(queue)
                yield
                self.history.counted(queue, count, asked)
