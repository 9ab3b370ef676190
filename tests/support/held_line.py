"""HeldLine: a way to a port of this host on which nothing comes through while it is held, as when a network is cut."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class HeldLine:
    """A context manager. Connections to ``port`` lead to ``target``; what is sent while it is held arrives later.

    ``delay``: seconds that a connection takes.
    """

    def __init__(self, target: int, delay: float = 0.0) -> None:
        self._target = target
        self._delay = delay
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._open = threading.Event()
        self._open.set()
        self._ended = False
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> HeldLine:
        self._begin(self._accept)
        return self

    def __exit__(self, *error: object) -> None:
        self._ended = True
        self._open.set()
        for each in (self._listening, *self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nothing comes through, in either direction, and no connection is refused or ended."""
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()

    def _begin(self, job: object, *words: object) -> None:
        threading.Thread(target=job, args=words, daemon=True).start()  # type: ignore[arg-type]

    def _accept(self) -> None:
        with suppress(OSError):
            while not self._ended:
                near, _ = self._listening.accept()
                self._sockets.append(near)
                self._begin(self._connect, near)

    def _connect(self, near: socket.socket) -> None:
        time.sleep(self._delay)
        self._open.wait()
        try:
            far = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            near.close()
            return
        self._sockets.append(far)
        self._begin(self._carry, far, near)
        self._carry(near, far)

    def _carry(self, of: socket.socket, to: socket.socket) -> None:
        with suppress(OSError):
            while piece := of.recv(65536):
                self._open.wait()
                to.sendall(piece)
        for each in (of, to):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
