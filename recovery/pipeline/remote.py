"""RemoteLog: the log of a running node, read over its peer port (``recovery.reader.log_wire``); blocking."""

from __future__ import annotations

from collections.abc import Iterator

from ha.messages.greeting import Hello, agreed, greeting
from recovery.pipeline.source.offsets import Cluster
from recovery.reader.declarations import declared_by
from recovery.reader.log_wire import (
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
    encode,
)
from recovery.reader.marks import Mark
from recovery.reader.node_connection import NodeConnection, NotReached, reader_secret
from recovery.reader.tls_socket import ReaderCertificate
from recovery.store.log import LogReclaimed
from txobserver.frames import Frame, FrameError, decode_frame
from txobserver.ports.store import StoreError

FIRST_STEP, LAST_STEP = 256, 1 << 20
"""Events that are looked back at a time: the first steps are short, since most of what is looked for is near."""


class RemoteLog:
    """Of the node whose peer port is at ``address``, ``host:port``.

    With ``cluster``, a node of another one is refused, and with ``cluster_id`` one of a cluster of that name that was
    founded apart; with ``node``, any other node: addresses are given anew, and
    where a reader runs, ``localhost`` may be another machine than where the query was planned. ``secret_file``: where
    the secret stands by which it proves itself (``recovery.reader.node_connection``); ``certificate``: its files for
    TLS, without which it reads in clear.

    A connection is made when it is needed, and ends with ``close`` or with the object. Every method raises StoreError
    when the node cannot be reached, or says something else than a node says.
    """

    def __init__(
        self,
        address: str,
        cluster: str | None = None,
        node: str | None = None,
        cluster_id: str = "",
        secret_file: str | None = None,
        certificate: ReaderCertificate | None = None,
    ) -> None:
        self.address = address
        self._cluster = cluster
        self._node = node
        self._cluster_id = cluster_id
        self._secret_file = secret_file
        self._certificate = certificate
        self._connection: NodeConnection | None = None

    @property
    def hello(self) -> Hello:
        """Which node this is."""
        return self._connected().hello

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
        if self._connection is not None:
            self._connection.close()
            self._connection = None

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
            connection.send(encode(question))
            return decode_answer(connection.receive())
        except (OSError, ValueError) as error:
            self.close()
            raise StoreError(f"{self.address} does not answer: {error or type(error).__name__}") from error

    def _connected(self) -> NodeConnection:
        if self._connection is not None:
            return self._connection
        try:
            secret = reader_secret(self._secret_file, self._certificate is not None)
        except ValueError as error:
            raise StoreError(f"{self.address} cannot be read: {error}") from error
        try:
            connection = NodeConnection(self.address, secret, self._certificate)
        except (OSError, ValueError) as error:
            how = "reached" if isinstance(error, NotReached) else "read"
            raise StoreError(f"{self.address} cannot be {how}: {error or type(error).__name__}") from error
        hello = connection.hello
        try:
            agreed(greeting(hello.cluster, "this reader", "", 0), hello)
            self._check_whose(hello)
            connection.send(encode(ReadHello(READ_VERSION, hello.cluster)))
        except (OSError, ValueError) as error:
            connection.close()
            raise StoreError(f"{self.address} cannot be read: {error or type(error).__name__}") from error
        self._connection = connection
        return connection

    def _check_whose(self, hello: Hello) -> None:
        """Raises ValueError for another node or cluster than is wanted. An identity that one does not know is any."""
        theirs = Cluster(hello.cluster, hello.cluster_id)
        ours = Cluster(hello.cluster if self._cluster is None else self._cluster, self._cluster_id)
        if theirs.name != ours.name or theirs.is_another(ours):
            raise ValueError(f"it belongs to cluster {theirs}, not to {ours}")
        if self._node not in (None, hello.node):
            raise ValueError(f"it is node {hello.node}, and node {self._node} was found there before")
