"""Serves the log of this node to readers elsewhere, up to the commit point, and disturbs the node little.

What has passed the commit point is the feed's to say (``ha.feed.feed``); it gives what it has in memory, and what is
older is read from the disk, with the same answer. One thread reads for all readers, a portion at a time, and each
reader rests for twice as long as its portion took (``ha.catchup.throttle``). A question is taken when the answer before
it has left the process, so nothing gathers for a reader that is slow.

Every question is answered, also when the read fails in a way that was not foreseen: the thread changes nothing of
the node, so its error says nothing about the node, and is logged and told to the reader
(``reader_whose_read_fails_stays_mute``).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import cast

from broker_plugin.guard import Guard, GuardedProtocol
from broker_plugin.logs.events import ReaderRefused, ReaderUnanswered
from broker_plugin.logs.formats import tell
from broker_plugin.logs.seldom import Seldom
from broker_plugin.node.refusals import address_of
from ha.catchup.throttle import LONGEST_REST, RESTS
from ha.feed.feed import Feed, Passed, up_to
from ha.messages.proof import LinkSession
from recovery.reader.landmarks import Landmarks
from recovery.reader.log_wire import (
    MAX_QUESTION,
    READ_VERSION,
    Answer,
    AskExtent,
    AskFrames,
    LogExtent,
    LogFrames,
    NotThere,
    Question,
    ReadHello,
    decode_question,
    encode,
)
from recovery.reader.marks import Mark
from recovery.reader.node_log import NodeLog
from recovery.store.log import LogReclaimed
from recovery.store.segment import segment_path
from txobserver.ids import Position
from txobserver.ports.store import StoreError

log = logging.getLogger("txha.readers")
MAX_READERS = 64
SILENCE_SECONDS = 60.0
"""A reader that asks nothing for so long, or has not taken its answer by then, is disconnected: others may wait."""


class LogServer:
    """``feed`` and ``queues`` are asked for in the event loop, whenever a reader asks."""

    def __init__(
        self,
        guard: Guard,
        directory: Path,
        cluster: str,
        feed: Callable[[], Feed],
        queues: Callable[[], dict[int, str]],
    ) -> None:
        self.guard = guard
        self.log = NodeLog(directory)
        self.landmarks = Landmarks()
        self.tail: Mark | None = None
        self.feed = feed
        self.queues = queues
        self.thread = ThreadPoolExecutor(1, "log-reader")
        self.readers: set[LogReaderProtocol] = set()
        self.unanswered = Seldom()
        """For the thread alone"""
        self._refusals = Seldom()
        self._stopped = False
        self._cluster = cluster

    def accept(self, transport: asyncio.Transport, hello: ReadHello, session: LinkSession, rest: bytes) -> None:
        """A connection is a reader's; ``rest`` came behind its greeting. Raises ValueError for one that is refused."""
        if hello.version != READ_VERSION:
            raise ValueError(f"it reads with version {hello.version}; this version of txha serves {READ_VERSION}")
        if hello.cluster != self._cluster:
            raise ValueError(f"it reads cluster {hello.cluster}, not {self._cluster}")
        if self._stopped:
            raise ValueError("this node is being stopped")
        if len(self.readers) >= MAX_READERS:
            raise ValueError(f"{MAX_READERS} readers are here already")
        protocol = LogReaderProtocol(self, session)
        self.readers.add(protocol)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(rest)

    def refused(self, transport: asyncio.BaseTransport, reason: str) -> None:
        """The connection of a reader is closed."""
        if (unsaid := self._refusals.due()) is not None:
            tell(log, logging.WARNING, ReaderRefused(reason, address_of(transport), unsaid))

    def stop(self) -> None:
        """End everything; who greets from now on is refused."""
        self._stopped = True
        for reader in list(self.readers):
            reader.close()
        self.thread.shutdown(wait=False, cancel_futures=True)


class LogReaderProtocol(GuardedProtocol):
    """One reader's connection."""

    def __init__(self, server: LogServer, session: LinkSession) -> None:
        self.guard = server.guard
        self._server = server
        self._session = session
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._answering: asyncio.Task[object] | None = None
        """Until its answer has left the process: what waits in memory for a reader is one answer at most."""
        self._answered = False
        self._leaving = False
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It has greeted."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(0)  # so we are told when anything waits to leave, and when nothing does
        self._wait()

    def pause_writing(self) -> None:
        """The reader has not taken all of an answer yet."""
        self._leaving = True

    def resume_writing(self) -> None:
        """It has."""
        self._leaving = False
        self._look_whether_it_has_left()

    def data_received(self, data: bytes) -> None:
        """A question, or a part of one."""
        if self._transport is None:
            return
        self._buffer += data
        try:
            if self._answering is not None:
                raise ValueError("it asks before it is answered")
            found = self._session.unsealer.message(self._buffer, 0, MAX_QUESTION)
            if found is None:
                return
            question = decode_question(found[0])
            del self._buffer[: found[1]]
            if self._buffer:
                raise ValueError("it asks before it is answered")
        except ValueError as error:
            self._server.refused(self._transport, str(error))
            self.close()
            return
        self._answering = self.guard.create_task(self._answer(question))

    def connection_lost(self, error: Exception | None) -> None:
        """It has gone."""
        self.close()

    def close(self) -> None:
        """End the connection."""
        transport, self._transport = self._transport, None
        self._server.readers.discard(self)
        self._buffer.clear()
        if self._deadline is not None:
            self._deadline.cancel()
        if self._answering is not None:
            self._answering.cancel()
        if transport is not None:
            transport.abort()

    def _wait(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.guard.call_later(SILENCE_SECONDS, self.close)

    async def _answer(self, question: Question) -> None:
        self._wait()
        began = time.monotonic()
        feed = self._server.feed()
        known: Answer | None = _from_memory(feed, question) if isinstance(question, AskFrames) else None
        if known is not None:
            answer = self._sealed(known)
        else:
            commit, queues = feed.commit, self._server.queues() if isinstance(question, AskExtent) else {}
            answer = await self.guard.loop.run_in_executor(self._server.thread, self._read, question, commit, queues)
        if isinstance(question, AskFrames):
            await asyncio.sleep(min(RESTS * (time.monotonic() - began), LONGEST_REST))
        if self._transport is not None:
            self._transport.write(answer)
            self._answered = True
            self._look_whether_it_has_left()

    def _look_whether_it_has_left(self) -> None:
        if self._answered and not self._leaving:
            self._answering, self._answered = None, False

    def _sealed(self, answer: Answer) -> bytes:
        """As it is sent. There is one at a time, so it may be made in the thread."""
        return self._session.sealer.seal(encode(answer))

    def _read(self, question: Question, commit: int, queues: dict[int, str]) -> bytes:
        """In the thread."""
        return self._sealed(self._found(question, commit, queues))

    def _found(self, question: Question, commit: int, queues: dict[int, str]) -> Answer:
        try:
            return self._extent(commit, queues) if isinstance(question, AskExtent) else self._frames(question, commit)
        except (StoreError, OSError) as error:
            return NotThere(str(error), isinstance(error, LogReclaimed))
        except Exception as error:
            if (unsaid := self._server.unanswered.due()) is not None:
                tell(log, logging.ERROR, ReaderUnanswered(type(error).__name__, str(error), unsaid), error=error)
            self._server.landmarks = Landmarks()
            reason = f"its log cannot be read, {type(error).__name__}: {error}; the node's own log says more"
            return NotThere(reason, False)

    def _extent(self, commit: int, queues: dict[int, str]) -> LogExtent:
        source = self._server.log
        sizes: dict[int, int] = {}
        for first in source.segments.firsts():
            with suppress(FileNotFoundError):  # it has been reclaimed since
                sizes[first] = segment_path(source.directory, first).stat().st_size
        if commit and not sizes:
            raise source.segments.empty()
        tail = self._server.tail = source.tail(self._server.tail)
        last = tail.last if tail else commit
        return LogExtent(min(sizes, default=commit + 1), commit, sum(sizes.values()), queues, last)

    def _frames(self, asked: AskFrames, commit: int) -> LogFrames:
        found: list[bytes] = []
        size, last = 0, min(asked.last, commit)
        if asked.first > last:
            return LogFrames([])
        source = self._server.log
        start = self._server.landmarks.find(source, asked.first)
        for frame in source.frames(asked.first, last, start):
            found.append(up_to(frame, commit).data)
            size += len(found[-1])
            if size >= asked.max_bytes:
                break
        if not found:  # and the reader would take it for the end
            raise source.segments.lacks(asked.first, last)
        return LogFrames(found)


def _from_memory(feed: Feed, asked: AskFrames) -> LogFrames | None:
    """What the feed has of this; None if it is to be read from the disk. A reader says no generation, and is told it
    with each frame."""
    found = feed.read(Position(0, asked.first - 1), asked.max_bytes, asked.last)
    return LogFrames([frame.data for frame in found.frames]) if isinstance(found, Passed) else None
