"""A client that says whatever it is told to, and reports in a few words how it was answered."""

from __future__ import annotations

import socket
import struct
import time
from typing import Any

from python_tests.suites.amqp_programs import wire as amqp

SECONDS = 10.0
RESET = struct.pack("ii", 1, 0)
NAMES = {index: method.name for index, method in amqp.BY_INDEX.items()}


class Refused(OSError):
    """The broker ended what was begun; the words say how."""


class Wire:
    """A connection on loopback. It never raises for what the broker does, but for ``login`` and ``expect``."""

    def __init__(self, port: int, seconds: float = SECONDS) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()
        self.ended = ""
        self.counts: dict[str, int] = {}

    # -- saying

    def send(self, data: bytes, seconds: float = SECONDS) -> bool:
        """All of it; False where the broker has ended the connection, or reads no further for so long."""
        self.socket.settimeout(seconds)
        try:
            self.socket.sendall(data)
        except TimeoutError:
            return False
        except OSError:
            self.ended = self.ended or "closed"
            return False
        return True

    def method(self, channel: int, name: str, **arguments: Any) -> bool:
        """One method."""
        return self.send(method(channel, name, **arguments))

    def pour(self, data: bytes, seconds: float) -> int:
        """The same again and again for so long, without reading an answer; returns how often it went out."""
        deadline, count = time.monotonic() + seconds, 0
        while (left := deadline - time.monotonic()) > 0 and self.send(data, max(left, 0.01)):
            count += 1
        return count

    def reset(self) -> None:
        """End it with a RST, as a process that is killed with data unread does."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.close()

    def close(self) -> None:
        """Drop the socket."""
        self.socket.close()

    # -- listening

    def frame(self, seconds: float = SECONDS) -> tuple[int, int, bytes] | None:
        """The next frame: kind, channel, payload. None if none comes so soon, or the connection is over."""
        deadline = time.monotonic() + seconds
        while True:
            size = 8 + int.from_bytes(self._buffer[3:7], "big") if len(self._buffer) >= 7 else 8
            if len(self._buffer) >= size:
                kind, channel = self._buffer[0], int.from_bytes(self._buffer[1:3], "big")
                payload = bytes(self._buffer[7 : size - 1])
                del self._buffer[:size]
                return kind, channel, payload
            if self.ended or not self._more(deadline - time.monotonic()):
                return None

    def _more(self, seconds: float) -> bool:
        if seconds <= 0:
            return False
        self.socket.settimeout(seconds)
        try:
            data = self.socket.recv(1 << 18)
        except TimeoutError:
            return False
        except OSError:
            data = b""
        if not data:
            self.ended = self.ended or "closed"
            return False
        self._buffer += data
        return True

    def expect(self, name: str, seconds: float = 60.0) -> dict[str, Any]:
        """Read until this method comes; returns its fields. Raises Refused if it does not."""
        deadline = time.monotonic() + seconds
        while (found := self.frame(deadline - time.monotonic())) is not None:
            kind, _, payload = found
            if kind != amqp.METHOD:
                continue
            said = NAMES.get(payload[:4], "")
            self.counts[said] = self.counts.get(said, 0) + 1
            if said == name:
                return amqp.read_method(payload)[1]
            if said in ("connection.close", "channel.close"):
                raise Refused(_closing(payload))
        raise Refused(self.ended or f"no {name} within {seconds:.0f} s")

    def login(self, user: str, password: str, frame_max: int = 131072) -> None:
        """From the protocol header to connection.open-ok. Raises Refused."""
        self.send(amqp.PROTOCOL_HEADER)
        self.expect("connection.start")
        self.send(start_ok(user, password))
        self.expect("connection.tune")
        self.method(0, "connection.tune-ok", channel_max=2047, frame_max=frame_max)
        self.method(0, "connection.open", vhost="/")
        self.expect("connection.open-ok")

    def outcome(self, seconds: float = 2.0) -> str:
        """How the broker answers in the end, in a few words: an error with its code, ``closed``, or ``goes on``."""
        deadline = time.monotonic() + seconds
        while (found := self.frame(deadline - time.monotonic())) is not None:
            kind, _, payload = found
            if kind == amqp.METHOD and NAMES.get(payload[:4]) in ("connection.close", "channel.close"):
                return _closing(payload)
        return self.ended or "goes on"

    def drain(self, seconds: float) -> int:
        """Read for so long, at most until the connection ends; returns the number of frames."""
        deadline, count = time.monotonic() + seconds, 0
        while self.frame(deadline - time.monotonic()) is not None:
            count += 1
        return count


def _closing(payload: bytes) -> str:
    name, fields = amqp.read_method(payload)
    text = fields["text"].split(" - ")[0]
    return f"{name.split('.')[0]} closed: {fields['code']} {text[:30]}".strip()


def method(channel: int, name: str, **arguments: Any) -> bytes:
    """A method's frame."""
    return amqp.frame(amqp.METHOD, channel, amqp.method(name, arguments))


def message(channel: int, exchange: str, key: str, body: bytes, most: int = 131064, **properties: Any) -> bytes:
    """A publish with its content, as frames of at most so many octets of payload."""
    frames = [method(channel, "basic.publish", exchange=exchange, key=key)]
    frames.append(amqp.frame(amqp.HEADER, channel, amqp.content_header(len(body), properties)))
    frames += [amqp.frame(amqp.BODY, channel, body[at : at + most]) for at in range(0, len(body), most)]
    return b"".join(frames)


def start_ok(user: str, password: str, mechanism: str = "PLAIN") -> bytes:
    """What a client says to log in. It can be told why it is refused."""
    able = [["capabilities", "F", [["authentication_failure_close", "t", True]]]]
    response = f"\0{user}\0{password}"
    return method(0, "connection.start-ok", properties=able, mechanism=mechanism, response=response, locale="en_US")
