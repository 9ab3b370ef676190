"""A client of one connection that sends octets and gives back what came, frame by frame."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable
from typing import Any, NamedTuple

from python_tests.suites.amqp_programs import wire
from python_tests.suites.amqp_programs.address import Address

SECONDS = 60.0
"""After which an answer that does not come is an error."""

CAPABILITIES = ("authentication_failure_close", "basic.nack", "consumer_cancel_notify", "publisher_confirms")


class Received(NamedTuple):
    """A method with its content, if it has one. ``name`` is ``heartbeat`` for a heartbeat."""

    channel: int
    name: str
    fields: dict[str, Any]
    properties: bytes = b""
    body: bytes = b""


class Silence(RuntimeError):
    """An answer did not come in time."""


class Client:
    """Opened. ``ended``: the broker has closed the socket. ``product``: what the broker calls itself, and its version,
    as ``RabbitMQ 3.10``. RuntimeError if the broker refuses the connection.
    """

    def __init__(self, address: Address, frame_max: int = 131072) -> None:
        self._address = address
        self._socket = socket.create_connection((address.host, address.port), timeout=SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self._partial: dict[int, Received] = {}
        self._missing: dict[int, int] = {}
        self.ended = False
        self.frame_max = frame_max
        self.product = ""
        self._open()

    def _open(self) -> None:
        self.send_bytes(wire.PROTOCOL_HEADER)
        start = self.next()
        self.product = _product(start.fields["properties"]) if start else ""
        able = [[name, "t", True] for name in CAPABILITIES]
        start_ok = {
            "properties": [["capabilities", "F", able]],
            "mechanism": "PLAIN",
            "response": f"\0{self._address.user}\0{self._address.password}",
            "locale": "en_US",
        }
        self.send(0, "connection.start-ok", start_ok)
        self.next()
        self.send(0, "connection.tune-ok", {"channel_max": 2047, "frame_max": self.frame_max})
        self.send(0, "connection.open", {"vhost": self._address.vhost})
        answer = self.next()
        if answer is None or answer.name != "connection.open-ok":
            raise RuntimeError(f"{self._address} takes no connection: {answer.fields['text'] if answer else 'closed'}")

    def send_bytes(self, data: bytes) -> None:
        """Octets as they are; nothing if the broker has closed the socket."""
        if not self.ended:
            try:
                self._socket.sendall(data)
            except (BrokenPipeError, ConnectionResetError):
                self.ended = True

    def send(self, channel: int, name: str, arguments: dict[str, Any] | None = None) -> None:
        """One method."""
        self.send_bytes(wire.frame(wire.METHOD, channel, wire.method(name, arguments or {})))

    def next(self) -> Received | None:
        """The next method with its content; None if the connection is over. Silence if nothing comes."""
        while True:
            size = 8 + int.from_bytes(self._buffer[3:7], "big") if len(self._buffer) >= 7 else 8
            if len(self._buffer) >= size:
                taken, self._buffer = self._buffer[:size], self._buffer[size:]
                if (whole := self._frame(taken)) is not None:
                    return whole
                continue
            if self.ended:
                return None
            try:
                data = self._socket.recv(262144)
            except TimeoutError:
                raise Silence(f"{self.product} has said nothing for {SECONDS} seconds") from None
            except ConnectionResetError:
                data = b""
            if not data:
                self.ended = True
                return None
            self._buffer += data

    def _frame(self, data: bytes) -> Received | None:
        kind, channel, payload = data[0], int.from_bytes(data[1:3], "big"), data[7:-1]
        if kind == wire.HEARTBEAT:
            return Received(channel, "heartbeat", {})
        if kind == wire.METHOD:
            received = Received(channel, *wire.read_method(payload))
            if received.name not in wire.CONTENT:
                return received
            self._partial[channel] = received
            return None
        begun = self._partial[channel]
        if kind == wire.HEADER:
            self._missing[channel] = int.from_bytes(payload[4:12], "big")
            begun = begun._replace(properties=payload[12:])
        else:
            self._missing[channel] -= len(payload)
            begun = begun._replace(body=begun.body + payload)
        self._partial[channel] = begun
        return self._partial.pop(channel) if not self._missing[channel] else None

    def until(self, names: Iterable[str]) -> Received:
        """The next of these methods; what comes before it is lost. Silence if the connection ends before."""
        wanted = set(names)
        while (received := self.next()) is not None:
            if received.name in wanted:
                return received
        raise Silence(f"{self.product} has ended the connection before one of {sorted(wanted)}")

    def close(self) -> None:
        """Drop the socket."""
        self._socket.close()
        self.ended = True


def _product(properties: str) -> str:
    """From the octets of the server's properties: strings are a letter S, four octets of length, and a text."""
    product = re.search(r"productS....([A-Za-z]+)", properties, re.DOTALL)
    version = re.search(r"versionS....([0-9]+\.[0-9]+)", properties, re.DOTALL)
    return " ".join(found[1] for found in (product, version) if found)
