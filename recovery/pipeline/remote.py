"""RemoteLog: the log of a running node, read over its peer port (``recovery.reader.log_wire``); blocking."""

from __future__ import annotations

import socket
from collections.abc import Iterator

from ha.messages.greeting import Hello, agreed, greeting
from recovery.pipeline.source.offsets import Cluster
from recovery.reader.declarations import declared_by
from recovery.reader.log_wire import (
    LENGTH,
    MAX_ANSWER,
    MAX_PORTION,
    READ_VERSION,
    Answer,
    AskExtent,
    AskFrames,
    LogExtent,
    LogFrames,
    NotThere,
    Question,
    ReadHello,
    decode_answer,
    decode_greeting,
    framed,
)
from recovery.reader.marks import Mark
from recovery.store.log import LogReclaimed
from txobserver.frames import Frame, FrameError, decode_frame
from txobserver.ports.store import StoreError

DEADLINE_SECONDS = 15.0
FIRST_STEP, LAST_STEP = 256, 1 << 20
"""Events that are looked back at a time: the first steps are short, since most of what is looked for is near."""


class RemoteLog:
    """Of the node whose peer port is at ``address``, ``host:port``.

    With ``cluster``, a node of another one is refused, and with ``cluster_id`` one of a cluster of that name that was
    founded apart; with ``node``, any other node: addresses are given anew, and
    where a reader runs, ``localhost`` may be another machine than where the query was planned.

    A connection is made when it is needed, and ends with ``close`` or with the object. Every method raises StoreError
    when the node cannot be reached, or says something else than a node says.
    """

    def __init__(self, address: str, cluster: str | None = None, node: str | None = None, cluster_id: str = "") -> None:
        self.address = address
        self._cluster = cluster
        self._node = node
        self._cluster_id = cluster_id
        self._socket: socket.socket | None = None
        self._hello: Hello | None = None

    @property
    def hello(self) -> Hello:
        """Which node this is."""
        self._connected()
        assert self._hello is not None
        return self._hello

    def extent(self) -> LogExtent:
        """How far its log goes."""
        answer = self._ask(AskExtent())
        if not isinstance(answer, LogExtent):
            raise self._unexpected(answer)
        return answer

    def names(self) -> dict[int, str]:
        """The queues that there are."""
        return self.extent().queues

    def frames(self, first: int, last: int, start: Mark | None = None) -> Iterator[Frame]:
        """Frames with events from ``first`` to ``last``, in order, up to the commit point. Raises LogReclaimed.

        A node that cannot give what has passed its commit point says so; it gives nothing only of what has not.
        """
        while first <= last:
            found = self._frames(first, last)
            yield from found
            if not found:
                return
            first = found[-1].last + 1

    def backwards(self, before: int) -> Iterator[Frame]:
        """Frames with events before a sequence, the latest first, as far back as the log goes.

        Raises StoreError where there should be some and none comes.
        """
        begins = self.extent().first
        step = FIRST_STEP
        while before > begins:
            try:
                found = list(self.frames(max(begins, before - step), before - 1))
            except LogReclaimed:  # in between
                if begins == (begins := self.extent().first):
                    raise
                continue
            if not found or found[-1].last < before - 1:
                raise StoreError(f"{self.address} did not give event {before - 1}, of which it said that it is there")
            yield from reversed(found)
            before, step = found[0].first, min(step * 4, LAST_STEP)

    def declared(self, before: int) -> dict[int, str]:
        """Queues declared before a sequence, as far back as the log goes, also those that have been deleted since."""
        found: dict[int, str] = {}
        for frame in self.backwards(before):
            for number, name in declared_by(frame).items():
                found.setdefault(number, name)
        return found

    def close(self) -> None:
        """End the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _frames(self, first: int, last: int) -> list[Frame]:
        answer = self._ask(AskFrames(first, last, MAX_PORTION))
        if not isinstance(answer, LogFrames):
            raise self._unexpected(answer)
        try:
            found = [decode_frame(data)[0] for data in answer.frames]
        except FrameError as error:
            raise StoreError(f"{self.address} sent a frame that is damaged: {error}") from error
        expected = first
        for frame in found:
            if not frame.first <= expected <= frame.last:
                raise StoreError(f"{self.address} sent events from {frame.first} on where {expected} was asked for")
            expected = frame.last + 1
        return found

    def _unexpected(self, answer: Answer) -> StoreError:
        if isinstance(answer, NotThere):
            text = f"{self.address}: {answer.reason}"
            return LogReclaimed(text) if answer.reclaimed else StoreError(text)
        return StoreError(f"{self.address} answers something else than it was asked")

    def _ask(self, question: Question) -> Answer:
        connection = self._connected()
        try:
            connection.sendall(framed(question))
            return decode_answer(self._message(connection))
        except (OSError, ValueError) as error:
            self.close()
            raise StoreError(f"{self.address} does not answer: {error or type(error).__name__}") from error

    def _connected(self) -> socket.socket:
        if self._socket is not None:
            return self._socket
        host, _, port = self.address.rpartition(":")
        try:
            connection = socket.create_connection((host, int(port)), DEADLINE_SECONDS)
        except (OSError, ValueError, OverflowError) as error:
            raise StoreError(f"{self.address} cannot be reached: {error}") from error
        try:
            hello = decode_greeting(self._message(connection))
            if not isinstance(hello, Hello):
                raise ValueError("it greets otherwise than a node")
            agreed(greeting(hello.cluster, "this reader", "", 0), hello)
            self._check_whose(hello)
            connection.sendall(framed(ReadHello(READ_VERSION, hello.cluster)))
        except (OSError, ValueError) as error:
            connection.close()
            raise StoreError(f"{self.address} cannot be read: {error or type(error).__name__}") from error
        self._socket, self._hello = connection, hello
        return connection

    def _check_whose(self, hello: Hello) -> None:
        """Raises ValueError for another node or cluster than is wanted. An identity that one does not know is any."""
        theirs = Cluster(hello.cluster, hello.cluster_id)
        ours = Cluster(hello.cluster if self._cluster is None else self._cluster, self._cluster_id)
        if theirs.name != ours.name or theirs.is_another(ours):
            raise ValueError(f"it belongs to cluster {theirs}, not to {ours}")
        if self._node not in (None, hello.node):
            raise ValueError(f"it is node {hello.node}, and node {self._node} was found there before")

    @staticmethod
    def _message(connection: socket.socket) -> bytes:
        (length,) = LENGTH.unpack(_exactly(connection, LENGTH.size))
        if length > MAX_ANSWER:
            raise ValueError(f"a message of {length} bytes")
        return _exactly(connection, length)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = connection.recv(min(size - len(data), 1 << 20))
        if not more:
            raise ValueError("it ends the connection")
        data += more
    return bytes(data)
