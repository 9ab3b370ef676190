"""Draws programs by seed. The same seed draws the same program.

What RabbitMQ promises no order for is not drawn: a channel has consumers of one queue only; where consumers may get
something, what is sent at once is all publishes (none of which can end the channel: a delivery may come before that or
not) or all acknowledgements; channels that publish at once publish to different queues.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from python_tests.suites.amqp_programs import illegal, values
from python_tests.suites.amqp_programs.operations import (
    CHANNELS,
    LAST,
    OPERATIONS,
    UNORDERED_SAFE,
    Draft,
    Messages,
    Modes,
    Topology,
    kinds_of,
)
from python_tests.suites.amqp_programs.program import DROP, Op, Program, Step, octets_of
from python_tests.suites.amqp_programs.values import EXCHANGES, QUEUES, UNORDERED

CONNECTIONS = ("a", "a", "a", "b", "b", "c")


class Generator:
    """One program."""

    def __init__(self, seed: int) -> None:
        self._lot = Random(f"amqp program {seed}")
        self._draft = Draft(self._lot)
        self._topology = Topology(self._draft)
        self._messages = Messages(self._draft)
        self._kinds = kinds_of(self._topology, self._messages, Modes(self._draft))

    def program(self) -> Program:
        """Declarations first, then steps of every kind."""
        lot = self._lot
        steps = [self._beginning()]
        for _ in range(lot.randrange(6, 28)):
            self._draft.where = (lot.choice(CONNECTIONS), lot.choice(CHANNELS))
            steps.append(self._step())
        return tuple(steps)

    def _beginning(self) -> Step:
        lot = self._lot
        queues = lot.sample(QUEUES, lot.randrange(1, 5))
        exchanges = lot.sample(EXCHANGES, lot.randrange(4))
        ops = [self._draft.op("queue.declare", queue=name, **self._topology.queues[name]) for name in queues]
        if lot.random() < 0.5:
            ops.append(self._draft.op("queue.declare", queue=UNORDERED, durable=lot.random() < 0.5))
        ops += [
            self._draft.op("exchange.declare", exchange=name, **self._topology.exchanges[name]) for name in exchanges
        ]
        for name in exchanges:
            drawn = values.binding(lot)
            ops.append(self._draft.op("queue.bind", queue=lot.choice(queues), exchange=name, **drawn))
        return Step("a", tuple(ops))

    def _step(self) -> Step:
        lot, (connection, channel) = self._lot, self._draft.where
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
        if len(ops) == 1 and lot.random() < 0.3 and not self._draft.consuming:
            ops = (self._messages.publish(exchange="", key=lot.choice(QUEUES)), *ops)
        return Step(connection, ops, 0, writes)

    def _any(self, of: tuple[tuple[str, int], ...] = ()) -> Op:
        of = of or OPERATIONS
        name = self._lot.choices([name for name, _ in of], [weight for _, weight in of])[0]
        return self._kinds[name]()

    # -- steps of more than one operation

    def _at_once(self) -> tuple[Op, ...]:
        lot = self._lot
        count = lot.randrange(2, 7)
        if self._draft.consuming:
            if lot.random() < 0.5:
                return tuple(self._messages.ack() for _ in range(count))
            return tuple(self._messages.publish(exchange="", key=lot.choice(QUEUES)) for _ in range(count))
        self._draft.at_once = True
        ops = [self._any(of=UNORDERED_SAFE) for _ in range(count)]
        ops.append(lot.choice((self._any(of=LAST), ops[0])))
        self._draft.at_once = False
        return tuple(ops)

    def _interleaved(self) -> tuple[Op, ...]:
        lot = self._lot
        if lot.random() < 0.4:
            return self._twins()
        queues = lot.sample(QUEUES, 3)
        ops = []
        for channel, queue in zip(CHANNELS[: lot.randrange(2, 4)], queues, strict=False):
            for _ in range(lot.randrange(1, 4)):
                ops.append(self._messages.publish(channel, exchange="", key=queue))
        return tuple(ops)

    def _twins(self) -> tuple[Op, ...]:
        """Publishes that differ in their channels and bodies only: nothing but the number of its frames tells whose
        content one is.
        """
        common = {"exchange": "", "key": UNORDERED, "properties": {}, "size": 40}
        fixed = {"mandatory": False, "frames": 1, "empty": False}
        return tuple(self._messages.publish(channel, **common, **fixed) for channel in (1, 1, 2, 2))

    def _and_close(self) -> tuple[Op, ...]:
        """Publishes, maybe one of them unfinished, and the end of the channel or connection behind them. Some wait for
        a declaration.
        """
        lot, (connection, channel) = self._lot, self._draft.where
        free = [name for name in QUEUES if not self._draft.consuming.get(name)] or ["nobody"]
        ops = [self._draft.op("queue.declare", queue="q5", durable=True, nowait=True)] if lot.random() < 0.4 else []
        ops += [self._messages.publish(exchange="", key=lot.choice([*free, "q5"])) for _ in range(lot.randrange(8))]
        if lot.random() < 0.6:
            if lot.random() < 0.3:
                ops.append(self._messages.publish(cut=lot.choice((1, 2))))
            self._draft.over(connection, None)
            return (*ops, Op(0, "connection.close", {"code": 200, "text": "bye"}))
        self._draft.over(connection, channel)
        return (*ops, Op(channel, "channel.close", {"code": 200, "text": "bye"}))

    def _and_drop(self) -> tuple[Op, ...]:
        """The socket is dropped: between two frames, in the middle of a frame, or of a message."""
        lot, (connection, channel) = self._lot, self._draft.where
        ops = [self._messages.publish(cut=lot.choice((1, 2)))] if lot.random() < 0.4 else []
        if lot.random() < 0.5:
            frame = octets_of([self._messages.publish(exchange="", key=lot.choice(QUEUES), properties={}, size=0)], 0)
            ops.append(Op(channel, "octets", {"hex": frame[: lot.randrange(1, 20)].hex()}))
        self._draft.over(connection, None)
        return (*ops, Op(0, DROP, {}))


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
