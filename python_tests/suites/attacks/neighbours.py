"""Strangers and neighbours: the port for nodes, readers of the log, the port for operators, a node's files."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from ha.messages.election import Probe, Promoted
from ha.messages.greeting import WIRE_VERSION, Hello
from ha.messages.proof import NONCE, PEER, READER, DiallerProof, LinkSession
from ha.messages.seals import LENGTH
from ha.messages.stream import Ack, Commit
from ha.messages.wire import encode
from python_tests.suites.attacks.attack import Listener, attack
from python_tests.suites.attacks.floods import SECONDS, many, still_there
from python_tests.suites.attacks.malformed import TLS
from python_tests.suites.attacks.target import NodePorts, Target
from recovery.reader.node_connection import NodeConnection

WRONG = b"a secret that was guessed, and guessed wrong"
NO_USER = 65534
"""The user nobody"""
DEEP = b"\x91" * 3900 + b"\x90"
"""msgpack of arrays within arrays"""
FORGED: list[object] = [Ack(1, 1, 10**9), Commit(1, 1, 10**9), Promoted(10**6), Probe(1, 1)]


class Intruder:
    """One who dials the port for nodes; ``session`` when it has proved itself."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 5)
        self.session: LinkSession | None = None

    def prove(self, secret: bytes, purpose: int) -> bool:
        """Whether the node believes it. Raises OSError where the node ends the connection without a word."""
        proof = DiallerProof(secret, purpose, secrets.token_bytes(NONCE))
        answer, _ = proof.take(self._message())
        self.socket.sendall(LENGTH.pack(len(answer)) + answer)
        try:
            _, self.session = proof.take(self._message())
        except (OSError, ValueError):
            return False
        return True

    def say(self, *messages: object) -> None:
        """Under the seals if there are any, and bare else. What the node does not take is lost."""
        encoded = [each if isinstance(each, bytes) else encode(each) for each in messages]
        with suppress(OSError):
            for each in encoded:
                sealed = self.session.sealer.seal(each) if self.session else LENGTH.pack(len(each)) + each
                self.socket.sendall(sealed)

    def closed(self, seconds: float = 2.0) -> bool:
        """Whether the node ends the connection so soon; what it says is read."""
        deadline = time.monotonic() + seconds
        with suppress(TimeoutError):
            while (left := deadline - time.monotonic()) > 0:
                self.socket.settimeout(left)
                try:
                    if not self.socket.recv(1 << 16):
                        return True
                except ConnectionError:
                    return True
        return False

    def close(self) -> None:
        """Drop it."""
        self.socket.close()

    def _message(self) -> bytes:
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionResetError("closed")
            data += more
        return data


def closed_of(count: int, closed: int) -> str:
    """In words."""
    return f"{closed} of {count} closed"


# -- the port for nodes


@attack(Listener.PEER, "Greetings of strangers: HTTP, TLS, lengths of 4 GiB, 3,900 arrays deep, bare messages",
        "test_a_stranger_is_refused_in_words", in_slice=True)  # fmt: skip
def strangers_at_the_peer_port(target: Target) -> str:
    hello = encode(Hello(WIRE_VERSION, "cluster", "node-2", "127.0.0.1", 1))
    said = [b"GET / HTTP/1.1\r\n\r\n", TLS, b"\xff\xff\xff\xff" + bytes(9000), LENGTH.pack(len(DEEP)) + DEEP,
            LENGTH.pack(len(hello)) + hello, bytes(1 << 20), b"\0\0\0\0" * 1000]  # fmt: skip
    closed = count = 0
    for node in target.nodes():
        for data in said * target.times(20):
            one = Intruder(node.peer)
            with suppress(OSError):
                one.socket.sendall(data)
            closed += one.closed()
            one.close()
            count += 1
    return closed_of(count, closed)


@attack(Listener.PEER, "200 wrong secrets, and 200 proofs that are cut short or of no purpose")
def wrong_secrets(target: Target) -> str:
    believed = 0
    primary, backup = target.nodes()
    for number in range(target.times(200)):
        for node in (primary, backup):
            one = Intruder(node.peer)
            believed += one.prove(WRONG, (PEER, READER, 3)[number % 3])
            one.close()
    return f"{believed} believed"


@attack(Listener.PEER, "An Ack, Commit and Promoted are forged on a connection of one who has proved nothing")
def forged_messages(target: Target) -> str:
    closed = 0
    nodes = target.nodes()
    count = target.times(50)
    for _ in range(count):
        for node in nodes:
            one = Intruder(node.peer)
            one.say(*FORGED)
            closed += one.closed()
            one.close()
    return closed_of(2 * count, closed)


@attack(Listener.PEER, "One who knows the secret greets as another cluster, as no node, twice, or 3,900 arrays deep")
def greetings_under_the_seals(target: Target) -> str:
    primary, backup = target.nodes()
    ports = [primary.peer, backup.peer]
    names = {primary.peer: primary.name, backup.peer: backup.name}
    greetings: list[list[object]] = [
        [Hello(WIRE_VERSION, "another", "node-2", "127.0.0.1", 1), *FORGED],
        [Hello(WIRE_VERSION + 1, "cluster", "node-2", "127.0.0.1", 1), *FORGED],
        [Hello(WIRE_VERSION, "cluster", "stranger\r\n\x1b[2J", "127.0.0.1", 1), *FORGED],
        [DEEP, *FORGED], [b"\xc1" * 30], [bytes(65536)], list(FORGED),
    ]  # fmt: skip
    closed = count = 0
    for port in ports:
        own: list[object] = [Hello(WIRE_VERSION, "cluster", names[port], "127.0.0.1", 1), *FORGED]
        for said in [*greetings, own]:
            one = Intruder(port)
            one.prove(target.secret, PEER)
            one.say(*said)
            closed += one.closed()
            one.close()
            count += 1
    return closed_of(count, closed)


class _Tap(threading.Thread):
    """Passes one connection on to a port and keeps what the dialler says."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._there = socket.create_connection(("127.0.0.1", port), 5)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.said = b""

    def run(self) -> None:
        near, _ = self._listener.accept()
        back = threading.Thread(target=self._pump, args=(self._there, near, False), daemon=True)
        back.start()
        self._pump(near, self._there, True)
        self._listener.close()

    def _pump(self, source: socket.socket, drain: socket.socket, keep: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self.said += data if keep else b""
                drain.sendall(data)
            drain.shutdown(socket.SHUT_WR)


@attack(Listener.PEER, "What a reader has said to a node is captured, and said again on new connections")
def replayed_stream(target: Target) -> str:
    primary, _ = target.nodes()
    tap = _Tap(primary.peer)
    tap.start()
    one = Intruder(tap.port)
    assert one.prove(target.secret, READER), "the node does not believe a reader who knows the secret"
    one.say(Probe(1, 1))
    one.closed(0.5)
    one.close()
    tap.join(5)
    closed, count = 0, target.times(50)
    for _ in range(count):
        again = Intruder(primary.peer)
        with suppress(OSError):
            again.socket.sendall(tap.said)
        closed += again.closed()
        again.close()
    return closed_of(count, closed)


@attack(Listener.PEER, "1,000 connections that say nothing, at each of two nodes, for 4 s")
def silent_at_the_peer_port(target: Target) -> str:
    with ExitStack() as end:
        wires = [wire for node in target.nodes() for wire in many(target, target.times(1000), end, node.peer)]
        time.sleep(4 * target.scale)
        return f"{len(wires):,} taken, {still_there(wires):,} of them open after 4 s"


# -- readers


@attack(Listener.READER, "A reader by its right asks in nonsense, 3,900 arrays deep, and as a node would")
def questions_of_a_reader(target: Target) -> str:
    said: list[list[object]] = [[DEEP], [b"\xc1"], [bytes(60_000)], [*FORGED], [b"\x93\x01\xff\xff"], [b""]]
    closed = count = 0
    for node in target.nodes():
        for messages in said * target.times(10):
            one = Intruder(node.peer)
            one.prove(target.secret, READER)
            one.say(*messages)
            closed += one.closed()
            one.close()
            count += 1
    return closed_of(count, closed)


@attack(Listener.READER, "100 readers by their right who never ask, and 100 who go in the middle of a message")
def silent_readers(target: Target) -> str:
    primary, _ = target.nodes()
    greeted = 0
    with ExitStack() as end:
        for number in range(target.times(100)):
            with suppress(OSError, ValueError):
                reader = NodeConnection(f"127.0.0.1:{primary.peer}", target.secret)
                end.callback(reader.close)
                greeted += 1
                if number % 2:
                    reader._socket.sendall(b"\0\0\1")
                    reader.close()
        time.sleep(2 * target.scale)
    return f"{greeted} greeted"


@attack(Listener.READER, "A reader by its right sends messages of 60 kB as fast as they go out, for five seconds")
def flood_of_a_reader(target: Target) -> str:
    primary, _ = target.nodes()
    count = 0
    for _ in target.lasting(SECONDS):
        one = Intruder(primary.peer)
        one.prove(target.secret, READER)
        one.say(*[bytes(60_000)] * 20)
        one.close()
        count += 20
    return f"{count:,} messages"


# -- operators


def _lines(node: NodePorts) -> list[bytes]:
    good = json.dumps({"token": node.token, "command": "status", "arguments": {}}).encode()
    nested = b'{"token":"x","command":"status","arguments":{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}}"
    return [b"\n" * 1000, b"GET / HTTP/1.1\r\n\r\n", TLS + b"\n", b"\xff\xfe\x00\n", nested + b"\n", b"x" * (2 << 20),
            good.replace(node.token.encode(), b"0" * 32) + b"\n", good.replace(b"status", b"\\u0000\\ud800") + b"\n",
            good.replace(b'{}', b'{"a":' + b"9" * 5000 + b"}") + b"\n", b"[" * 200_000 + b"\n",
            good.replace(b"status", b"promote").replace(b"{}", b'{"version":"\\n"}') + b"\n", good[:-9]]  # fmt: skip


@attack(Listener.ADMIN, "Lines that are no requests, too long, nested 100,000 deep, with wrong tokens and odd values",
        in_slice=True)  # fmt: skip
def lines_at_the_admin_port(target: Target) -> str:
    answers: dict[str, int] = {}
    for node in target.nodes():
        for line in _lines(node) * target.times(5):
            said = _asked(node.admin, line)
            answers[said] = answers.get(said, 0) + 1
    return ", ".join(f"{count} x {said}" for said, count in sorted(answers.items()))


def _asked(port: int, line: bytes) -> str:
    with socket.create_connection(("127.0.0.1", port), 5) as one:
        one.settimeout(3)
        try:
            one.sendall(line)
            one.shutdown(socket.SHUT_WR)
            answer = one.recv(1 << 20)
        except TimeoutError:
            return "silence"
        except OSError:
            return "closed"
    if not answer:
        return "closed"
    return "answered" if b'"ok": true' in answer else "refused"


@attack(Listener.ADMIN, "200 connections that ask nothing, and stay for 12 s")
def silent_at_the_admin_port(target: Target) -> str:
    with ExitStack() as end:
        wires = [wire for node in target.nodes() for wire in many(target, target.times(100), end, node.admin)]
        time.sleep(12 * target.scale)
        return f"{len(wires)} taken, {still_there(wires)} of them open after 12 s"


@attack(Listener.ADMIN, "Requests for the status with wrong tokens, as fast as they are answered, for five seconds")
def guessed_tokens(target: Target) -> str:
    primary, _ = target.nodes()
    count = 0
    for _ in target.lasting(SECONDS):
        with suppress(OSError), socket.create_connection(("127.0.0.1", primary.admin), 5) as one:
            for _ in range(200):
                one.sendall(json.dumps({"token": secrets.token_hex(16), "command": "status"}).encode() + b"\n")
                assert b'"ok": true' not in one.recv(4096), "a guessed token was believed"
                count += 1
    return f"{count:,} refused"


# -- files


@attack(Listener.FILES, "Another user of the machine reads the nodes' secrets, tokens, logs and command lines")
def files_of_a_node(target: Target) -> str:
    if os.getuid() != 0:
        return "not played: only root can take another user's place"
    primary, _ = target.nodes()
    wanted = [path for path in primary.directory.parent.rglob("*") if path.is_file()]
    opened = [path.name for path in wanted if _read_as_nobody(path)]
    shown = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    for hidden in (primary.token, target.secret.decode()):
        assert hidden not in shown, "a process list shows a secret"
    sensitive = [name for name in opened if "secret" in name or name.startswith("admin")]
    assert not sensitive, f"another user can read {sensitive}"
    return f"{len(opened)} of {len(wanted)} files can be read, no secret and no token among them"


def _read_as_nobody(path: Path) -> bool:
    done = subprocess.run(["head", "-c", "1", str(path)], user=NO_USER, group=NO_USER, extra_groups=[],
                          capture_output=True, check=False)  # fmt: skip
    return done.returncode == 0
