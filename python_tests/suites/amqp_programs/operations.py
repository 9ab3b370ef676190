"""The operations that a program consists of, each drawn by itself: on the topology, with messages, and of channels."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from python_tests.suites.amqp_programs import values
from python_tests.suites.amqp_programs.program import Op
from python_tests.suites.amqp_programs.values import EXCHANGES, KEYS, PLAIN_KEYS, QUEUES

CHANNELS = (1, 2, 3)
BOUND = (*EXCHANGES, "amq.direct", "amq.topic", "amq.headers", "amq.fanout")


class Draft:
    """A program that is being drawn by ``lot``.

    ``where``: connection and channel of the next operation. ``at_once``: whether it is sent at once with others.
    ``consuming``: the channels that consume from each queue.
    """

    def __init__(self, lot: Random) -> None:
        self.lot = lot
        self.where = ("a", 1)
        self.at_once = False
        self.consuming: dict[str, set[tuple[str, int]]] = {}

    def op(self, name: str, **arguments: Any) -> Op:
        """On the channel of the moment."""
        return Op(self.where[1], name, arguments)

    def queue(self) -> str:
        """The name of a queue, or the last one that was named by the broker."""
        return self.lot.choice((*QUEUES, *QUEUES, *QUEUES, "$0", "$0" if self.at_once else ""))

    def exchange(self) -> str:
        """The name of an exchange."""
        return self.lot.choice((*EXCHANGES, *EXCHANGES, *BOUND))

    def nowait(self) -> dict[str, Any]:
        """Whether no answer is wanted: seldom."""
        return {"nowait": True} if self.lot.random() < 0.08 else {}

    def flags(self, *names: str, chance: float = 0.3) -> dict[str, Any]:
        """Which of these are set."""
        return {name: True for name in names if self.lot.random() < chance}

    def over(self, connection: str, channel: int | None) -> None:
        """The channel ends, or all of a connection where it is None, and its consumers with it."""
        for queue, consumers in list(self.consuming.items()):
            left = {each for each in consumers if each[0] != connection or channel not in (None, each[1])}
            self.consuming[queue] = left
            if not left:
                del self.consuming[queue]


class Topology:
    """Queues, exchanges and bindings. ``queues`` and ``exchanges``: how each is mostly declared in this program."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        lot = self._lot = draft.lot
        self.queues = {name: values.queue_flavour(lot) for name in QUEUES}
        self.exchanges = {
            name: values.exchange_flavour(lot, tuple(other for other in EXCHANGES if other != name))
            for name in EXCHANGES
        }

    def declare_queue(self, name: str = "") -> Op:
        """A queue, mostly of the flavour that it has in this program."""
        lot = self._lot
        if not name and lot.random() < 0.12:
            return self._draft.op("queue.declare", queue="", **values.queue_flavour(lot))
        name = name or lot.choice(QUEUES)
        if lot.random() < 0.2:
            return self._draft.op("queue.declare", queue=name, passive=True)
        flavour = self.queues[name] if lot.random() < 0.85 else values.queue_flavour(lot)
        return self._draft.op("queue.declare", queue=name, **flavour, **self._draft.nowait())

    def declare_exchange(self, name: str = "") -> Op:
        """An exchange, mostly of the flavour that it has in this program."""
        lot = self._lot
        name = name or lot.choice(EXCHANGES)
        if lot.random() < 0.2:
            return self._draft.op("exchange.declare", exchange=name, passive=True)
        flavour = self.exchanges[name] if lot.random() < 0.85 else values.exchange_flavour(lot, EXCHANGES)
        return self._draft.op("exchange.declare", exchange=name, **flavour, **self._draft.nowait())

    def delete_queue(self) -> Op:
        """queue.delete."""
        return self._draft.op(
            "queue.delete",
            queue=self._draft.queue(),
            **self._draft.flags("if_unused", "if_empty"),
            **self._draft.nowait(),
        )

    def delete_exchange(self) -> Op:
        """exchange.delete."""
        return self._draft.op("exchange.delete", exchange=self._lot.choice(EXCHANGES), **self._draft.flags("if_unused"))

    def purge(self) -> Op:
        """queue.purge."""
        return self._draft.op("queue.purge", queue=self._draft.queue())

    def bind(self) -> Op:
        """queue.bind."""
        drawn = values.binding(self._lot)
        return self._draft.op(
            "queue.bind", queue=self._draft.queue(), exchange=self._draft.exchange(), **drawn, **self._draft.nowait()
        )

    def unbind(self) -> Op:
        """queue.unbind."""
        return self._draft.op(
            "queue.unbind",
            queue=self._draft.queue(),
            exchange=self._draft.exchange(),
            **values.binding(self._lot),
        )

    def bind_exchange(self) -> Op:
        """exchange.bind."""
        source, destination = self._lot.sample(BOUND, 2)
        return self._draft.op("exchange.bind", destination=destination, source=source, **values.binding(self._lot))

    def unbind_exchange(self) -> Op:
        """exchange.unbind."""
        source, destination = self._lot.sample(BOUND, 2)
        return self._draft.op("exchange.unbind", destination=destination, source=source, key=self._lot.choice(KEYS))


class Messages:
    """Publishes, gets, consumers and acknowledgements. Each channel consumes from one queue only, its home."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._lot = draft.lot
        self._home = {(name, number): draft.lot.choice(QUEUES) for name in "abc" for number in CHANNELS}
        self._bodies = 0

    def publish(self, channel: int = 0, **fixed: Any) -> Op:
        """basic.publish of a body of its own; ``fixed`` is not drawn."""
        lot = self._lot
        self._bodies += 1
        where: dict[str, Any] = {"exchange": "", "key": lot.choice(QUEUES)}
        if lot.random() < 0.4:
            where = {"exchange": self._draft.exchange(), "key": lot.choice(PLAIN_KEYS)}
        if lot.random() < 0.03:
            where["key"] = "\xff\xfe"
        drawn = {"body": f"m{self._bodies}", **values.size(lot), "properties": values.properties(lot)}
        return Op(
            channel or self._draft.where[1],
            "basic.publish",
            {**where, **drawn, **self._draft.flags("mandatory"), **fixed},
        )

    def get(self) -> Op:
        """basic.get."""
        return self._draft.op("basic.get", queue=self._draft.queue(), **self._draft.flags("no_ack"))

    def consume(self) -> Op:
        """basic.consume, from the home of the channel."""
        lot, queue = self._lot, self._home[self._draft.where]
        self._draft.consuming.setdefault(queue, set()).add(self._draft.where)
        tag = lot.choice(("", "t1", "t1", "t2"))
        more = self._draft.flags("no_ack") if tag else {}
        return self._draft.op(
            "basic.consume", queue=queue, tag=tag, **more, **self._draft.flags("exclusive", chance=0.1)
        )

    def cancel(self) -> Op:
        """basic.cancel."""
        return self._draft.op("basic.cancel", tag=self._lot.choice(("$", "t1", "t1", "t2", "unknown")))

    def ack(self) -> Op:
        """basic.ack of a delivery."""
        return self._draft.op("basic.ack", delivery=[self._lot.randrange(4)], **self._draft.flags("multiple"))

    def ack_all(self) -> Op:
        """basic.ack of all."""
        return self._draft.op("basic.ack", delivery=0, multiple=True)

    def nack(self) -> Op:
        """basic.nack."""
        flags = self._draft.flags("multiple", "requeue", chance=0.5)
        return self._draft.op("basic.nack", delivery=[self._lot.randrange(4)], **flags)

    def reject(self) -> Op:
        """basic.reject."""
        return self._draft.op(
            "basic.reject", delivery=[self._lot.randrange(4)], **self._draft.flags("requeue", chance=0.6)
        )

    def qos(self) -> Op:
        """basic.qos."""
        return self._draft.op("basic.qos", count=self._lot.choice((0, 1, 2, 5)), **{"global": self._lot.random() < 0.4})

    def recover(self) -> Op:
        """basic.recover."""
        return self._draft.op("basic.recover", requeue=True)

    def recover_async(self) -> Op:
        """basic.recover-async."""
        return self._draft.op("basic.recover-async", requeue=True)


class Modes:
    """What concerns a channel or a connection as a whole: its mode, transactions, flow, and its end."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._lot = draft.lot

    def select(self) -> Op:
        """Transactions or confirms."""
        return self._draft.op(self._lot.choice(("tx.select", "tx.select", "confirm.select")))

    def commit(self) -> Op:
        """tx.commit."""
        return self._draft.op("tx.commit")

    def rollback(self) -> Op:
        """tx.rollback."""
        return self._draft.op("tx.rollback")

    def flow(self) -> Op:
        """channel.flow."""
        return self._draft.op("channel.flow", active=True)

    def close_channel(self) -> Op:
        """channel.close."""
        self._draft.over(*self._draft.where)
        return self._draft.op("channel.close", code=200, text="bye")

    def close_connection(self) -> Op:
        """connection.close."""
        self._draft.over(self._draft.where[0], None)
        return Op(0, "connection.close", {"code": 200, "text": "bye"})


def kinds_of(topology: Topology, messages: Messages, modes: Modes) -> dict[str, Callable[[], Op]]:
    """By the names in ``OPERATIONS``."""
    whose = {name: part for part in (topology, messages, modes) for name, _ in OPERATIONS if hasattr(part, name)}
    return {name: getattr(part, name) for name, part in whose.items()}


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
