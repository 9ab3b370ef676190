"""Declaring, deleting and purging queues."""

from __future__ import annotations

from pamqp.commands import Basic, Channel, Connection, Queue

from tests.broker_plugin.amqp.scenarios.steps import (
    Step,
    arguments,
    consume,
    filled,
    get,
    on,
    other,
    passive,
    publish,
    queue,
)


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
    }


def lifetime_scenarios(durable: bool) -> dict[str, list[Step]]:
    """Purging, and queues that go by themselves."""
    kind = "durable" if durable else "transient"
    return {
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
