"""Draws programs by seed. The same seed draws the same program.

What RabbitMQ promises no order for is not drawn: a channel has consumers of one queue only; where consumers may get
something, what is sent at once is all publishes (none of which can end the channel: a delivery may come before that or
not) or all acknowledgements; channels that publish at once publish to different queues.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from python_tests.suites.amqp_programs import illegal, values
from python_tests.suites.amqp_programs.program import DROP, Op, Program, Step, octets_of
from python_tests.suites.amqp_programs.values import EXCHANGES, KEYS, PLAIN_KEYS, QUEUES, UNORDERED

CONNECTIONS = ("a", "a", "a", "b", "b", "c")
CHANNELS = (1, 2, 3)
BOUND = (*EXCHANGES, "amq.direct", "amq.topic", "amq.headers", "amq.fanout")


class Generator:
    """One program."""

    def __init__(self, seed: int) -> None:
        self._lot = Random(f"amqp program {seed}")
        self._queues = {name: values.queue_flavour(self._lot) for name in QUEUES}
        self._exchanges = {
            name: values.exchange_flavour(self._lot, tuple(other for other in EXCHANGES if other != name))
            for name in EXCHANGES
        }
        self._consuming: dict[str, set[tuple[str, int]]] = {}
        self._home = {(name, number): self._lot.choice(QUEUES) for name in "abc" for number in CHANNELS}
        self._bodies = 0
        self._at_once_now = False
        self._where = ("a", 1)

    def program(self) -> Program:
        """Declarations first, then steps of every kind."""
        lot = self._lot
        steps = [self._beginning()]
        for _ in range(lot.randrange(6, 28)):
            self._where = (lot.choice(CONNECTIONS), lot.choice(CHANNELS))
            steps.append(self._step())
        return tuple(steps)

    def _beginning(self) -> Step:
        lot = self._lot
        queues = lot.sample(QUEUES, lot.randrange(1, 5))
        exchanges = lot.sample(EXCHANGES, lot.randrange(4))
        ops = [self._op("queue.declare", queue=name, **self._queues[name]) for name in queues]
        if lot.random() < 0.5:
            ops.append(self._op("queue.declare", queue=UNORDERED, durable=lot.random() < 0.5))
        ops += [self._op("exchange.declare", exchange=name, **self._exchanges[name]) for name in exchanges]
        for name in exchanges:
            drawn = values.binding(lot)
            ops.append(self._op("queue.bind", queue=lot.choice(queues), exchange=name, **drawn))
        return Step("a", tuple(ops))

    def _step(self) -> Step:
        lot, (connection, channel) = self._lot, self._where
        drawn = lot.random()
        writes = lot.choice((1, 1, 1, 2, 3))
        if drawn < 0.52:
            return Step(connection, (self._any(),), 0, writes)
        if drawn < 0.72:
            return Step(connection, self._at_once(), 0, writes)
        if drawn < 0.83:
            return Step(connection, self._interleaved(), lot.randrange(1, 1000), writes)
        if drawn < 0.90:
            return Step(connection, self._and_close(), 0, writes)
        if drawn < 0.93:
            return Step(connection, self._and_drop(), 0, writes)
        ops = tuple(lot.choice(illegal.KINDS)(lot, channel))
        if len(ops) == 1 and lot.random() < 0.3 and not self._consuming:
            ops = (self._publish(exchange="", key=lot.choice(QUEUES)), *ops)
        return Step(connection, ops, 0, writes)

    # -- steps of more than one operation

    def _at_once(self) -> tuple[Op, ...]:
        lot = self._lot
        count = lot.randrange(2, 7)
        if self._consuming:
            if lot.random() < 0.5:
                return tuple(self._ack() for _ in range(count))
            return tuple(self._publish(exchange="", key=lot.choice(QUEUES)) for _ in range(count))
        self._at_once_now = True
        ops = [self._any(of=UNORDERED_SAFE) for _ in range(count)]
        ops.append(lot.choice((self._any(of=LAST), ops[0])))
        self._at_once_now = False
        return tuple(ops)

    def _interleaved(self) -> tuple[Op, ...]:
        lot = self._lot
        if lot.random() < 0.4:
            return self._twins()
        queues = lot.sample(QUEUES, 3)
        ops = []
        for channel, queue in zip(CHANNELS[: lot.randrange(2, 4)], queues, strict=False):
            for _ in range(lot.randrange(1, 4)):
                ops.append(self._publish(channel, exchange="", key=queue))
        return tuple(ops)

    def _twins(self) -> tuple[Op, ...]:
        """Publishes that differ in their channels and bodies only: nothing but the number of its frames tells whose
        content one is.
        """
        common = {"exchange": "", "key": UNORDERED, "properties": {}, "size": 40}
        fixed = {"mandatory": False, "frames": 1, "empty": False}
        return tuple(self._publish(channel, **common, **fixed) for channel in (1, 1, 2, 2))

    def _and_close(self) -> tuple[Op, ...]:
        """Publishes, maybe one of them unfinished, and the end of the channel or connection behind them. Some wait for
        a declaration.
        """
        lot, (connection, channel) = self._lot, self._where
        free = [name for name in QUEUES if not self._consuming.get(name)] or ["nobody"]
        ops = [self._op("queue.declare", queue="q5", durable=True, nowait=True)] if lot.random() < 0.4 else []
        ops += [self._publish(exchange="", key=lot.choice([*free, "q5"])) for _ in range(lot.randrange(8))]
        if lot.random() < 0.6:
            if lot.random() < 0.3:
                ops.append(self._publish(cut=lot.choice((1, 2))))
            self._over(connection, None)
            return (*ops, Op(0, "connection.close", {"code": 200, "text": "bye"}))
        self._over(connection, channel)
        return (*ops, Op(channel, "channel.close", {"code": 200, "text": "bye"}))

    def _and_drop(self) -> tuple[Op, ...]:
        """The socket is dropped: between two frames, in the middle of a frame, or of a message."""
        lot, (connection, channel) = self._lot, self._where
        ops = [self._publish(cut=lot.choice((1, 2)))] if lot.random() < 0.4 else []
        if lot.random() < 0.5:
            frame = octets_of([self._publish(exchange="", key=lot.choice(QUEUES), properties={}, size=0)], 0)
            ops.append(Op(channel, "octets", {"hex": frame[: lot.randrange(1, 20)].hex()}))
        self._over(connection, None)
        return (*ops, Op(0, DROP, {}))

    def _over(self, connection: str, channel: int | None) -> None:
        for queue, consumers in list(self._consuming.items()):
            left = {each for each in consumers if each[0] != connection or channel not in (None, each[1])}
            self._consuming[queue] = left
            if not left:
                del self._consuming[queue]

    # -- operations

    def _any(self, of: tuple[tuple[str, int], ...] = ()) -> Op:
        of = of or OPERATIONS
        name = self._lot.choices([name for name, _ in of], [weight for _, weight in of])[0]
        op: Op = getattr(self, f"_{name}")()
        return op

    def _op(self, name: str, **arguments: Any) -> Op:
        return Op(self._where[1], name, arguments)

    def _queue(self) -> str:
        return self._lot.choice((*QUEUES, *QUEUES, *QUEUES, "$0", "$0" if self._at_once_now else ""))

    def _exchange(self) -> str:
        return self._lot.choice((*EXCHANGES, *EXCHANGES, *BOUND))

    def _declare_queue(self, name: str = "") -> Op:
        lot = self._lot
        if not name and lot.random() < 0.12:
            return self._op("queue.declare", queue="", **values.queue_flavour(lot))
        name = name or lot.choice(QUEUES)
        if lot.random() < 0.2:
            return self._op("queue.declare", queue=name, passive=True)
        flavour = self._queues[name] if lot.random() < 0.85 else values.queue_flavour(lot)
        return self._op("queue.declare", queue=name, **flavour, **self._nowait())

    def _declare_exchange(self, name: str = "") -> Op:
        lot = self._lot
        name = name or lot.choice(EXCHANGES)
        if lot.random() < 0.2:
            return self._op("exchange.declare", exchange=name, passive=True)
        flavour = self._exchanges[name] if lot.random() < 0.85 else values.exchange_flavour(lot, EXCHANGES)
        return self._op("exchange.declare", exchange=name, **flavour, **self._nowait())

    def _nowait(self) -> dict[str, Any]:
        return {"nowait": True} if self._lot.random() < 0.08 else {}

    def _flags(self, *names: str, chance: float = 0.3) -> dict[str, Any]:
        return {name: True for name in names if self._lot.random() < chance}

    def _delete_queue(self) -> Op:
        return self._op("queue.delete", queue=self._queue(), **self._flags("if_unused", "if_empty"), **self._nowait())

    def _delete_exchange(self) -> Op:
        return self._op("exchange.delete", exchange=self._lot.choice(EXCHANGES), **self._flags("if_unused"))

    def _purge(self) -> Op:
        return self._op("queue.purge", queue=self._queue())

    def _bind(self) -> Op:
        drawn = values.binding(self._lot)
        return self._op("queue.bind", queue=self._queue(), exchange=self._exchange(), **drawn, **self._nowait())

    def _unbind(self) -> Op:
        return self._op("queue.unbind", queue=self._queue(), exchange=self._exchange(), **values.binding(self._lot))

    def _bind_exchange(self) -> Op:
        source, destination = self._lot.sample(BOUND, 2)
        return self._op("exchange.bind", destination=destination, source=source, **values.binding(self._lot))

    def _unbind_exchange(self) -> Op:
        source, destination = self._lot.sample(BOUND, 2)
        return self._op("exchange.unbind", destination=destination, source=source, key=self._lot.choice(KEYS))

    def _publish(self, channel: int = 0, **fixed: Any) -> Op:
        lot = self._lot
        self._bodies += 1
        where: dict[str, Any] = {"exchange": "", "key": lot.choice(QUEUES)}
        if lot.random() < 0.4:
            where = {"exchange": self._exchange(), "key": lot.choice(PLAIN_KEYS)}
        if lot.random() < 0.03:
            where["key"] = "\xff\xfe"
        drawn = {"body": f"m{self._bodies}", **values.size(lot), "properties": values.properties(lot)}
        return Op(channel or self._where[1], "basic.publish", {**where, **drawn, **self._flags("mandatory"), **fixed})

    def _get(self) -> Op:
        return self._op("basic.get", queue=self._queue(), **self._flags("no_ack"))

    def _consume(self) -> Op:
        lot, queue = self._lot, self._home[self._where]
        self._consuming.setdefault(queue, set()).add(self._where)
        tag = lot.choice(("", "t1", "t1", "t2"))
        more = self._flags("no_ack") if tag else {}
        return self._op("basic.consume", queue=queue, tag=tag, **more, **self._flags("exclusive", chance=0.1))

    def _cancel(self) -> Op:
        return self._op("basic.cancel", tag=self._lot.choice(("$", "t1", "t1", "t2", "unknown")))

    def _ack(self) -> Op:
        return self._op("basic.ack", delivery=[self._lot.randrange(4)], **self._flags("multiple"))

    def _ack_all(self) -> Op:
        return self._op("basic.ack", delivery=0, multiple=True)

    def _nack(self) -> Op:
        flags = self._flags("multiple", "requeue", chance=0.5)
        return self._op("basic.nack", delivery=[self._lot.randrange(4)], **flags)

    def _reject(self) -> Op:
        return self._op("basic.reject", delivery=[self._lot.randrange(4)], **self._flags("requeue", chance=0.6))

    def _qos(self) -> Op:
        return self._op("basic.qos", count=self._lot.choice((0, 1, 2, 5)), **{"global": self._lot.random() < 0.4})

    def _recover(self) -> Op:
        return self._op("basic.recover", requeue=True)

    def _recover_async(self) -> Op:
        return self._op("basic.recover-async", requeue=True)

    def _select(self) -> Op:
        return self._op(self._lot.choice(("tx.select", "tx.select", "confirm.select")))

    def _commit(self) -> Op:
        return self._op("tx.commit")

    def _rollback(self) -> Op:
        return self._op("tx.rollback")

    def _flow(self) -> Op:
        return self._op("channel.flow", active=True)

    def _close_channel(self) -> Op:
        self._over(*self._where)
        return self._op("channel.close", code=200, text="bye")

    def _close_connection(self) -> Op:
        self._over(self._where[0], None)
        return Op(0, "connection.close", {"code": 200, "text": "bye"})


OPERATIONS = (
    ("declare_queue", 8),
    ("declare_exchange", 6),
    ("delete_queue", 4),
    ("delete_exchange", 3),
    ("purge", 2),
    ("bind", 7),
    ("unbind", 4),
    ("bind_exchange", 3),
    ("unbind_exchange", 1),
    ("publish", 16),
    ("get", 8),
    ("consume", 8),
    ("cancel", 3),
    ("ack", 5),
    ("ack_all", 1),
    ("nack", 3),
    ("reject", 3),
    ("qos", 3),
    ("recover", 1),
    ("recover_async", 1),
    ("select", 4),
    ("commit", 3),
    ("rollback", 2),
    ("flow", 1),
    ("close_channel", 2),
    ("close_connection", 2),
)
LAST = (("consume", 1), ("commit", 2), ("publish", 3), ("get", 2))
UNORDERED_SAFE = tuple(
    (name, weight)
    for name, weight in OPERATIONS
    if name not in ("consume", "commit", "close_channel", "close_connection", "flow")
)
"""What may be sent at once with others on one channel."""


def generate(seed: int) -> Program:
    """The program of this seed."""
    ordered = _without_gets_of_what_is_unordered(Generator(seed).program())
    return _without_queues_behind_publishes(_without_limits_behind_gets(ordered))


def _each(program: Program, change: Callable[[str, Op], Op]) -> Program:
    """The program with each operation changed, in order; ``change`` is told whose connection it is on."""
    return tuple(step._replace(ops=tuple(change(step.connection, op) for op in step.ops)) for step in program)


def _without_gets_of_what_is_unordered(program: Program) -> Program:
    """Several channels publish to that queue at once, so which message is its first is open. A request without a
    queue's name means the one that its channel has declared last.
    """
    declared: dict[tuple[str, int], object] = {}

    def change(connection: str, op: Op) -> Op:
        where = (connection, op.channel)
        if op.name == "queue.declare":
            declared[where] = op.arguments["queue"]
        elif op.name == "basic.get" and not op.arguments["queue"] and declared.get(where) == UNORDERED:
            return op._replace(arguments={**op.arguments, "queue": QUEUES[0]})
        return op

    return _each(program, change)


def _without_limits_behind_gets(program: Program) -> Program:
    """See ``gets-in-a-channel-s-limit``: a channel that has got a message limits its consumers one by one."""
    got: set[tuple[str, int]] = set()

    def change(connection: str, op: Op) -> Op:
        where = (connection, op.channel)
        if op.name == "basic.get" and not op.arguments.get("no_ack"):
            got.add(where)
        elif op.name == "basic.qos" and op.arguments.get("global") and where in got:
            return op._replace(arguments={**op.arguments, "global": False})
        return op

    return _each(program, change)


def _without_queues_behind_publishes(program: Program) -> Program:
    """See ``queues-behind-a-transaction-s-publish``: such a queue is declared passively, which makes none."""
    transactions: dict[tuple[str, int], set[object]] = {}
    there: set[object] = set()

    def change(connection: str, op: Op) -> Op:
        where, queue = (connection, op.channel), op.arguments.get("queue")
        if op.name == "tx.select":
            transactions.setdefault(where, set())
        elif op.name in ("tx.commit", "tx.rollback") and where in transactions:
            transactions[where].clear()
        elif op.name == "basic.publish" and where in transactions and not op.arguments.get("exchange"):
            transactions[where].add(op.arguments.get("key"))
        elif op.name == "queue.delete":
            there.discard(queue)
        elif op.name == "queue.declare" and not op.arguments.get("passive"):
            if queue not in there and any(queue in keys for keys in transactions.values()):
                return op._replace(arguments={**op.arguments, "passive": True})
            there.add(queue)
        return op

    return _each(program, change)
