"""Draws races by seed: requests that several connections send at once on the same names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, NamedTuple

from python_tests.suites.amqp_programs.program import DROP, Op, Program, Step

QUEUES = ("q1", "q1", "q1", "q2")
EXCHANGE = "e1"
MOST_ORDERS = 40

Turn = tuple[int, Op]
"""Which racer's, and what it sends."""


class Race(NamedTuple):
    """``setup`` is done step by step, then each racer sends its operations at once and none waits for another."""

    setup: Program
    racers: tuple[Step, ...]

    @property
    def program(self) -> Program:
        """All that is sent."""
        return (*self.setup, *self.racers)

    def __str__(self) -> str:
        return "\n".join([*(f"  {step}" for step in self.setup), "at once:", *(f"  {step}" for step in self.racers)])


def orders(race: Race) -> Iterator[tuple[Turn, ...]]:
    """Every order in which the requests may be carried out, each connection's in its own. What is sent before a socket
    is dropped may be lost with it, from any operation on.
    """
    yield from _orders([_lanes(number, step.ops) for number, step in enumerate(race.racers)])


def _lanes(number: int, ops: Sequence[Op]) -> list[tuple[Turn, ...]]:
    turns = tuple((number, op) for op in ops)
    if ops[-1].name != DROP:
        return [turns]
    return [(*turns[:count], turns[-1]) for count in range(len(turns) - 1, -1, -1)]


def _orders(choices: list[list[tuple[Turn, ...]]]) -> Iterator[tuple[Turn, ...]]:
    if not choices:
        yield ()
        return
    for lane in choices[0]:
        for rest in _orders(choices[1:]):
            yield from _merged(lane, rest)


def _merged(one: tuple[Turn, ...], other: tuple[Turn, ...]) -> Iterator[tuple[Turn, ...]]:
    if not one or not other:
        yield (*one, *other)
        return
    for rest in _merged(one[1:], other):
        yield (one[0], *rest)
    for rest in _merged(one, other[1:]):
        yield (other[0], *rest)


class _Requests:
    """What racers send. ``queue`` and ``exchange``: how those are declared; ``held``: racers that have got a message,
    ``tagged``: those that consumed before.
    """

    def __init__(self, lot: Random, consumers: bool, queue: dict[str, Any], exchange: dict[str, Any]) -> None:
        self._lot = lot
        self._consumers = consumers
        self.queue = queue
        self.exchange = exchange
        self.held: set[str] = set()
        self.tagged: set[str] = set()
        self._bodies = 0

    def body(self) -> str:
        self._bodies += 1
        return f"m{self._bodies}"

    def _flags(self, **chances: float) -> dict[str, Any]:
        return {name: True for name, chance in chances.items() if self._lot.random() < chance}

    def bind(self, name: str) -> Op:
        queue = name if name.startswith("q") else self._lot.choice(QUEUES)
        return Op(1, "queue.bind", {"queue": queue, "exchange": EXCHANGE, "key": "k"})

    def unbind(self, name: str) -> Op:
        return Op(1, "queue.unbind", {"queue": self._lot.choice(QUEUES), "exchange": EXCHANGE, "key": "k"})

    def declare(self, name: str) -> Op:
        how = {"passive": True} if self._lot.random() < 0.2 else self.queue
        return Op(1, "queue.declare", {"queue": self._lot.choice(QUEUES), **how})

    def delete(self, name: str) -> Op:
        flags = self._flags(if_empty=0.5, if_unused=0.7 if self._consumers else 0.2)
        return Op(1, "queue.delete", {"queue": self._lot.choice(QUEUES), **flags})

    def declare_exchange(self, name: str) -> Op:
        return Op(1, "exchange.declare", {"exchange": EXCHANGE, **self.exchange})

    def delete_exchange(self, name: str) -> Op:
        return Op(1, "exchange.delete", {"exchange": EXCHANGE, **self._flags(if_unused=0.6)})

    def renew(self, name: str) -> list[Op]:
        """Deleted and declared anew: what others do to it is done to the old one or to the new one."""
        if self._lot.random() < 0.7:
            delete = Op(1, "exchange.delete", {"exchange": EXCHANGE, "if_unused": True})
            return [delete, self.declare_exchange(name)]
        delete = self.delete(name)
        return [delete, Op(1, "queue.declare", {"queue": delete.arguments["queue"], **self.queue})]

    def publish(self, name: str) -> Op:
        # An auto-delete exchange goes a moment behind its last binding, and is there for what is published before.
        through = not self.exchange["auto_delete"] and self._lot.random() < 0.4
        exchange, key = (EXCHANGE, "k") if through else ("", "q1")
        where = {"exchange": exchange, "key": key}
        return Op(1, "basic.publish", {**where, "body": self.body(), **self._flags(mandatory=0.8)})

    def get(self, name: str) -> Op:
        return Op(1, "basic.get", {"queue": self._lot.choice(QUEUES), **self._flags(no_ack=0.6)})

    def purge(self, name: str) -> Op:
        return Op(1, "queue.purge", {"queue": self._lot.choice(QUEUES)})

    def settle(self, name: str) -> Op:
        if name not in self.held:
            return self.publish(name)
        method = self._lot.choice(("basic.ack", "basic.nack", "basic.reject"))
        more = {} if method == "basic.ack" else self._flags(requeue=0.7)
        return Op(1, method, {"delivery": [0], **more})

    def consume(self, name: str) -> Op:
        where = {"queue": self._lot.choice(QUEUES), "tag": self._lot.choice(("t1", "t2"))}
        # The end of an auto-delete queue may come a moment behind its last consumer's, and another one before it.
        exclusive = {} if self.queue["auto_delete"] else self._flags(exclusive=0.4)
        return Op(1, "basic.consume", {**where, **exclusive})

    def cancel(self, name: str) -> Op:
        return Op(1, "basic.cancel", {"tag": f"old {name}" if name in self.tagged else "t1"})


class _Draw:
    """One race. Either queues have consumers, or messages are sent; otherwise it is open which consumer gets what."""

    def __init__(self, seed: int) -> None:
        lot = self._lot = Random(f"amqp race {seed}")
        self._consumers = lot.random() < 0.35
        self._names = ("a", "b", "c") if lot.random() < 0.25 else ("a", "b")
        often = 0.6 if self._consumers else 0.1
        queue: dict[str, Any] = {"durable": lot.random() < 0.6, "auto_delete": lot.random() < often}
        if lot.random() < 0.1:
            queue.update(exclusive=True, durable=False)
        kind = lot.choice(("direct", "fanout"))
        exchange = {"type": kind, "durable": lot.random() < 0.5, "auto_delete": lot.random() < 0.4}
        self._requests = _Requests(lot, self._consumers, queue, exchange)
        self._transactional: set[str] = set()
        self._kinds = WITH_CONSUMERS if self._consumers else lot.choice((WITH_GETS, WITH_DELETIONS))
        if not self._consumers and Random(f"with gets {seed}").random() < 0.4:  # other seeds draw as before
            self._kinds = WITH_BOTH

    def race(self) -> Race:
        setup = tuple(self._setup())
        while True:
            race = Race(setup, tuple(self._racer(name) for name in self._names))
            if sum(1 for _ in zip(range(MOST_ORDERS + 1), orders(race), strict=False)) <= MOST_ORDERS:
                return race

    def _setup(self) -> Iterator[Step]:
        lot = self._lot
        ops = [Op(1, "exchange.declare", {"exchange": EXCHANGE, **self._requests.exchange})]
        ops += [
            Op(1, "queue.declare", {"queue": name, **self._requests.queue})
            for name in ("q1", "q2")
            if lot.random() < 0.85
        ]
        yield Step("a", tuple(ops))
        for op in ops[1:]:
            if lot.random() < 0.6:
                yield Step("a", (self._requests.bind(op.arguments["queue"]),))
        if not self._consumers:
            for _ in range(lot.randrange(3)):
                yield Step("a", (Op(1, "basic.publish", {"exchange": "", "key": "q1", "body": self._requests.body()}),))
        for name in self._names:
            yield from self._prepared(name)

    def _prepared(self, name: str) -> Iterator[Step]:
        lot = self._lot
        if self._consumers:
            if lot.random() < 0.35:
                self._requests.tagged.add(name)
                yield Step(name, (Op(1, "basic.consume", {"queue": "q1", "tag": f"old {name}"}),))
            return
        if lot.random() < 0.3:
            self._requests.held.add(name)
            yield Step(name, (Op(1, "basic.get", {"queue": "q1"}),))
        if lot.random() < 0.5:
            yield Step(name, (Op(1, "confirm.select", {}),))
        elif lot.random() < 0.3:
            self._transactional.add(name)
            yield Step(name, (Op(1, "tx.select", {}),))

    def _racer(self, name: str) -> Step:
        lot = self._lot
        ops = []
        for _ in range(lot.choice((1, 1, 2, 2, 3))):
            drawn = getattr(self._requests, lot.choice(self._kinds))(name)
            ops += drawn if isinstance(drawn, list) else [drawn]
        if name in self._transactional:
            ops.append(Op(1, "tx.commit", {}))
        if lot.random() < 0.25 and not self._requeues_and_publishes(name, ops):
            close = {"code": 200, "text": "bye"}
            ends = (Op(1, "channel.close", close), Op(0, "connection.close", close), Op(0, DROP, {}), Op(0, DROP, {}))
            ops.append(lot.choice(ends))
        return Step(name, tuple(ops))

    def _requeues_and_publishes(self, name: str, ops: list[Op]) -> bool:
        """What a connection held comes back when it ends, which may be before its last publishes have been taken."""
        holds = name in self._requests.held or any(
            op.name == "basic.get" and not op.arguments.get("no_ack") for op in ops
        )
        return holds and any(op.name == "basic.publish" for op in ops)


COMMON = ("declare", "bind", "bind", "unbind", "declare_exchange", "delete_exchange")
MESSAGES = (*COMMON, *("publish",) * 4, "purge", "settle", "settle")
WITH_GETS = (*MESSAGES, *("get",) * 3)
WITH_DELETIONS = (*MESSAGES, *("delete",) * 3, "renew", "renew")
WITH_BOTH = (*WITH_DELETIONS, *("get",) * 3)
WITH_CONSUMERS = (*COMMON, *("delete",) * 2, "renew", "renew", *("consume",) * 4, *("cancel",) * 2)


def draw(seed: int) -> Race:
    """The race of this seed."""
    return _Draw(seed).race()
