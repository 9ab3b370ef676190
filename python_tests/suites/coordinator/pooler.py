"""A pooler that knows a database by another name, as pgbouncer does with ``app = host=… dbname=bank``."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo

REQUESTS = (80877103, 80877104)
"""Codes by which a client asks for TLS or GSS before it starts."""


class Pooler:
    """A context manager: passes connections on, and to the database of ``dsn`` those that ask for ``alias``."""

    def __init__(self, dsn: str, alias: str) -> None:
        found = conninfo_to_dict(dsn)
        self._server = str(found["host"]), int(str(found["port"]))
        self._names = f"database\0{alias}\0".encode(), f"database\0{found['dbname']}\0".encode()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = [self._listening]
        port = self._listening.getsockname()[1]
        self.dsn = make_conninfo(dsn, host="127.0.0.1", port=port, dbname=alias)

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self._sockets:
            end(each)

    def _accept(self) -> None:
        try:
            while True:
                client, _ = self._listening.accept()
                self._sockets.append(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()
        except OSError:  # it was closed
            return

    def _serve(self, client: socket.socket) -> None:
        start = start_packet(client)
        server = socket.create_connection(self._server)
        self._sockets.append(server)
        body = start.replace(*self._names)
        server.sendall(struct.pack("!I", len(body) + 4) + body)
        threading.Thread(target=pump, args=(server, client), daemon=True).start()
        pump(client, server)


def start_packet(client: socket.socket) -> bytes:
    """Without its length. A request before it is answered with a no."""
    while True:
        (length,) = struct.unpack("!I", exactly(client, 4))
        body = exactly(client, length - 4)
        if int.from_bytes(body[:4], "big") not in REQUESTS:
            return body
        client.sendall(b"N")


def exactly(client: socket.socket, count: int) -> bytes:
    """So many bytes. Raises EOFError."""
    found = b""
    while len(found) < count:
        data = client.recv(count - len(found))
        if not data:
            raise EOFError
        found += data
    return found


def pump(here: socket.socket, there: socket.socket) -> None:
    """Pass on what comes, until one of them ends."""
    with suppress(OSError):
        while data := here.recv(65536):
            there.sendall(data)
    end(here)
    end(there)


def end(each: socket.socket) -> None:
    """Close it, and end the calls of threads that wait for it."""
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
