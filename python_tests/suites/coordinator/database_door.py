"""A door to a PostgreSQL that loses a request, or the answer to it: the connection is closed at that moment."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType


class DatabaseDoor:
    """Passes clients through to ``port``. A context manager.

    ``lose_request``, ``lose_answer``: the connection on which these bytes come next is closed, and the server does not
    see them. ``meanwhile``: what happens before its client notices. ``shut``: no client is let in any more.
    ``silent``: the server is not told, as of a machine that has lost its power.
    """

    def __init__(self, port: int) -> None:
        self.lose_request: bytes | None = None
        self.lose_answer: bytes | None = None
        self.meanwhile: Callable[[], object] = lambda: None
        self.lost = 0
        self.shut = False
        self.silent = False
        self._to = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, name="database door", daemon=True).start()

    def __enter__(self) -> DatabaseDoor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listening.close()
        _close(*self._open)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                if self.shut:
                    client.close()
                    continue
                server = socket.create_connection(("127.0.0.1", self._to))
                self._open += client, server
                threading.Thread(target=self._pass_on, args=(client, server, "lose_request"), daemon=True).start()
                threading.Thread(target=self._pass_on, args=(server, client, "lose_answer"), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, which: str) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                lost: bytes | None = getattr(self, which)
                if lost is not None and lost in data:
                    self.lost += 1
                    setattr(self, which, None)
                    self.meanwhile()
                    if self.silent:
                        _close(source if which == "lose_request" else sink)
                        return
                    break
                sink.sendall(data)
        _close(source, sink)


def _close(*ends: socket.socket) -> None:
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
