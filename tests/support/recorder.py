"""Recorder: a relay that keeps every byte that passes, both ways; in threads."""

from __future__ import annotations

import contextlib
import socket
import threading


class Recorder:
    """Listens at ``port`` on loopback and passes on to ``target``. ``said``: what has passed, in the order it came."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._said: list[bytes] = []
        self._first: list[bytes] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def said(self) -> bytes:
        """All that has passed since ``forget``."""
        return b"".join(self._said)

    @property
    def begun(self) -> list[bytes]:
        """The first bytes that each connection's dialler has said since ``forget``."""
        return list(self._first)

    def forget(self) -> None:
        """What has passed."""
        self._said.clear()
        self._first.clear()

    def close(self) -> None:
        """End it, with its connections."""
        self._server.close()
        for each in list(self._open):
            self._end(each)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                came, _ = self._server.accept()
                try:
                    there = socket.create_connection(("127.0.0.1", self._target), 10)
                except OSError:
                    came.close()
                    continue
                there.settimeout(None)
                self._open |= {came, there}
                threading.Thread(target=self._carry, args=(came, there, True), daemon=True).start()
                threading.Thread(target=self._carry, args=(there, came, False), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, forwards: bool) -> None:
        first = forwards
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self._said.append(data)
                if first:
                    self._first.append(data)
                    first = False
                target.sendall(data)
        self._end(source)
        self._end(target)

    @staticmethod
    def _end(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()
