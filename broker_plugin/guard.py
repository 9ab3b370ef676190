"""Guard: the only way from the event loop into the node.

Promise: an error that is not a client's own fault ends the node; none is swallowed.

An event loop logs what a callback raises, and goes on. A node that went on so would stay primary while one of its
queues stands still for ever (``damage_found_while_serving``). So everything that the loop calls is handed to it by a
guard, and runs inside it: a store's error makes the node leave and end in order; after anything else nothing of the
node runs any more, not even an answer to a client. What a client or a peer does wrong never comes here: its connection
closes where its bytes are read. The loop's own handler of exceptions is the last net, for what the loop does by itself.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import socket
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, ParamSpec, TypeVar

from broker_plugin.logs.events import LoopError, NodeFailed, UnexpectedError
from broker_plugin.logs.formats import tell
from broker_plugin.turn_monitor import TurnMonitor
from txobserver.ports.store import StoreError

log = logging.getLogger("txha.guard")
BROKEN = "an unexpected error, see above; the node stops rather than answer from a wrong state"
P = ParamSpec("P")
T = TypeVar("T")
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]
MakeSocket = Callable[[int, int, int], socket.socket]
"""One that does not block; OSError refuses."""
ProtocolT = TypeVar("ProtocolT", bound=asyncio.BaseProtocol)


def read_on(transport: asyncio.Transport | None, reading: bool) -> None:
    """Read what comes over this connection, or leave it to wait; nothing where there is none any more."""
    if transport is not None:
        (transport.resume_reading if reading else transport.pause_reading)()


class Guard:
    """``on_store_error`` is told what a store has failed with: the node leaves its part in order, and ends.

    ``on_broken`` is told, once, that the node must end at once: it knows no longer what it is in the middle of.
    ``loop``: the one that runs, unless another is given. ``monitor``: what measures its turns, if anything does.
    """

    def __init__(
        self,
        on_store_error: Callable[[str], object],
        on_broken: Callable[[str], object],
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.broken = False
        self.monitor: TurnMonitor | None = None
        self._on_store_error = on_store_error
        self._on_broken = on_broken
        self._loop = loop

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop."""
        return self._loop or asyncio.get_running_loop()

    def watch(self) -> None:
        """Stay with the loop that runs now, and be its handler of exceptions too."""
        self._loop = self.loop
        self._loop.set_exception_handler(self._unguarded)

    # -- running

    def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Call; None if that fails, or if the node is broken already."""
        if self.broken:
            return None
        monitor = self.monitor
        began = None if monitor is None else monitor.begin()
        try:
            return call(*args, **kwargs)
        except Exception as error:
            self.caught(error)
        finally:
            if monitor is not None and began is not None:
                monitor.end(call, began)
        return None

    def wrap(self, call: Callable[P, T]) -> Callable[P, T | None]:
        """The same, guarded."""
        return functools.partial(self.run, call)

    async def see_through(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Await; None if that fails, or if the node is broken already."""
        if self.broken:
            work.close()
            return None
        try:
            return await work
        except Exception as error:
            self.caught(error)
        return None

    def caught(self, error: Exception) -> None:
        """An error has come up where no code handles it."""
        if self.broken:
            return
        if isinstance(error, StoreError):
            try:
                self._on_store_error(str(error))
                return
            except Exception as worse:
                tell(log, logging.ERROR, NodeFailed(str(error)))
                error = worse
        tell(log, logging.ERROR, UnexpectedError(type(error).__name__, str(error)), error=error)
        self.broken = True
        self._on_broken(BROKEN)

    # -- what the loop is asked for

    def call_soon(self, call: Callable[[], object]) -> None:
        """In this turn of the loop or the next."""
        self.loop.call_soon(self.run, call)

    def call_soon_threadsafe(self, call: Callable[[], object]) -> None:
        """The same, from any thread, after ``watch``; nothing if the loop has ended."""
        assert self._loop is not None, "another thread cannot know which loop is meant"
        try:
            self._loop.call_soon_threadsafe(self.run, call)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    def call_later(self, seconds: float, call: Callable[[], object]) -> asyncio.TimerHandle:
        """After so many seconds."""
        return self.loop.call_later(seconds, self.run, call)

    def create_task(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
        """Concurrently."""
        task = self.loop.create_task(self.see_through(work))
        task.add_done_callback(lambda _: work.close())  # one that was cancelled before it began has not awaited it
        return task

    def when_done(self, future: asyncio.Future[T], call: Callable[[asyncio.Future[T]], object]) -> None:
        """When the future is done, unless it is cancelled."""
        future.add_done_callback(lambda f: None if f.cancelled() else self.run(call, f))

    def run_in_executor(
        self, executor: Executor | None, job: Callable[[], T], call: Callable[[asyncio.Future[T]], object]
    ) -> None:
        """Do the job in a thread, then call with its future, which holds what the job raised."""
        self.when_done(self.loop.run_in_executor(executor, job), call)

    async def create_server(
        self, factory: Callable[[], GuardedProtocol], host: str, port: int, **options: Any
    ) -> asyncio.Server:
        """Listen. Raises OSError."""
        return await self.loop.create_server(self._making(factory), host, port, **options)

    async def create_unix_server(self, factory: Callable[[], GuardedProtocol], path: str) -> asyncio.Server:
        """Listen at a path of the file system. Raises OSError."""
        return await self.loop.create_unix_server(self._making(factory), path)

    async def create_connection(
        self, factory: Callable[[], GuardedProtocol], host: str, port: int, **options: Any
    ) -> asyncio.Transport:
        """Connect. Raises OSError."""
        transport, _ = await self.loop.create_connection(self._making(factory), host, port, **options)
        return transport

    async def connect_with(
        self, make: MakeSocket, factory: Callable[[], GuardedProtocol], host: str, port: int, **options: Any
    ) -> asyncio.Transport:
        """The same with a socket that ``make`` makes, of the family, kind and protocol that it is given."""
        refused = OSError(f"{host} has no address")
        for *kind, _, address in await self.loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            made = make(*kind)
            try:
                await self.loop.sock_connect(made, address)
            except BaseException as error:
                made.close()
                if not isinstance(error, OSError):
                    raise
                refused = error
                continue
            transport, _ = await self.loop.create_connection(self._making(factory), sock=made, **options)
            return transport
        raise refused

    async def start_server(self, serve: Serve, host: str, port: int, limit: int) -> asyncio.Server:
        """Listen, with streams of lines of at most ``limit`` bytes. Raises OSError.

        asyncio reports the end of each task that it makes itself, and fails where that was cancelled.
        """
        tasks: set[asyncio.Task[object]] = set()

        def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tasks.add(task := self.create_task(serve(reader, writer)))
            task.add_done_callback(tasks.discard)

        return await asyncio.start_server(begin, host, port, limit=limit)

    # -- inside

    def _making(self, factory: Callable[[], ProtocolT]) -> Callable[[], ProtocolT]:
        """The loop can do nothing without a protocol, so it is told as well."""

        def make() -> ProtocolT:
            try:
                return factory()
            except Exception as error:
                self.caught(error)
                raise

        return make

    def _unguarded(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """The last net. An OSError here is the loop's own, with one socket: too many open files, for example."""
        error = context.get("exception")
        reported = str(context.get("message", "the event loop reports an error"))
        tell(log, logging.ERROR, LoopError(reported), error=error)
        if isinstance(error, Exception) and not isinstance(error, OSError):
            self.caught(error)


_CALLBACKS = (
    "connection_made",
    "connection_lost",
    "data_received",
    "eof_received",
    "pause_writing",
    "resume_writing",
)


class GuardedProtocol(asyncio.Protocol):
    """A protocol whose every callback runs inside ``guard``, which an instance has from its beginning."""

    guard: Guard

    def __init_subclass__(cls) -> None:
        for name in _CALLBACKS:
            call = cls.__dict__.get(name)
            if call is not None:
                setattr(cls, name, _guarded(call))


def _guarded(call: Callable[..., T]) -> Callable[..., T | None]:
    @functools.wraps(call)
    def guarded(self: GuardedProtocol, *args: Any) -> T | None:
        return self.guard.run(call, self, *args)

    return guarded
