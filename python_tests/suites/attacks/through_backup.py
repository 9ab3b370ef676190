"""The same and more at a backup, which passes a client on to the primary."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack, suppress

from python_tests.suites.amqp_programs import wire as amqp
from python_tests.suites.attacks.attack import Listener, attack
from python_tests.suites.attacks.floods import many, still_there
from python_tests.suites.attacks.greedy import queue_of
from python_tests.suites.attacks.hoarders import MIB, begun
from python_tests.suites.attacks.malformed import ALL, have
from python_tests.suites.attacks.target import Target
from python_tests.suites.attacks.wire import message, method, start_ok

BACKUP = Listener.BACKUP


@attack(BACKUP, "Every malformed conversation of those at the primary, four times each")
def malformed_through_a_backup(target: Target) -> str:
    _, backup = target.nodes()
    answers: dict[str, int] = {}
    for one in ALL:
        said = have(target, one, target.times(4), backup.amqp).split(":")[0]
        answers[said] = answers.get(said, 0) + 1
    return ", ".join(f"{count} x {said}" for said, count in sorted(answers.items()))


@attack(BACKUP, "2,000 connections that say nothing and stay", in_slice=True)
def silent_at_a_backup(target: Target) -> str:
    _, backup = target.nodes()
    with ExitStack() as end:
        wires = many(target, target.times(2000), end, backup.amqp)
        time.sleep(2 * target.scale)
        return f"{len(wires):,} taken, {still_there(wires):,} of them open after 2 s"


@attack(BACKUP, "600 clients log in and stay idle, as often as they are taken")
def idle_clients_at_a_backup(target: Target) -> str:
    _, backup = target.nodes()
    count = 0
    with ExitStack() as end:
        for _ in range(target.times(600)):
            with suppress(OSError):
                end.callback(target.login(backup.amqp).close)
                count += 1
        time.sleep(2 * target.scale)
    return f"{count} logged in"


@attack(BACKUP, "A RST at every step of the handshake, 40 times each")
def reset_through_a_backup(target: Target) -> str:
    _, backup = target.nodes()
    whole = amqp.PROTOCOL_HEADER + start_ok("guest", "guest") + method(0, "connection.tune-ok", frame_max=4096)
    whole += method(0, "connection.open", vhost="/") + method(1, "channel.open") + message(1, "", "nowhere", b"x")
    count = 0
    for length in range(0, len(whole), 12):
        for _ in range(target.times(40)):
            wire = target.dial(backup.amqp)
            wire.send(whole[:length])
            wire.reset()
            count += 1
    return f"{count:,} connections"


@attack(BACKUP, "Four clients begin 32 MiB of bodies each, never end them, and one half closes")
def unfinished_through_a_backup(target: Target) -> str:
    _, backup = target.nodes()
    wires = [target.login(backup.amqp) for _ in range(4)]
    taken = sum(begun(wire, target.times(32)) for wire in wires)
    wires[0].socket.shutdown(socket.SHUT_WR)
    time.sleep(2 * target.scale)
    for wire in wires:
        wire.reset()
    return f"{taken} MiB taken"


@attack(BACKUP, "A client fetches a message of 1 MiB again and again, and reads none of it, for 5 s")
def never_read_through_a_backup(target: Target) -> str:
    _, backup = target.nodes()
    wire = target.login(backup.amqp)
    queue_of(wire, "unread-too", exclusive=True)
    wire.send(message(1, "", "unread-too", b"x" * MIB))
    both = method(1, "basic.get", queue="unread-too") + method(1, "basic.recover", requeue=True)
    count = wire.pour(both, 5 * target.scale)
    wire.reset()
    return f"{count:,} times asked for"


@attack(BACKUP, "Refused logins in series, five at a time")
def refused_logins_through_a_backup(target: Target) -> str:
    _, backup = target.nodes()
    said = ""
    for number in range(target.times(20)):
        wires = [target.dial(backup.amqp) for _ in range(5)]
        for wire in wires:
            wire.send(amqp.PROTOCOL_HEADER + start_ok(f"other-{number}\r\n", "wrong"))
        said = said or wires[0].outcome(5)
        for wire in wires:
            wire.close()
    return said


@attack(Listener.PRIMARY, "1,500 idle sockets, where a node may open 1,024 files",
        "test_idle_sockets_keep_out_no_client_and_end_no_node", few_files=True)  # fmt: skip
def few_files_at_the_primary(target: Target) -> str:
    return _idle(target, target.nodes()[0].amqp)


@attack(BACKUP, "1,500 idle sockets, where a node may open 1,024 files", few_files=True)
def few_files_at_a_backup(target: Target) -> str:
    return _idle(target, target.nodes()[1].amqp)


@attack(Listener.PEER, "1,500 idle sockets at the port for nodes, where a node may open 1,024 files", few_files=True)
def few_files_at_the_peer_port(target: Target) -> str:
    return _idle(target, target.nodes()[0].peer)


@attack(BACKUP, "400 clients log in and stay, where a node may open 1,024 files, and 600 more say nothing",
        few_files=True)  # fmt: skip
def few_files_and_logins_at_a_backup(target: Target) -> str:
    _, backup = target.nodes()
    with ExitStack() as end:
        count = 0
        for _ in range(target.times(400)):
            with suppress(OSError):
                end.callback(target.login(backup.amqp).close)
                count += 1
        said = _idle(target, backup.amqp, 600)
    return f"{count} logged in; {said}"


def _idle(target: Target, port: int, count: int = 1500) -> str:
    with ExitStack() as end:
        wires = many(target, target.times(count), end, port)
        time.sleep(5 * target.scale)
        return f"{len(wires):,} taken, {still_there(wires):,} of them open after 5 s"
