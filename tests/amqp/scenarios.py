"""What clients do, step by step. What RabbitMQ 3.10.8 answered is in ``rabbitmq_3_10.json`` (see ``play.py``)."""

from __future__ import annotations

from typing import Any, NamedTuple

from pamqp import body, commands, header
from pamqp.commands import Basic, Channel, Confirm, Connection, Exchange, Queue, Tx


class Step(NamedTuple):
    """Frames that one connection sends on one channel."""

    connection: str
    channel: int
    frames: tuple[Any, ...]


def on(channel: int, *frames: Any, connection: str = "a") -> Step:
    """A step of connection a."""
    return Step(connection, channel, frames)


def other(channel: int, *frames: Any) -> Step:
    """A step of connection b."""
    return Step("b", channel, frames)


def publish(exchange: str, key: str, data: bytes, mandatory: bool = False, **properties: Any) -> tuple[Any, ...]:
    """A publish with its content."""
    head = header.ContentHeader(0, len(data), commands.Basic.Properties(**properties))
    method = Basic.Publish(0, exchange, key, mandatory)
    return (method, head, body.ContentBody(data)) if data else (method, head)


def queue(name: str, durable: bool = True, **more: Any) -> Queue.Declare:
    return Queue.Declare(queue=name, durable=durable, **more)


def passive(name: str) -> Queue.Declare:
    return Queue.Declare(queue=name, passive=True)


def arguments(**values: Any) -> dict[str, Any]:
    return {key.replace("_", "-"): value for key, value in values.items()}


def get(name: str, no_ack: bool = False) -> Basic.Get:
    return Basic.Get(queue=name, no_ack=no_ack)


def consume(name: str, tag: str, **more: Any) -> Basic.Consume:
    return Basic.Consume(queue=name, consumer_tag=tag, **more)


def filled(name: str, count: int, durable: bool = True) -> list[Step]:
    """A queue with messages m1, m2, ..."""
    steps = [on(1, queue(name, durable))]
    return steps + [on(1, *publish("", name, b"m%d" % number)) for number in range(1, count + 1)]


def declare_scenarios(durable: bool) -> dict[str, list[Step]]:
    """Declarations, equivalence and deletion, for durable and for transient queues."""
    kind = "durable" if durable else "transient"
    return {
        f"declare {kind} queue": [
            on(1, queue("q", durable)),
            on(1, passive("q")),
            on(1, queue("q", durable)),
            on(1, queue("q", not durable)),
        ],
        f"{kind} queue with arguments": [
            on(1, queue("q", durable, arguments=arguments(x_message_ttl=60000, x_max_length=10))),
            on(1, queue("q", durable, arguments=arguments(x_message_ttl=60000, x_max_length=10))),
            on(1, queue("q", durable, arguments=arguments(x_message_ttl=60001, x_max_length=10))),
            on(2, queue("q", durable)),
            on(3, queue("q", durable, arguments=arguments(x_message_ttl=60000, x_max_length=10, foo="bar"))),
        ],
        f"{kind} argument that was not there": [
            on(1, queue("q", durable)),
            on(1, queue("q", durable, arguments=arguments(x_overflow="drop-head"))),
        ],
        f"auto-delete differs, {kind}": [
            on(1, queue("q", durable)),
            on(1, queue("q", durable, auto_delete=True)),
        ],
        f"delete {kind} queue": [
            *filled("q", 3, durable),
            on(1, get("q")),
            on(1, Queue.Delete(queue="q")),
            on(1, Queue.Delete(queue="q")),
            on(1, passive("q")),
        ],
        f"delete {kind} queue if empty": [
            *filled("q", 1, durable),
            on(1, Queue.Delete(queue="q", if_empty=True)),
            on(2, Queue.Purge(queue="q")),
            on(2, Queue.Delete(queue="q", if_empty=True)),
        ],
        f"delete {kind} queue if unused": [
            on(1, queue("q", durable)),
            on(1, consume("q", "c")),
            on(2, Queue.Delete(queue="q", if_unused=True)),
            on(1, Basic.Cancel("c")),
            on(3, Queue.Delete(queue="q", if_unused=True)),
        ],
        f"deleting a {kind} queue cancels its consumers": [
            on(1, queue("q", durable)),
            on(1, consume("q", "c")),
            on(2, Queue.Delete(queue="q")),
            on(1, Basic.Cancel("c")),
        ],
        f"purge {kind} queue": [
            *filled("q", 3, durable),
            on(1, get("q")),
            on(1, Queue.Purge(queue="q")),
            on(1, passive("q")),
            on(1, Basic.Nack(1, False, True)),
            on(1, get("q")),
        ],
        f"auto-delete {kind} queue goes with its last consumer": [
            on(1, queue("q", durable, auto_delete=True)),
            on(1, consume("q", "c")),
            on(1, consume("q", "d")),
            on(1, Basic.Cancel("c")),
            on(1, passive("q")),
            on(1, Basic.Cancel("d")),
            on(1, passive("q")),
        ],
        f"auto-delete {kind} queue goes with the channel": [
            on(1, queue("q", durable, auto_delete=True)),
            on(1, consume("q", "c")),
            on(1, Channel.Close(200, "bye", 0, 0)),
            on(2, passive("q")),
        ],
    }


NAMES: dict[str, list[Step]] = {
    "reserved queue name": [on(1, queue("amq.mine"))],
    "passive declare of a reserved name": [on(1, passive("amq.mine"))],
    "missing queue": [on(1, passive("nowhere"))],
    "empty passive name": [on(1, Queue.Declare(queue="", passive=True))],
    "server-named queue": [
        on(1, Queue.Declare(queue="", exclusive=True)),
        on(1, Queue.Bind(queue="", exchange="amq.topic", routing_key="")),
        on(1, *publish("amq.topic", "x", b"no", mandatory=True)),
        on(1, consume("", "c", no_ack=True)),
    ],
    "no previously declared queue": [on(1, consume("", "c"))],
    "bind without a previous queue": [on(1, Queue.Bind(queue="", exchange="amq.topic"))],
    "exclusive queue": [
        on(1, queue("q", False, exclusive=True)),
        other(1, passive("q")),
        other(2, queue("q", False, exclusive=True)),
        other(3, queue("q", False)),
        other(4, consume("q", "c")),
        other(5, get("q")),
        other(6, Queue.Delete(queue="q")),
        other(7, Queue.Purge(queue="q")),
        other(8, Queue.Bind(queue="q", exchange="amq.direct")),
        other(9, *publish("", "q", b"from another connection")),
        on(1, get("q", no_ack=True)),
        on(1, queue("q", False)),
    ],
    "exclusive durable queue": [
        on(1, queue("q", True, exclusive=True)),
        on(1, queue("q", False, exclusive=True)),
    ],
    "exclusive queue goes with its connection": [
        other(1, queue("q", False, exclusive=True)),
        other(0, Connection.Close(200, "bye", 0, 0)),
        on(1, passive("q")),
    ],
}

INVALID_ARGUMENTS: dict[str, list[Step]] = {
    f"invalid {name}={value!r}": [on(1, queue("q", arguments={name: value}))]
    for name, value in (
        ("x-expires", 0),
        ("x-expires", -1),
        ("x-expires", "soon"),
        ("x-message-ttl", -1),
        ("x-message-ttl", "soon"),
        ("x-message-ttl", 1 << 40),
        ("x-max-length", -1),
        ("x-max-length-bytes", "many"),
        ("x-dead-letter-exchange", 3),
        ("x-dead-letter-routing-key", "k"),
        ("x-max-priority", 256),
        ("x-max-priority", -1),
        ("x-max-priority", "high"),
        ("x-overflow", "explode"),
        ("x-overflow", 1),
        ("x-queue-mode", "idle"),
        ("x-single-active-consumer", "yes"),
        ("x-queue-type", "unheard"),
        ("x-queue-type", 5),
    )
}

EXCHANGES: dict[str, list[Step]] = {
    "declare exchange": [
        on(1, Exchange.Declare(exchange="x", exchange_type="topic", durable=True)),
        on(1, Exchange.Declare(exchange="x", passive=True)),
        on(1, Exchange.Declare(exchange="x", exchange_type="topic", durable=True)),
        on(1, Exchange.Declare(exchange="x", exchange_type="direct", durable=True)),
        on(2, Exchange.Declare(exchange="x", exchange_type="topic", durable=False)),
        on(3, Exchange.Declare(exchange="x", exchange_type="topic", durable=True, auto_delete=True)),
        on(4, Exchange.Declare(exchange="x", exchange_type="topic", durable=True, internal=True)),
        on(
            5,
            Exchange.Declare(exchange="x", exchange_type="topic", durable=True, arguments={"alternate-exchange": "y"}),
        ),
        on(6, Exchange.Declare(exchange="x", exchange_type="topic", durable=True, arguments={"foo": "y"})),
        on(7, Exchange.Delete(exchange="x")),
        on(7, Exchange.Delete(exchange="x")),
        on(7, Exchange.Declare(exchange="x", passive=True)),
    ],
    "unknown exchange type": [on(1, Exchange.Declare(exchange="x", exchange_type="unheard"))],
    "reserved exchange name": [on(1, Exchange.Declare(exchange="amq.mine", exchange_type="direct"))],
    "predeclared exchange again": [
        on(1, Exchange.Declare(exchange="amq.topic", exchange_type="topic", durable=True)),
        on(1, Exchange.Declare(exchange="amq.topic", exchange_type="fanout", durable=True)),
    ],
    "declare the default exchange": [on(1, Exchange.Declare(exchange="", exchange_type="direct", durable=True))],
    "look at the default exchange": [on(1, Exchange.Declare(exchange="", passive=True))],
    "delete the default exchange": [on(1, Exchange.Delete(exchange=""))],
    "delete a predeclared exchange": [on(1, Exchange.Delete(exchange="amq.direct"))],
    "delete exchange if unused": [
        on(1, Exchange.Declare(exchange="x", exchange_type="fanout")),
        on(1, queue("q")),
        on(1, Queue.Bind(queue="q", exchange="x")),
        on(1, Exchange.Delete(exchange="x", if_unused=True)),
        on(2, Queue.Unbind(queue="q", exchange="x")),
        on(2, Exchange.Delete(exchange="x", if_unused=True)),
    ],
    "auto-delete exchange": [
        on(1, Exchange.Declare(exchange="x", exchange_type="fanout", durable=True, auto_delete=True)),
        on(1, queue("q")),
        on(1, Queue.Bind(queue="q", exchange="x")),
        on(1, Queue.Unbind(queue="q", exchange="x")),
        on(1, Exchange.Declare(exchange="x", passive=True)),
    ],
    "auto-delete exchange goes with the queue": [
        on(1, Exchange.Declare(exchange="x", exchange_type="fanout", auto_delete=True)),
        on(1, queue("q")),
        on(1, Queue.Bind(queue="q", exchange="x")),
        on(1, Queue.Delete(queue="q")),
        on(1, Exchange.Declare(exchange="x", passive=True)),
    ],
    "internal exchange": [
        on(1, Exchange.Declare(exchange="x", exchange_type="fanout", internal=True)),
        on(1, *publish("x", "", b"no")),
    ],
    "alternate exchange": [
        on(1, Exchange.Declare(exchange="y", exchange_type="fanout")),
        on(1, Exchange.Declare(exchange="x", exchange_type="direct", arguments={"alternate-exchange": "y"})),
        on(1, queue("q")),
        on(1, Queue.Bind(queue="q", exchange="y")),
        on(1, *publish("x", "nobody", b"stray", mandatory=True)),
        on(1, get("q", no_ack=True)),
    ],
}

BINDINGS: dict[str, list[Step]] = {
    "bind missing ends": [
        on(1, queue("q")),
        on(1, Queue.Bind(queue="nowhere", exchange="amq.direct")),
        on(2, Queue.Bind(queue="q", exchange="nowhere")),
        on(3, Queue.Bind(queue="nowhere", exchange="nowhere too")),
        on(4, Queue.Unbind(queue="nowhere", exchange="amq.direct")),
        on(5, Queue.Unbind(queue="q", exchange="nowhere")),
        on(6, Queue.Unbind(queue="q", exchange="amq.direct", routing_key="k")),
        on(7, Queue.Bind(queue="q", exchange="")),
        on(8, Queue.Unbind(queue="q", exchange="", routing_key="q")),
        on(9, Exchange.Bind(destination="nowhere", source="amq.direct")),
        on(10, Exchange.Bind(destination="amq.direct", source="nowhere")),
        on(11, Exchange.Bind(destination="", source="amq.direct")),
        on(12, Exchange.Unbind(destination="amq.direct", source="amq.fanout")),
    ],
    "invalid x-match": [
        on(1, queue("q")),
        on(1, Queue.Bind(queue="q", exchange="amq.headers", arguments={"x-match": "some"})),
        on(2, Queue.Bind(queue="q", exchange="amq.headers", arguments={"x-match": 1})),
        on(3, Queue.Bind(queue="q", exchange="amq.headers", arguments={"a": 1})),
    ],
    "headers": [
        on(1, queue("q")),
        on(1, Queue.Bind(queue="q", exchange="amq.headers", arguments={"x-match": "all", "a": 1, "b": "two"})),
        on(1, *publish("amq.headers", "", b"all", headers={"a": 1, "b": "two", "c": 3})),
        on(1, *publish("amq.headers", "", b"half", mandatory=True, headers={"a": 1})),
        on(1, *publish("amq.headers", "", b"none", mandatory=True)),
        on(1, *publish("amq.headers", "", b"text for number", mandatory=True, headers={"a": "1", "b": "two"})),
        on(1, *publish("amq.headers", "", b"true for one", mandatory=True, headers={"a": True, "b": "two"})),
        on(1, get("q", no_ack=True)),
        on(1, get("q", no_ack=True)),
    ],
    "headers any and void": [
        on(1, queue("q")),
        on(1, Queue.Bind(queue="q", exchange="amq.headers", arguments={"x-match": "any", "a": 1, "b": None})),
        on(1, *publish("amq.headers", "", b"a", headers={"a": 1})),
        on(1, *publish("amq.headers", "", b"b", headers={"b": "whatever"})),
        on(1, *publish("amq.headers", "", b"neither", mandatory=True, headers={"c": 1})),
        on(1, get("q", no_ack=True)),
        on(1, get("q", no_ack=True)),
        on(1, get("q", no_ack=True)),
    ],
    "headers without arguments": [
        on(1, queue("q")),
        on(1, Queue.Bind(queue="q", exchange="amq.headers")),
        on(1, *publish("amq.headers", "", b"anything")),
        on(1, get("q", no_ack=True)),
    ],
    "headers any without arguments": [
        on(1, queue("q")),
        on(1, Queue.Bind(queue="q", exchange="amq.headers", arguments={"x-match": "any"})),
        on(1, *publish("amq.headers", "", b"anything", mandatory=True)),
    ],
    "headers leave x- out": [
        on(1, queue("q")),
        on(1, Queue.Bind(queue="q", exchange="amq.headers", arguments={"x-match": "all", "x-a": 1, "b": 2})),
        on(1, *publish("amq.headers", "", b"without x-a", mandatory=True, headers={"b": 2})),
        on(1, Queue.Bind(queue="q", exchange="amq.headers", arguments={"x-match": "all-with-x", "x-a": 1})),
        on(1, *publish("amq.headers", "", b"with", mandatory=True, headers={"x-a": 1})),
        on(1, *publish("amq.headers", "", b"wrong", mandatory=True, headers={"x-a": 2})),
        on(1, passive("q")),
    ],
    "topic": [
        on(1, queue("q")),
        on(1, Queue.Bind(queue="q", exchange="amq.topic", routing_key="a.*.c")),
        on(1, Queue.Bind(queue="q", exchange="amq.topic", routing_key="#.z")),
        on(1, *publish("amq.topic", "a.b.c", b"1")),
        on(1, *publish("amq.topic", "a.c", b"2", mandatory=True)),
        on(1, *publish("amq.topic", "z", b"3")),
        on(1, *publish("amq.topic", "a.b.z", b"4")),
        on(1, *publish("amq.topic", "", b"5", mandatory=True)),
        on(1, passive("q")),
    ],
    "topic with empty words": [
        on(1, queue("star")),
        on(1, queue("hash")),
        on(1, queue("two")),
        on(1, Queue.Bind(queue="star", exchange="amq.topic", routing_key="*")),
        on(1, Queue.Bind(queue="hash", exchange="amq.topic", routing_key="#")),
        on(1, Queue.Bind(queue="two", exchange="amq.topic", routing_key="*.*")),
        on(1, *publish("amq.topic", "", b"1")),
        on(1, *publish("amq.topic", ".", b"2")),
        on(1, *publish("amq.topic", "a.", b"3")),
        on(1, *publish("amq.topic", "#", b"4")),
        on(1, passive("star")),
        on(1, passive("hash")),
        on(1, passive("two")),
    ],
    "one message for two bindings": [
        on(1, queue("q")),
        on(1, Queue.Bind(queue="q", exchange="amq.direct", routing_key="a", arguments={"one": 1})),
        on(1, Queue.Bind(queue="q", exchange="amq.direct", routing_key="a", arguments={"two": 2})),
        on(1, *publish("amq.direct", "a", b"once")),
        on(1, passive("q")),
        on(1, Queue.Unbind(queue="q", exchange="amq.direct", routing_key="a", arguments={"one": 1})),
        on(1, *publish("amq.direct", "a", b"twice")),
        on(1, passive("q")),
        on(1, Queue.Unbind(queue="q", exchange="amq.direct", routing_key="a", arguments={"two": 2})),
        on(1, *publish("amq.direct", "a", b"no more", mandatory=True)),
    ],
    "exchange to exchange": [
        on(1, Exchange.Declare(exchange="x", exchange_type="fanout")),
        on(1, Exchange.Declare(exchange="y", exchange_type="direct")),
        on(1, queue("q")),
        on(1, Exchange.Bind(destination="y", source="x", routing_key="")),
        on(1, Exchange.Bind(destination="x", source="y", routing_key="k")),
        on(1, Queue.Bind(queue="q", exchange="y", routing_key="k")),
        on(1, *publish("x", "k", b"round and round")),
        on(1, passive("q")),
        on(1, Exchange.Unbind(destination="y", source="x", routing_key="")),
        on(1, *publish("x", "k", b"nowhere", mandatory=True)),
    ],
}

CONSUMING: dict[str, list[Step]] = {
    "consumer tag again": [
        on(1, queue("q")),
        on(1, consume("q", "c")),
        on(1, consume("q", "c")),
    ],
    "consume from a missing queue": [on(1, consume("nowhere", "c"))],
    "get from a missing queue": [on(1, get("nowhere"))],
    "cancel an unknown tag": [on(1, Basic.Cancel("nobody"))],
    "exclusive consumer": [
        on(1, queue("q")),
        on(1, consume("q", "c", exclusive=True)),
        on(2, consume("q", "d")),
        on(3, consume("q", "d", exclusive=True)),
        on(1, Basic.Cancel("c")),
        on(4, consume("q", "d")),
        on(5, consume("q", "e", exclusive=True)),
    ],
    "get and acknowledge": [
        *filled("q", 3),
        on(1, get("q")),
        on(1, get("q", no_ack=True)),
        on(1, get("q")),
        on(1, get("q")),
        on(1, Basic.Ack(3, True)),
        on(1, Basic.Ack(3, False)),
    ],
    "unknown delivery tag": [on(1, Basic.Ack(7, False))],
    "unknown delivery tag, multiple": [on(1, Basic.Ack(7, True))],
    "tag zero, multiple": [on(1, Basic.Ack(0, True)), on(1, Basic.Nack(0, True, True)), on(1, Basic.Ack(0, False))],
    "a tag between": [
        *filled("q", 3),
        on(1, get("q")),
        on(1, get("q")),
        on(1, get("q")),
        on(1, Basic.Ack(2, False)),
        on(1, Basic.Ack(2, True)),
    ],
    "reject without requeue": [*filled("q", 2), on(1, get("q")), on(1, Basic.Reject(1, False)), on(1, get("q"))],
    "requeue keeps the order": [
        *filled("q", 4),
        on(1, get("q")),
        on(1, get("q")),
        on(1, get("q")),
        on(1, Basic.Nack(2, False, True)),
        on(1, Basic.Nack(1, False, True)),
        on(1, get("q")),
        on(1, get("q")),
        on(1, get("q")),
    ],
    "nack many": [
        *filled("q", 3),
        on(1, get("q")),
        on(1, get("q")),
        on(1, Basic.Nack(2, True, True)),
        on(1, get("q")),
        on(1, passive("q")),
    ],
    "recover": [
        *filled("q", 2),
        on(1, get("q")),
        on(1, Basic.Recover(True)),
        on(1, get("q")),
        on(1, Basic.RecoverAsync(True)),
        on(1, passive("q")),
    ],
    "recover without requeue": [on(1, Basic.Recover(False))],
    "recover-async without requeue": [on(1, Basic.RecoverAsync(False))],
    "prefetch": [
        *filled("q", 4),
        on(1, Basic.Qos(0, 2, False)),
        on(1, consume("q", "c")),
        on(1, Basic.Ack(1, False)),
        on(1, Basic.Nack(3, True, False)),
        on(1, passive("q")),
    ],
    "prefetch of the whole channel": [
        *filled("q", 6),
        on(1, Basic.Qos(0, 2, True)),
        on(1, consume("q", "c")),
        on(1, consume("q", "d")),
        on(1, Basic.Cancel("c")),
        on(1, Basic.Ack(1, False)),
        on(1, Basic.Ack(3, True)),
        on(1, Basic.Qos(0, 0, True)),
    ],
    "prefetch does not limit get and no-ack": [
        *filled("q", 3),
        on(1, Basic.Qos(0, 1, False)),
        on(1, get("q")),
        on(1, consume("q", "c", no_ack=True)),
    ],
    "prefetch size": [on(1, Basic.Qos(100, 0, False))],
    "cancel keeps what was delivered": [
        *filled("q", 1),
        on(1, consume("q", "c")),
        on(1, Basic.Cancel("c")),
        on(1, passive("q")),
        on(1, Basic.Ack(1, False)),
        on(1, Queue.Purge(queue="q")),
    ],
    "redelivered after the channel is closed": [
        *filled("q", 2),
        on(1, consume("q", "c")),
        on(1, Channel.Close(200, "bye", 0, 0)),
        on(2, get("q")),
        on(2, get("q")),
    ],
    "channel flow": [on(1, Channel.Flow(True)), on(1, Channel.Flow(False))],
    "empty body": [on(1, queue("q")), on(1, *publish("", "q", b"", content_type="none")), on(1, get("q"))],
    "properties": [
        on(1, queue("q")),
        on(
            1,
            *publish(
                "",
                "q",
                b"all",
                content_type="text/plain",
                content_encoding="utf8",
                headers={"a": 1, "b": ["x", {"y": True}]},
                delivery_mode=2,
                priority=3,
                correlation_id="c",
                reply_to="r",
                expiration="60000",
                message_id="m",
                message_type="t",
                user_id="guest",
                app_id="app",
            ),
        ),
        on(1, get("q")),
    ],
}

PUBLISHING: dict[str, list[Step]] = {
    "publish to a missing exchange": [on(1, *publish("nowhere", "k", b"no")), on(2, *publish("", "nobody", b"gone"))],
    "mandatory": [on(1, *publish("", "nobody", b"back", mandatory=True)), on(1, *publish("", "nobody", b"gone"))],
    "immediate": [on(1, Basic.Publish(0, "", "q", False, True), header.ContentHeader(0, 0, Basic.Properties()))],
    "wrong user-id": [on(1, *publish("", "q", b"x", user_id="root"))],
    "expiration that is no number": [on(1, *publish("", "q", b"x", expiration="soon"))],
    "negative expiration": [on(1, *publish("", "q", b"x", expiration="-1"))],
    "large expiration": [
        on(1, queue("q")),
        on(1, *publish("", "q", b"x", expiration="99999999999")),
        on(1, get("q")),
    ],
    "quorum queues are durable": [
        on(1, queue("q", True, arguments={"x-queue-type": "quorum"})),
        on(1, queue("r", False, arguments={"x-queue-type": "quorum"})),
        on(2, queue("r", True, exclusive=True, arguments={"x-queue-type": "quorum"})),
        on(3, queue("r", True, auto_delete=True, arguments={"x-queue-type": "quorum"})),
        on(4, queue("q", True)),
    ],
    "expiration with sign or blank": [
        on(1, *publish("", "q", b"x", expiration="+1")),
        on(2, *publish("", "q", b"x", expiration=" 1")),
        on(3, *publish("", "q", b"x", expiration="1.5")),
    ],
    "confirms": [
        on(1, Confirm.Select()),
        on(1, queue("q")),
        on(1, *publish("", "q", b"1")),
        on(1, *publish("", "nobody", b"2")),
        on(1, *publish("", "nobody", b"3", mandatory=True)),
        on(1, Confirm.Select()),
        on(1, *publish("nowhere", "", b"4")),
    ],
    "confirms of a transient queue": [
        on(1, Confirm.Select()),
        on(1, queue("q", False)),
        on(1, *publish("", "q", b"1")),
        on(1, passive("q")),
    ],
    "confirms then tx": [on(1, Confirm.Select()), on(1, Tx.Select())],
    "tx then confirms": [on(1, Tx.Select()), on(1, Confirm.Select())],
    "content without a publish": [on(1, header.ContentHeader(0, 0, Basic.Properties()))],
    "body without a header": [on(1, Basic.Publish(0, "", "q"), body.ContentBody(b"x"))],
    "method instead of a header": [on(1, Basic.Publish(0, "", "q"), Basic.Qos(0, 1))],
    "method instead of a body": [
        on(1, Basic.Publish(0, "", "q"), header.ContentHeader(0, 5, Basic.Properties()), Basic.Qos(0, 1))
    ],
    "body without a publish": [on(1, body.ContentBody(b"x"))],
}

TRANSACTIONS: dict[str, list[Step]] = {
    "commit without select": [on(1, Tx.Commit())],
    "rollback without select": [on(1, Tx.Rollback())],
    "commit of nothing": [on(1, Tx.Select()), on(1, Tx.Commit()), on(1, Tx.Rollback()), on(1, Tx.Select())],
    "publishes are seen at commit": [
        on(1, queue("q")),
        on(1, Tx.Select()),
        on(1, *publish("", "q", b"1")),
        on(1, *publish("", "q", b"2")),
        on(2, passive("q")),
        on(1, Tx.Commit()),
        on(2, passive("q")),
        on(1, get("q", no_ack=True)),
    ],
    "rolled back publishes are not": [
        on(1, queue("q")),
        on(1, Tx.Select()),
        on(1, *publish("", "q", b"1")),
        on(1, Tx.Rollback()),
        on(1, Tx.Commit()),
        on(2, passive("q")),
    ],
    "acknowledgements count at commit": [
        *filled("q", 3),
        on(1, Tx.Select()),
        on(1, get("q")),
        on(1, get("q")),
        on(1, Basic.Ack(1, False)),
        on(1, Tx.Rollback()),
        on(1, Basic.Ack(1, False)),
        on(1, Basic.Ack(1, False)),
        on(1, Channel.CloseOk()),
        on(2, get("q")),
        on(2, get("q")),
    ],
    "committed acknowledgements are final": [
        *filled("q", 3),
        on(1, Tx.Select()),
        on(1, get("q")),
        on(1, get("q")),
        on(1, Basic.Ack(2, True)),
        on(1, Tx.Commit()),
        on(1, Channel.Close(200, "bye", 0, 0)),
        on(2, get("q")),
        on(2, get("q")),
    ],
    "requeue counts at commit": [
        *filled("q", 2),
        on(1, Tx.Select()),
        on(1, get("q")),
        on(1, Basic.Nack(1, False, True)),
        on(2, passive("q")),
        on(1, Tx.Commit()),
        on(2, passive("q")),
        on(2, get("q")),
    ],
    "reject counts at commit": [
        *filled("q", 2),
        on(1, Tx.Select()),
        on(1, get("q")),
        on(1, Basic.Reject(1, False)),
        on(1, Tx.Commit()),
        on(1, Channel.Close(200, "bye", 0, 0)),
        on(2, get("q")),
    ],
    "prefetch counts until the commit": [
        *filled("q", 3),
        on(1, Tx.Select()),
        on(1, Basic.Qos(0, 1, False)),
        on(1, consume("q", "c")),
        on(1, Basic.Ack(1, False)),
        on(1, Tx.Commit()),
        on(1, Basic.Ack(2, False)),
        on(1, Tx.Commit()),
    ],
    "mandatory in a transaction": [
        on(1, Tx.Select()),
        on(1, *publish("", "nobody", b"back", mandatory=True)),
        on(1, Tx.Commit()),
        on(1, *publish("", "nobody", b"gone", mandatory=True)),
        on(1, Tx.Rollback()),
    ],
    "missing exchange in a transaction": [
        on(1, queue("q")),
        on(1, Tx.Select()),
        on(1, *publish("", "q", b"1")),
        on(1, *publish("nowhere", "k", b"no")),
        on(2, passive("q")),
    ],
    "closing the channel rolls back": [
        *filled("q", 1),
        on(1, Tx.Select()),
        on(1, *publish("", "q", b"2")),
        on(1, get("q")),
        on(1, Basic.Ack(1, False)),
        on(1, Channel.Close(200, "bye", 0, 0)),
        on(2, get("q", no_ack=True)),
        on(2, get("q", no_ack=True)),
    ],
    "closing the connection rolls back": [
        *filled("q", 1),
        other(1, Tx.Select()),
        other(1, *publish("", "q", b"2")),
        other(1, get("q")),
        other(1, Basic.Ack(1, False)),
        other(0, Connection.Close(200, "bye", 0, 0)),
        on(2, get("q", no_ack=True)),
        on(2, get("q", no_ack=True)),
    ],
    "transaction with a transient queue": [
        on(1, queue("q", False)),
        on(1, Tx.Select()),
        on(1, *publish("", "q", b"1")),
        on(1, get("q")),
        on(1, Tx.Commit()),
        on(1, get("q")),
        on(1, Basic.Ack(1, False)),
        on(1, Tx.Rollback()),
        on(1, Channel.Close(200, "bye", 0, 0)),
        on(2, get("q")),
    ],
}

CONNECTIONS: dict[str, list[Step]] = {
    "channel twice": [on(1, Channel.Flow(True)), on(1, Channel.Open())],
    "method on a closed channel": [on(1, Channel.Close(200, "bye", 0, 0)), on(1, Basic.Qos(0, 1))],
    "channel is reused": [
        on(1, Basic.Ack(1, False)),
        on(1, Basic.Qos(0, 1)),
        on(1, Channel.CloseOk()),
        on(1, Channel.Open()),
        on(1, Basic.Qos(0, 1)),
    ],
    "close-ok out of the blue": [on(1, Channel.CloseOk())],
    "channel method on channel zero": [on(0, Basic.Qos(0, 1))],
    "connection method on a channel": [on(1, Connection.CloseOk())],
    "start-ok again": [on(0, Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"))],
    "close": [on(0, Connection.Close(200, "bye", 0, 0))],
    "a method of brokers": [on(1, Basic.GetEmpty())],
}

SCENARIOS: dict[str, list[Step]] = {
    **declare_scenarios(True),
    **declare_scenarios(False),
    **NAMES,
    **INVALID_ARGUMENTS,
    **EXCHANGES,
    **BINDINGS,
    **CONSUMING,
    **PUBLISHING,
    **TRANSACTIONS,
    **CONNECTIONS,
}
