"""Clients that make a node keep much: what a client has sent and not finished, or is sent and does not read."""

from __future__ import annotations

import time

from python_tests.suites.amqp_programs import wire as amqp
from python_tests.suites.attacks.attack import Listener, attack
from python_tests.suites.attacks.greedy import LONG, clean, pieces, queue_of
from python_tests.suites.attacks.target import Target
from python_tests.suites.attacks.wire import Wire, message, method

PRIMARY = Listener.PRIMARY
MIB = 1 << 20
PIECE = 131064
"""Octets of the body in a frame"""


def begun(wire: Wire, mib: int, channels: int = 1) -> int:
    """So much of bodies that are not finished, on so many channels; returns what was taken, in MiB."""
    taken = 0
    for channel in range(1, channels + 1):
        size = mib * MIB // channels
        wire.send(method(channel, "basic.publish", key="nowhere"))
        wire.send(amqp.frame(amqp.HEADER, channel, amqp.content_header(size + 1, {})))
        for _ in range(size // PIECE):
            if not wire.send(amqp.frame(amqp.BODY, channel, b"x" * PIECE), 20):
                return taken // MIB
            taken += PIECE
    return taken // MIB


@attack(PRIMARY, "Four clients begin 64 MiB of bodies each, never end them, and stay for 5 s")
def unfinished_bodies(target: Target) -> str:
    wires = [target.login() for _ in range(4)]
    taken = sum(begun(wire, target.times(64)) for wire in wires)
    time.sleep(5 * target.scale)
    said = wires[0].outcome(0.5)
    for wire in wires:
        wire.reset()
    return f"{taken} MiB taken; {said}"


@attack(PRIMARY, "One client begins a body on each of 1,000 channels, 256 MiB in all")
def unfinished_bodies_on_channels(target: Target) -> str:
    channels = target.times(1000)
    wire = target.login(channels=range(1, channels + 1))
    taken = begun(wire, target.times(250), channels)
    said = wire.outcome(1.0)
    wire.reset()
    return f"{taken} MiB taken; {said}"


@attack(PRIMARY, "One client begins bodies beyond its share, 700 MiB, and stays")
def beyond_the_share(target: Target) -> str:
    wire = target.login(channels=range(1, 9))
    taken = begun(wire, target.times(700), 8)
    said = wire.outcome(3.0)
    wire.reset()
    return f"{taken} MiB taken; {said}"


@attack(PRIMARY, "A transaction of 100 MiB is published, left open for 5 s, and its client is reset")
def open_transaction(target: Target) -> str:
    wire = target.login()
    queue_of(wire, "open", durable=True)
    wire.method(1, "tx.select")
    wire.expect("tx.select-ok")
    count = target.times(1000)
    said = message(1, "", "open", b"x" * 100_000, delivery_mode=2)
    for _ in range(count):
        if not wire.send(said, LONG):
            break
    time.sleep(5 * target.scale)
    answer = wire.outcome(0.5)
    wire.reset()
    clean(target, "open")
    return f"{count / 10:.0f} MiB; {answer}"


@attack(PRIMARY, "200,000 small messages in one transaction, which is rolled back, and another, which commits")
def transaction_of_many(target: Target) -> str:
    wire, count = target.login(), target.times(200_000)
    queue_of(wire, "many", durable=True)
    wire.method(1, "tx.select")
    wire.expect("tx.select-ok")
    answer = ""
    for end in ("tx.rollback", "tx.commit"):
        for numbers in pieces(count):
            wire.send(message(1, "", "many", b"x", delivery_mode=2) * len(numbers), LONG)
        wire.method(1, end)
        try:
            wire.expect(end + "-ok", LONG)
            answer += f"{end.removeprefix('tx.')} answered; "
        except OSError as error:
            answer += f"{end.removeprefix('tx.')}: {error}; "
            break
    wire.close()
    clean(target, "many")
    return f"{count:,} messages; {answer}".rstrip("; ")


@attack(PRIMARY, "50 clients publish bodies of 130 kB 1,000 times with as many keys, and stay idle for 5 s")
def caches_of_idle_clients(target: Target) -> str:
    wires = [target.login() for _ in range(target.times(50))]
    for wire in wires:
        queue_of(wire, "", exclusive=True)
        for n in range(target.times(1000)):
            wire.send(message(1, "", f"nowhere-{n}", b"x", headers=[["h", "S", "x" * 1200]]))
        wire.method(1, "tx.select")
        wire.expect("tx.select-ok", LONG)
    time.sleep(5 * target.scale)
    for wire in wires:
        wire.close()
    return f"{len(wires)} clients"


@attack(PRIMARY, "A client fetches a message of 1 MiB again and again, and reads none of it, for 5 s", in_slice=True)
def answers_never_read(target: Target) -> str:
    wire = target.login(channels=(1, 2))
    queue_of(wire, "unread")
    wire.send(message(2, "", "unread", b"x" * MIB) * 8)
    both = method(1, "basic.get", queue="unread") + method(1, "basic.recover", requeue=True)
    count = wire.pour(both, 5 * target.scale)
    wire.reset()
    clean(target, "unread")
    return f"{count:,} times asked for"


@attack(PRIMARY, "20 consumers without acknowledgement read nothing while 100 MiB come for each")
def consumers_never_read(target: Target) -> str:
    idle = [target.login() for _ in range(target.times(20))]
    wire = target.login()
    for n, each in enumerate(idle):
        queue_of(each, f"mute-{n}")
        each.method(1, "basic.consume", queue=f"mute-{n}", no_ack=True)
    sent = 0
    for n in range(len(idle)):
        for _ in range(target.times(20)):
            sent += wire.send(message(1, "", f"mute-{n}", b"x" * MIB), 20)
    for each in idle:
        each.reset()
    wire.close()
    clean(target, *(f"mute-{n}" for n in range(len(idle))))
    return f"{sent} MiB"


@attack(PRIMARY, "A queue of the node's memory is filled with 300 MiB, and purged")
def memory_of_a_queue(target: Target) -> str:
    wire = target.login()
    queue_of(wire, "filled")
    sent = sum(wire.send(message(1, "", "filled", b"x" * MIB), 20) for _ in range(target.times(300)))
    wire.method(1, "queue.purge", queue="filled")
    wire.expect("queue.purge-ok", LONG)
    wire.close()
    clean(target, "filled")
    return f"{sent} MiB"
