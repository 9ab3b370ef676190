"""A door to a node that loses a request, or the answer to it: both ends of the connection are closed at that moment."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType

METHOD = 1
"""Type of a frame that holds a method (AMQP 0-9-1, 4.2.3)"""

HEADER = 8
"""Bytes that a client begins with"""


class CuttingDoor:
    """Passes clients through to ``port``. ``cut(index)`` ends the connection on which the next such method comes.

    The broker does not see that frame, nor anything behind it. A context manager.
    """

    def __init__(self, port: int) -> None:
        self._to = port
        self._cut: int | None = None
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, name="door", daemon=True).start()

    @property
    def url(self) -> str:
        """For clients."""
        return f"amqp://guest:guest@127.0.0.1:{self._listening.getsockname()[1]}/"

    def cut(self, index: int) -> None:
        """Lose the next method with this number: class and method in 16 bits each."""
        self._cut = index

    def cut_off(self) -> None:
        """End all connections that are open now."""
        ends, self._open = self._open, []
        _close(*ends)

    @property
    def has_cut(self) -> bool:
        """Whether it has been done."""
        return self._cut is None

    def __enter__(self) -> CuttingDoor:
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
                node = socket.create_connection(("127.0.0.1", self._to))
                self._open += client, node
                for source, sink, skip in ((client, node, HEADER), (node, client, 0)):
                    threading.Thread(target=self._pass_on, args=(source, sink, skip), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, skip: int) -> None:
        """Frame by frame, behind the first ``skip`` bytes."""
        with contextlib.suppress(OSError, EOFError):
            read = source.makefile("rb").read
            if skip:
                sink.sendall(_exactly(read, skip))
            while True:
                head = _exactly(read, 7)
                rest = _exactly(read, int.from_bytes(head[3:7], "big") + 1)
                if head[0] == METHOD and int.from_bytes(rest[:4], "big") == self._cut:
                    self._cut = None
                    break
                sink.sendall(head + rest)
        _close(source, sink)


def _exactly(read: Callable[[int], bytes], count: int) -> bytes:
    data = read(count)
    if len(data) < count:
        raise EOFError
    return data


def _close(*ends: socket.socket) -> None:
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
