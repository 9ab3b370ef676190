"""A client that sends what it is told and shows every frame that comes back."""

from __future__ import annotations

import re
import socket
from typing import Any

from pamqp import base, body, commands, frame, header, heartbeat

Frames = base.Frame | header.ContentHeader | body.ContentBody | heartbeat.Heartbeat


class RawClient:
    """One connection; opened with guest/guest unless ``open`` is left to the test."""

    def __init__(self, port: int, open_now: bool = True, **client_properties: Any) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self._buffer = b""
        self.closed = False
        self.refused = False
        if open_now:
            self.open(client_properties or DEFAULT_PROPERTIES)

    def open(self, client_properties: dict[str, Any]) -> None:
        self.send_bytes(b"AMQP\x00\x00\x09\x01")
        self.next()
        self.send(0, commands.Connection.StartOk(client_properties, "PLAIN", "\0guest\0guest", "en_US"))
        self.next()
        self.send(0, commands.Connection.TuneOk(2047, 131072, 0), commands.Connection.Open("/"))
        self.next()

    def send_bytes(self, data: bytes, timeout: float = 10.0) -> None:
        self._socket.settimeout(timeout)
        self._socket.sendall(data)

    def send(self, channel: int, *frames: Any) -> None:
        self.send_bytes(b"".join(frame.marshal(each, channel) for each in frames))

    def next(self, timeout: float = 10.0) -> tuple[int, Any] | None:
        """The next frame with its channel; None when the broker closed the connection. TimeoutError."""
        while True:
            if len(self._buffer) >= 8 and self._buffer[:4] == b"AMQP":
                header_bytes, self._buffer = self._buffer[:8], self._buffer[8:]
                return 0, header_bytes
            if len(self._buffer) >= 7:
                size = 8 + int.from_bytes(self._buffer[3:7], "big")
                if len(self._buffer) >= size:
                    whole, self._buffer = self._buffer[:size], self._buffer[size:]
                    _, channel, value = frame.unmarshal(whole)
                    self.refused |= isinstance(value, commands.Connection.Close | commands.Connection.CloseOk)
                    return channel, value
            self._socket.settimeout(timeout)
            try:
                data = self._socket.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                self.closed = True
                return None
            self._buffer += data

    def close(self) -> None:
        self._socket.close()


DEFAULT_PROPERTIES: dict[str, Any] = {
    "capabilities": {
        "authentication_failure_close": True,
        "basic.nack": True,
        "connection.blocked": True,
        "consumer_cancel_notify": True,
        "publisher_confirms": True,
    }
}


NUMBER = "(byte|unsignedbyte|short|unsignedshort|signedint|unsignedint|long)"
"""RabbitMQ tells sizes of numbers apart in its texts; here they are one type."""


def show(received: tuple[int, Any] | None) -> str:
    """One frame as a line of text; what a broker makes up is left out."""
    if received is None:
        return "connection lost"
    channel, value = received
    if isinstance(value, bytes):
        return repr(value)
    if isinstance(value, header.ContentHeader):
        properties = {key: item for key, item in value.properties if item not in (None, "")}
        return f"{channel} content {value.body_size} {properties}"
    if isinstance(value, body.ContentBody):
        return f"{channel} body {value.value!r}"
    fields = " ".join(f"{key}={item!r}" for key, item in value)
    fields = re.sub(rf"(type[, ]'?){NUMBER}\b", r"\1number", fields)
    return re.sub(r"amq\.(gen|ctag)-[\w-]+", r"amq.\1-*", f"{channel} {value.name} {fields}").strip()
