"""The HTTP door: strangers, slow ones, guessers, and an operator's own login gone wild."""

from __future__ import annotations

import http.client
import json
import random
import socket
import threading
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack, suppress

from python_tests.suites.attacks.attack import Listener, attack
from python_tests.suites.attacks.malformed import TLS
from python_tests.suites.attacks.target import NodePorts, Target

ANSWER_SECONDS = 20.0
"""In which the door answers one who behaves, on a machine that the attacker keeps busy"""
HOST = b"Host: door\r\n"
GET = b"GET /health/live HTTP/1.1\r\n" + HOST
MALFORMED = [
    b"\r\n\r\n\r\n",
    b"\0" * 4000 + b"\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET " + b"/a" * 40000 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
    GET + b"X: " + b"x" * 200000 + b"\r\n\r\n",
    GET + b"".join(b"X-%d: 1\r\n" % number for number in range(10000)) + b"\r\n",
    GET + b"Content-Length: -1\r\n\r\n",
    GET + b"Content-Length: 9999999999999999999999\r\n\r\n",
    GET + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    GET + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
    GET + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    GET + b"Authorization: Basic " + b"A" * 60000 + b"\r\n\r\n",
    GET + b"Authorization: Basic \xff\xfe\r\n\r\n",
    GET + b"Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    TLS,
    b"AMQP\0\0\x09\x01",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]
"""Requests that none is"""


def login(user: str = "guest", password: str = "guest") -> dict[str, str]:
    """The header of one."""
    return {"Authorization": "Basic " + b64encode(f"{user}:{password}".encode()).decode()}


def ask(node: NodePorts, path: str, method: str = "GET", body: bytes | None = None, **headers: str) -> int:
    """The status of the answer. Raises OSError, HTTPException."""
    connection = http.client.HTTPConnection("127.0.0.1", node.http, timeout=ANSWER_SECONDS)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def answers(nodes: Iterable[NodePorts]) -> None:
    """Raises AssertionError where a door does not answer one who behaves, with a login and without one."""
    for node in nodes:
        for path, headers in (("/health/live", {}), ("/api/whoami", login())):
            try:
                status = ask(node, path, **headers)
            except (OSError, http.client.HTTPException) as error:
                raise AssertionError(f"the door of {node.name} does not answer: {error!r}") from None
            assert status == 200, f"the door of {node.name} answers {status} to one who behaves"


def dial(node: NodePorts) -> socket.socket:
    """A connection that has said nothing. Raises OSError."""
    return socket.create_connection(("127.0.0.1", node.http), ANSWER_SECONDS)


def first_line(connection: socket.socket) -> str:
    """What it answers, or that it does not."""
    connection.settimeout(2.0)
    try:
        data = connection.recv(64)
    except TimeoutError:
        return "waits"
    except OSError:
        return "closed"
    return data.split(b"\r\n")[0].decode("latin-1") if data else "closed"


def counted(said: Counter[str]) -> str:
    """In words."""
    return ", ".join(f"{count} x {what}" for what, count in sorted(said.items()))


@attack(Listener.DOOR, "Requests that none is: of zeros, of long headers, with two lengths, of TLS and of AMQP",
        "test_what_is_no_request_is_refused_and_the_next_one_answered", in_slice=True)  # fmt: skip
def malformed_requests(target: Target) -> str:
    said: Counter[str] = Counter()
    for _ in range(target.times(20)):
        for data in MALFORMED:
            for node in target.nodes():
                with suppress(OSError), dial(node) as connection:
                    with suppress(OSError):
                        connection.sendall(data)
                    said[first_line(connection)] += 1
    answers(target.nodes())
    return counted(said)


@attack(Listener.DOOR, "500 connections that say nothing, and 500 that send a byte of a header at a time",
        "test_one_that_sends_too_slowly_is_not_waited_for", in_slice=True)  # fmt: skip
def slow_requests(target: Target) -> str:
    nodes, count = target.nodes(), target.times(500)
    with ExitStack() as end:
        idle, slow = [], []
        for number in range(2 * count):
            with suppress(OSError):
                connection = end.enter_context(dial(nodes[number % 2]))
                (slow if number < count else idle).append(connection)
        for _ in target.lasting(10.0):
            for connection in slow:
                with suppress(OSError):
                    connection.send(b"X")
            answers(nodes)
    return f"{len(idle)} idle, {len(slow)} slow"


@attack(Listener.DOOR, "2,000 wrong passwords from 16 callers, and 200 users that there are not")
def guessed_passwords(target: Target) -> str:
    nodes, count = target.nodes(), target.times(2000)
    said: Counter[str] = Counter()
    mutex = threading.Lock()

    def guess(first: int) -> None:
        for number in range(first, count, 16):
            user = "guest" if number % 10 else f"stranger-{number}"
            try:
                status = str(ask(nodes[number % 2], "/api/whoami", **login(user, f"guess {number}")))
            except (OSError, http.client.HTTPException):
                status = "no answer"
            with mutex:
                said[status] += 1

    threads = [threading.Thread(target=guess, args=(number,), daemon=True) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answers(nodes)
    assert said["200"] == 0, "a wrong password was right"
    return counted(said)


@attack(Listener.DOOR, "Bodies of a gigabyte that are announced, of 16 MiB that come, and of JSON that is nested deep",
        in_slice=True)  # fmt: skip
def great_bodies(target: Target) -> str:
    said: Counter[str] = Counter()
    great = [b"[" * (15 << 20), b'{"queues":' * (1 << 20), b" " * (17 << 20)]
    for number in range(target.times(20)):
        for node in target.nodes():
            with suppress(OSError), dial(node) as connection:
                lines = [f"{key}: {value}" for key, value in login().items()]
                head = "\r\n".join(["PUT /api/users/x HTTP/1.1", "Host: door", *lines, "Content-Length: 1073741824"])
                connection.sendall(head.encode() + b"\r\n\r\n")
                with suppress(OSError):
                    connection.sendall(b"x" * (1 << 20))
                said[first_line(connection)] += 1
            try:
                body = great[number % len(great)]
                said[str(ask(node, "/api/definitions", "POST", body, **login()))] += 1
            except (OSError, http.client.HTTPException):
                said["closed"] += 1
    answers(target.nodes())
    return counted(said)


@attack(Listener.DOOR, "120 connections ask for all metrics 2,000 times each, and read none of the answers")
def answers_not_read(target: Target) -> str:
    lines = [f"{key}: {value}" for key, value in login().items()]
    one = "\r\n".join(["GET /metrics/per-object HTTP/1.1", "Host: door", *lines]).encode() + b"\r\n\r\n"
    sent = 0
    with ExitStack() as end:
        connections = []
        for number in range(target.times(120)):
            with suppress(OSError):
                connection = end.enter_context(dial(target.nodes()[number % 2]))
                connection.setblocking(False)
                connections.append(connection)
        for _ in target.lasting(10.0):
            for connection in connections:
                with suppress(OSError):
                    sent += connection.send(one * 20)
    answers(target.nodes())
    return f"{sent // len(one):,} requests went out"


@attack(Listener.DOOR, "20,000 requests of drawn methods, paths and bodies, half of them with a login")
def drawn_requests(target: Target) -> str:
    lot, said = random.Random(18), Counter[str]()
    words = "api users vhosts permissions definitions txha calls %2F %00 %ff .. health checks metrics per-object guest"
    bodies = [None, b"{}", b"[]", b"null", b'{"a":', json.dumps({"tags": ["x"] * 100}).encode()]
    for _ in range(target.times(20_000)):
        node = lot.choice(target.nodes())
        path = "/" + "/".join(lot.choice([*words.split(), "", "x" * 300]) for _ in range(lot.randint(0, 5)))
        method = lot.choice(["GET", "HEAD", "OPTIONS", "TRACE", "POST", "PATCH", "BREW"])
        try:
            headers = login() if lot.random() < 0.5 else {}
            said[str(ask(node, path, method, lot.choice(bodies), **headers))] += 1
        except (OSError, http.client.HTTPException):
            said["no answer"] += 1
    answers(target.nodes())
    assert not said["500"], f"the doors failed at {said['500']} requests"
    return counted(said)
