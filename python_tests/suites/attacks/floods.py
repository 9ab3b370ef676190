"""Much of what is allowed, at the primary: connections, channels, heartbeats, requests, and those who dawdle."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack, suppress

from python_tests.suites.amqp_programs import wire as amqp
from python_tests.suites.attacks.attack import Listener, attack
from python_tests.suites.attacks.target import Target
from python_tests.suites.attacks.wire import Wire, message, method, start_ok

SECONDS = 5.0
"""For how long each pours"""
PRIMARY = Listener.PRIMARY


def many(target: Target, count: int, end: ExitStack, port: int | None = None) -> list[Wire]:
    """So many connections that say nothing, as far as they are taken; they end with ``end``."""
    found = []
    for _ in range(count):
        with suppress(OSError):
            wire = target.dial(port)
            end.callback(wire.close)
            found.append(wire)
    return found


def still_there(wires: list[Wire]) -> int:
    """How many of them the broker has not closed."""
    count = 0
    for wire in wires:
        wire.socket.setblocking(False)
        try:
            count += bool(wire.socket.recv(1 << 16))
        except BlockingIOError:
            count += 1
        except OSError:
            continue
    return count


@attack(PRIMARY, "Heartbeats as fast as they go out, for five seconds",
        "test_heartbeats_between_frames_are_frames", in_slice=True)  # fmt: skip
def heartbeat_flood(target: Target) -> str:
    wire = target.login()
    count = wire.pour(amqp.frame(amqp.HEARTBEAT, 0, b"") * 8000, SECONDS * target.scale)
    wire.close()
    return f"{count * 8000:,} heartbeats"


@attack(PRIMARY, "A channel is opened and closed as fast as it goes out, for five seconds")
def channel_flood(target: Target) -> str:
    wire = target.login(channels=())
    both = method(5, "channel.open") + method(5, "channel.close")
    count = wire.pour(both * 500, SECONDS * target.scale)
    wire.close()
    return f"{count * 500:,} channels"


@attack(PRIMARY, "All 2,047 channels of 20 connections are opened, with a transaction in each")
def every_channel(target: Target) -> str:
    opened = b"".join(method(number, "channel.open") + method(number, "tx.select") for number in range(1, 2048))
    with ExitStack() as end:
        wires = [target.login(channels=()) for _ in range(target.times(20))]
        for wire in wires:
            end.callback(wire.close)
            wire.send(opened)
        for wire in wires:
            wire.send(method(2047, "tx.rollback"))
            wire.expect("tx.rollback-ok")
        return f"{2047 * len(wires):,} channels open at once"


@attack(PRIMARY, "Connections that log in and go, one behind the other, for five seconds")
def connection_flood(target: Target) -> str:
    count = 0
    for _ in target.lasting(SECONDS):
        wire = target.login(channels=())
        (wire.reset if count % 2 else wire.close)()
        count += 1
    return f"{count:,} logins"


@attack(PRIMARY, "2,000 connections that say nothing and stay", in_slice=True)
def silent_connections(target: Target) -> str:
    with ExitStack() as end:
        wires = many(target, target.times(2000), end)
        time.sleep(2 * target.scale)
        return f"{len(wires):,} taken, {still_there(wires):,} of them open after 2 s"


@attack(PRIMARY, "A RST at every step of the handshake, 60 times each")
def reset_at_each_step(target: Target) -> str:
    steps = [b"", amqp.PROTOCOL_HEADER[:4], amqp.PROTOCOL_HEADER, start_ok("guest", "guest")[:30],
             start_ok("guest", "guest"), method(0, "connection.tune-ok", channel_max=9, frame_max=4096),
             method(0, "connection.open", vhost="/"), method(1, "channel.open"), method(1, "tx.select"),
             message(1, "", "nowhere", b"x")]  # fmt: skip
    count = 0
    for length in range(1, len(steps) + 1):
        said = b"".join(step for at, step in enumerate(steps[:length]) if at not in (1, 3) or at == length - 1)
        for _ in range(target.times(60)):
            wire = target.dial()
            wire.send(said)
            wire.reset()
            count += 1
    return f"{count:,} connections"


@attack(PRIMARY, "300 clients say one octet of a proper login a second")
def endless_tiny_frames(target: Target) -> str:
    said = amqp.PROTOCOL_HEADER + start_ok("guest", "guest")
    with ExitStack() as end:
        wires = many(target, target.times(300), end)
        for second in range(int(12 * target.scale) or 1):
            for wire in wires:
                wire.send(said[second : second + 1])
            time.sleep(1)
        return f"{still_there(wires)} of {len(wires)} open after 12 s"


@attack(PRIMARY, "50 clients send requests one octet at a time, each in a segment of its own")
def octet_by_octet(target: Target) -> str:
    wires = [target.login() for _ in range(target.times(50))]
    said = method(1, "queue.declare", queue="", exclusive=True) * 4
    for octet in said:
        for wire in wires:
            wire.send(bytes((octet,)))
    for wire in wires:
        wire.expect("queue.declare-ok")
        wire.close()
    return f"{len(said) * len(wires):,} octets, all answered"


@attack(PRIMARY, "200 clients close one half in the middle of a transaction, and listen on")
def half_closed(target: Target) -> str:
    wires = [target.login() for _ in range(target.times(200))]
    for wire in wires:
        wire.send(method(1, "tx.select") + message(1, "", "nowhere", b"x" * 1000))
        wire.socket.shutdown(socket.SHUT_WR)
    time.sleep(1)
    open_still = still_there(wires)
    for wire in wires:
        wire.close()
    return f"{open_still} of {len(wires)} open after 1 s"


@attack(PRIMARY, "basic.get of an empty queue as fast as it goes out, with no answer read, for five seconds",
        in_slice=True)  # fmt: skip
def get_storm(target: Target) -> str:
    wire = target.login()
    wire.send(method(1, "queue.declare", queue="empty", exclusive=True))
    wire.expect("queue.declare-ok")
    count = wire.pour(method(1, "basic.get", queue="empty") * 2000, SECONDS * target.scale)
    wire.close()
    return f"{count * 2000:,} requests"


@attack(PRIMARY, "basic.get of an empty queue on eight connections that read each answer, for five seconds")
def get_storm_answered(target: Target) -> str:
    wires = [target.login() for _ in range(8)]
    said = method(1, "queue.declare", queue="", exclusive=True) + method(1, "basic.get", queue="") * 500
    count = 0
    for _ in target.lasting(SECONDS):
        for wire in wires:
            wire.send(said)
        for wire in wires:
            wire.expect("queue.declare-ok")
            while wire.counts.get("basic.get-empty", 0) < 500:
                wire.expect("basic.get-empty")
            wire.counts.clear()
            count += 500
    for wire in wires:
        wire.close()
    return f"{count:,} requests"


@attack(PRIMARY, "channel.flow off and on as fast as it goes out, with a consumer, for five seconds")
def flow_toggling(target: Target) -> str:
    wire = target.login()
    wire.send(method(1, "queue.declare", queue="flowing", exclusive=True) + method(1, "basic.consume", queue="flowing"))
    wire.expect("basic.consume-ok")
    both = method(1, "channel.flow", active=True) + message(1, "", "flowing", b"x")
    count = wire.pour(both * 500, SECONDS * target.scale)
    said = wire.outcome()
    wire.close()
    return f"{count * 500:,} times; {said}"


@attack(PRIMARY, "tx.select, a message and tx.rollback as fast as they go out, for five seconds")
def rollback_flood(target: Target) -> str:
    wire = target.login()
    wire.send(method(1, "queue.declare", queue="rolled", durable=True))
    wire.expect("queue.declare-ok")
    one = method(1, "tx.select") + message(1, "", "rolled", b"x", delivery_mode=2) + method(1, "tx.rollback")
    count = wire.pour(one * 200, SECONDS * target.scale)
    wire.close()
    return f"{count * 200:,} rollbacks"


@attack(PRIMARY, "Commits of one durable message as fast as they go out, with no answer read, for five seconds")
def commit_flood(target: Target) -> str:
    wire = target.login()
    wire.send(method(1, "queue.declare", queue="flood", durable=True) + method(1, "tx.select"))
    wire.expect("tx.select-ok")
    one = message(1, "", "flood", b"x" * 100, delivery_mode=2) + method(1, "tx.commit")
    count = wire.pour(one * 50, SECONDS * target.scale)
    wire.close()
    clean = target.login()
    clean.send(method(1, "queue.delete", queue="flood"))
    clean.expect("queue.delete-ok")
    clean.close()
    return f"{count * 50:,} commits"


@attack(PRIMARY, "Durable queues are declared and deleted in turn, as fast as they go out, for five seconds")
def declaration_flood(target: Target) -> str:
    wire = target.login()
    both = method(1, "queue.declare", queue="brief", durable=True, nowait=True)
    both += method(1, "queue.delete", queue="brief", nowait=True)
    count = wire.pour(both * 50, SECONDS * target.scale)
    wire.close()
    return f"{count * 50:,} queues"


@attack(PRIMARY, "40 refused logins in series, and five at a time")
def refused_logins(target: Target) -> str:
    said = ""
    for number in range(target.times(40)):
        wires = [target.dial() for _ in range(5)]
        for wire in wires:
            wire.send(amqp.PROTOCOL_HEADER + start_ok(f"user-{number}", "wrong"))
        if number == 0:
            said = wires[0].outcome(5)
        for wire in wires:
            wire.close()
    return said
