"""What is there at the end of a program: queues with all that is in them, exchanges, and where they lead.

Each queue and each exchange is asked for on a channel of its own, since a missing one ends the channel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from python_tests.suites.amqp_programs.address import Address
from python_tests.suites.amqp_programs.client import Client, Received
from python_tests.suites.amqp_programs.link import UNUSED_TAG
from python_tests.suites.amqp_programs.program import Op, Program, octets_of
from python_tests.suites.amqp_programs.transcript import Lines, content, line
from python_tests.suites.amqp_programs.values import UNORDERED

NOWHERE = "no.such.key"


def contents(address: Address, program: Program, named: list[str], pass_by: Callable[[], None]) -> dict[str, Lines]:
    """By name: a line for what is there, and one for each message; behind them what probes of each exchange reach."""
    client = Client(address)
    found: dict[str, Lines] = {}
    queues = [*_names(program, "queue"), *named]
    there = _look(client, queues, "queue", found)
    for queue in there:
        messages = _drain(client, there[queue], queue)
        found[f"queue {queue}"] += sorted(map(content, messages)) if queue == UNORDERED else map(line, messages)
    exchanges = _look(client, _names(program, "exchange"), "exchange", found)
    for exchange, channel in exchanges.items():
        _probe(client, channel, exchange, _keys(program, exchange))
    pass_by()
    for queue, channel in there.items():
        reached = [f"{each.fields['exchange']} {each.body.decode()}" for each in _drain(client, channel, queue)]
        found[f"queue {queue}"].append("probes: " + "; ".join(sorted(reached)))
    client.send(0, "connection.close", {"code": 200})
    client.until(("connection.close-ok",))
    client.close()
    return {_shown(name, named): lines for name, lines in found.items()}


def _shown(name: str, named: list[str]) -> str:
    queue = name.removeprefix("queue ")
    return f"queue ${named.index(queue)}" if queue in named else name


def _names(program: Program, kind: str) -> list[str]:
    names = {str(op.arguments[kind]) for step in program for op in step.ops if op.arguments.get(kind)}
    return sorted(name for name in names if not name.startswith("$") and name.isascii())


def _keys(program: Program, exchange: str) -> list[tuple[str, list[list[object]]]]:
    """Keys and headers by which something may be bound to it."""
    keys = {NOWHERE: [[]]}
    for op in (op for step in program for op in step.ops):
        source = op.arguments.get("source", op.arguments.get("exchange"))
        if op.name in ("queue.bind", "exchange.bind") and source == exchange:
            headers = [entry for entry in op.arguments.get("arguments", ()) if entry[0] != "x-match"]
            keys.setdefault(op.arguments.get("key", ""), []).append(headers)
    return [(key, headers) for key, tables in keys.items() if not key.startswith("$") for headers in tables[:3]]


def _look(client: Client, names: Iterable[str], kind: str, found: dict[str, Lines]) -> dict[str, int]:
    """The channel of each that is there."""
    there: dict[str, int] = {}
    for number, name in enumerate(names, 1 if kind == "queue" else 500):
        client.send(number, "channel.open")
        client.send(number, f"{kind}.declare", {kind: name, "passive": True})
        received = client.until((f"{kind}.declare-ok", "channel.close"))
        found[f"{kind} {name}"] = [line(received)]
        if received.name == "channel.close":
            client.send(number, "channel.close-ok")
        else:
            there[name] = number
    return there


def _drain(client: Client, channel: int, queue: str) -> list[Received]:
    messages = []
    while True:
        client.send(channel, "basic.get", {"queue": queue, "no_ack": True})
        received = client.until(("basic.get-ok", "basic.get-empty"))
        if received.name == "basic.get-empty":
            return messages
        messages.append(received)


def _probe(client: Client, channel: int, exchange: str, keys: list[tuple[str, list[list[object]]]]) -> None:
    ops = []
    for key, headers in keys:
        arguments = {"exchange": exchange, "key": key, "body": f"{key} {len(headers)}"}
        if headers:
            arguments["properties"] = {"headers": headers}
        ops.append(Op(channel, "basic.publish", arguments))
    client.send_bytes(octets_of(ops, 0))
    client.send(channel, "basic.cancel", {"tag": UNUSED_TAG})
    answer: Received = client.until(("basic.cancel-ok", "channel.close"))
    if answer.name == "channel.close":
        client.send(channel, "channel.close-ok")

