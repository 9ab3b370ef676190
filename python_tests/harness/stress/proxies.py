"""TCP proxies in the links between nodes, all in one process of their own so that the clients' work does not slow them.

What goes through them can be held back (a cut), come late, or be late once in a while as TCP is when it loses a packet.
The process takes one JSON command a line from its standard input and answers each with a line; it ends with its input.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import subprocess
import sys
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from python_tests.harness.stress.namespaces import NetworkError, inside

RETRANSMISSION = 0.2
"""Seconds after which TCP sends again what was lost: the least that Linux waits"""
PIECES = 64
"""So many pieces may be on their way on one connection before its sender is held up"""


@dataclass(frozen=True)
class Link:
    """A node dials ``listen`` and is passed on to ``to``. ``way``: from which node to which, by their indexes.

    ``place``: a process in whose network namespace it listens and dials; None for the proxies' own. What is dialled
    may be the coordination store beside a node as well as the node.
    """

    way: tuple[int, int]
    listen: tuple[str, int]
    to: tuple[str, int]
    place: int | None = None


class Proxies:
    """The suite's side: starts the process and tells it what to do."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def start(self, links: list[Link]) -> None:
        """Start, and wait until every link listens. Raises NetworkError."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "python_tests.harness.stress.proxies"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._tell(links=[asdict(link) for link in links])

    def impose(
        self, ways: list[tuple[int, int]], loss: float, delay: float, served: Collection[tuple[int, int]] = ()
    ) -> int:
        """Impair these ways from now on; returns a number for ``lift``. ``served``: only what leads to these ports of
        these nodes; without any, everything. Raises NetworkError."""
        told = {"ways": ways, "loss": loss, "delay": delay, "served": list(served)}
        return int(self._tell(impose=told)["number"])

    def lift(self, number: int) -> int:
        """End an impairment; returns how many pieces it hit. Raises NetworkError."""
        return int(self._tell(lift=number)["hits"])

    def reset(self, ways: list[tuple[int, int]]) -> int:
        """Close every connection that was made on these ways; returns how many. Raises NetworkError."""
        return int(self._tell(reset=ways)["number"])

    def forget(self, ways: list[tuple[int, int]]) -> int:
        """Drop from now on what goes over each connection that was made on these ways, either way and for good, as a
        firewall does that has forgotten it; returns how many. Raises NetworkError."""
        return int(self._tell(forget=ways)["number"])

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.communicate()
            self._process = None

    def _tell(self, **command: Any) -> dict[str, Any]:
        assert self._process is not None and self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
            answer: dict[str, Any] = json.loads(self._process.stdout.readline() or "{}")
        except BrokenPipeError:
            answer = {}
        if "ok" not in answer:
            raise NetworkError(f"the proxies failed: {answer.get('error', 'their process has ended')}")
        return answer


@dataclass
class _Imposed:
    ways: set[tuple[int, int]]
    loss: float
    delay: float
    served: set[tuple[int, int]]
    hits: int = 0
    lifted: asyncio.Event = field(default_factory=asyncio.Event)

    def is_on(self, link: Link, way: tuple[int, int]) -> bool:
        return way in self.ways and (not self.served or (link.way[1], link.to[1]) in self.served)


@dataclass
class _Connection:
    """``known``: what goes over it is passed on."""

    way: tuple[int, int]
    writer: asyncio.StreamWriter
    known: asyncio.Event = field(default_factory=asyncio.Event)


class Switchboard:
    """The process's side: all links, and what is imposed on them now."""

    def __init__(self) -> None:
        self._imposed: dict[int, _Imposed] = {}
        self._last = 0
        self._tasks: dict[asyncio.Task[None], _Connection] = {}

    async def obey(self, command: dict[str, Any]) -> dict[str, Any]:
        """Carry out one command; returns the answer. Raises OSError, NetworkError."""
        for link in command.get("links", ()):
            await self._listen(Link(tuple(link["way"]), tuple(link["listen"]), tuple(link["to"]), link["place"]))
        if "impose" in command:
            wanted = command["impose"]
            self._last += 1
            ways, served = ({tuple(each) for each in wanted[name]} for name in ("ways", "served"))
            self._imposed[self._last] = _Imposed(ways, wanted["loss"], wanted["delay"], served)
        if "lift" in command:
            lifted = self._imposed.pop(command["lift"])
            lifted.lifted.set()
            return {"ok": True, "hits": lifted.hits}
        if "reset" in command:
            return {"ok": True, "number": self._reset({tuple(way) for way in command["reset"]})}
        if "forget" in command:
            return {"ok": True, "number": self._forget({tuple(way) for way in command["forget"]})}
        return {"ok": True, "number": self._last}

    async def _listen(self, link: Link) -> None:
        listening = _socket_in(link.place)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(link.listen)

        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            connection = self._tasks[task] = _Connection(link.way, writer)
            connection.known.set()
            task.add_done_callback(self._tasks.pop)
            try:
                await self._pass_on(link, reader, connection)
            except asyncio.CancelledError:  # the proxy ends; asyncio would print this as an error of ours
                writer.transport.abort()

        await asyncio.start_server(accepted, sock=listening)

    def _reset(self, ways: set[tuple[int, int]]) -> int:
        made = self._made(ways)
        for connection in made:
            connection.writer.transport.abort()
        return len(made)

    def _forget(self, ways: set[tuple[int, int]]) -> int:
        made = self._made(ways)
        for connection in made:
            connection.known.clear()
        return len(made)

    def _made(self, ways: set[tuple[int, int]]) -> list[_Connection]:
        return [connection for connection in self._tasks.values() if connection.way in ways]

    async def _pass_on(self, link: Link, reader: asyncio.StreamReader, connection: _Connection) -> None:
        """One connection, until either side ends it. A new one is not made while either way is cut."""
        writer, known = connection.writer, connection.known
        back = (link.way[1], link.way[0])
        await self._passage(link, link.way)
        await self._passage(link, back)
        other = _socket_in(link.place)
        other.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(other, link.to)
            there, thither = await asyncio.open_connection(sock=other)
        except OSError:
            other.close()
            writer.transport.abort()
            return
        pumps = [
            asyncio.ensure_future(self._pump(link, link.way, reader, thither, known)),
            asyncio.ensure_future(self._pump(link, back, there, writer, known)),
        ]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        for end in (writer, thither):
            end.close()

    async def _pump(
        self,
        link: Link,
        way: tuple[int, int],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        known: asyncio.Event,
    ) -> None:
        """Everything that comes from one side, in order, to the other; also its end."""
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(PIECES)

        async def read() -> None:
            data = b"begin"
            while data:
                try:
                    data = await reader.read(1 << 16)
                except OSError:
                    data = b""
                await pieces.put((loop.time() + self._lateness(link, way), data))

        reading = asyncio.ensure_future(read())
        try:
            while True:
                due, data = await pieces.get()
                await asyncio.sleep(due - loop.time())
                await self._passage(link, way)
                await known.wait()
                if not data:
                    return
                writer.write(data)
                await writer.drain()
        except OSError:
            return
        finally:
            reading.cancel()

    async def _passage(self, link: Link, way: tuple[int, int]) -> None:
        """Until the way is not cut."""
        for imposed in list(self._on(link, way)):
            if imposed.loss >= 1:
                imposed.hits += 1
                await imposed.lifted.wait()

    def _lateness(self, link: Link, way: tuple[int, int]) -> float:
        late = 0.0
        for imposed in self._on(link, way):
            lost = imposed.loss < 1 and random.random() < imposed.loss
            imposed.hits += lost or imposed.delay > 0
            late += imposed.delay + lost * RETRANSMISSION
        return late

    def _on(self, link: Link, way: tuple[int, int]) -> Iterator[_Imposed]:
        return (imposed for imposed in self._imposed.values() if imposed.is_on(link, way))


def _socket_in(place: int | None) -> socket.socket:
    """A socket in the network of that process."""
    with contextlib.nullcontext() if place is None else inside(place):
        return socket.socket()


async def main() -> None:
    """Obey until the input ends."""
    board = Switchboard()
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        try:
            answer = await board.obey(json.loads(line))
        except (OSError, NetworkError, KeyError) as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
