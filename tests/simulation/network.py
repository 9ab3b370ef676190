"""The network between nodes: stream sockets. What is written arrives in order, in pieces, late, or not at all.

A connection ends with its ends, by a reset, or at any byte. A cut direction either ends the connections or only holds
everything up, as a network does that drops packets for a while. A firewall may forget one connection: that is dead by
itself, while others between the same nodes live, and new ones can be made. The name of a node is its address.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from broker_plugin.node.links import UNACKNOWLEDGED_SECONDS
from tests.simulation.loop import SimLoop
from tests.simulation.world import World

LATENCY = (0.0001, 0.002)
TIMEOUT = (0.05, 0.5)
"""Until who dials a node that cannot be reached gives up"""
IN_PIECES = 0.1
END = None
"""What is read at the end of a stream"""

Pair = tuple[str, str]
Factory = Callable[[], asyncio.Protocol]


class Socket(asyncio.Transport):
    """One end of a connection. What it writes goes to ``peer``."""

    peer: Socket

    def __init__(self, network: Network, loop: SimLoop, other: str) -> None:
        super().__init__()
        self.loop = loop
        self.pair = loop.name, other
        self.protocol: asyncio.Protocol | None = None
        self.open = True
        self.cut = False
        self.arrived_at = 0.0
        self.held: list[bytes | None] = []
        self._network = network
        self._buffer: list[bytes | None] = []

    # -- asyncio.Transport

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send."""
        if self.open:
            self._network.carry(self, bytes(data))

    def close(self) -> None:
        """Send what there is, then end."""
        if self.open:
            self.open = False
            self._network.carry(self, END)
            self.loop.call_soon(self._lost, None)

    abort = close

    def is_closing(self) -> bool:
        """Whether it has ended on this side."""
        return not self.open

    def get_write_buffer_size(self) -> int:
        """The kernel takes everything."""
        return 0

    # -- the network's side

    def accept(self, protocol: asyncio.Protocol) -> None:
        """This protocol has the socket from now on."""
        self.protocol = protocol
        protocol.connection_made(self)
        if not self.open:
            self.loop.call_soon(self._lost, ConnectionResetError("Connection reset by peer"))
        elif self._buffer:
            self.loop.arrives(self._read)

    def receive(self, data: bytes | None) -> None:
        """Something has arrived; the process reads it when it comes to that."""
        self._buffer.append(data)
        if data is not END:
            self._network.arrived[self.pair[::-1]] = self._network.now
        if len(self._buffer) == 1 and self.protocol is not None:
            self.loop.arrives(self._read)

    def reset(self) -> None:
        """The connection is gone: what is under way in either direction is lost."""
        self.cut = True
        self.loop.arrives(self._end, ConnectionResetError("Connection reset by peer"))

    def _read(self) -> None:
        buffer, self._buffer = self._buffer, []
        ended = buffer[-1] is END
        data = b"".join(each for each in buffer if each is not END) if len(buffer) > 1 else buffer[0]
        if data and self.open and self.protocol is not None:
            self.protocol.data_received(data)
        if ended:
            self._end(None)

    def _end(self, error: Exception | None) -> None:
        if self.open:
            self.open = False
            if error is None:  # the other end has closed, and this one does so in answer
                self._network.carry(self, END)
            self._lost(error)

    def _lost(self, error: Exception | None) -> None:
        if self.protocol is not None:
            self.protocol.connection_lost(error)


class Listener:
    """As an ``asyncio.Server``."""

    def __init__(self, network: Network, loop: SimLoop, factory: Factory) -> None:
        self.loop = loop
        self.factory = factory
        self._network = network

    def close(self) -> None:
        """Listen no more."""
        self._network.unlisten(self)

    async def wait_closed(self) -> None:
        """At once."""


class Network:
    """All sockets. ``loss`` is the probability with which a write breaks its connection."""

    def __init__(self, world: World) -> None:
        self.loss = 0.0
        self.slowness = 1.0
        self._world = world
        self._chance = world.chance("network")
        self._firewall = world.chance("firewall")
        self.down: set[Pair] = set()
        """Directions that a fault keeps cut or stalled"""
        self.streamless: set[str] = set()
        """Nodes to which a middlebox lets no frame of the stream come: the connection ends with it"""
        self.answerless: set[str] = set()
        """Nodes from which it lets no acknowledgement come; likewise"""
        self.arrived: dict[Pair, float] = {}
        """When bytes came last, from whom to whom; a process that is stopped reads them later"""
        self._cut: set[Pair] = set()
        self._stalled: set[Pair] = set()
        self._listeners: dict[str, Listener] = {}
        self._sockets: dict[Socket, None] = {}

    @property
    def now(self) -> float:
        """True time, in seconds."""
        return self._world.now

    # -- what loops ask

    def listen(self, loop: SimLoop, host: str, factory: Factory) -> Listener:
        """Accept connections to this node."""
        listener = self._listeners[host] = Listener(self, loop, factory)
        return listener

    def unlisten(self, listener: Listener) -> None:
        """Accept no more."""
        if self._listeners.get(listener.loop.name) is listener:
            del self._listeners[listener.loop.name]

    async def connect(self, loop: SimLoop, host: str, factory: Factory) -> tuple[Socket, asyncio.Protocol]:
        """Dial. OSError if no process answers. A stopped process is connected to: its kernel answers."""
        answer: asyncio.Future[Socket] = loop.create_future()
        self._world.after(self._latency(), lambda: self._dial(loop, host, answer))
        socket = await answer
        protocol = factory()
        socket.accept(protocol)
        return socket, protocol

    def _dial(self, loop: SimLoop, host: str, answer: asyncio.Future[Socket]) -> None:
        if not loop.alive:
            return
        listener, pairs = self._listeners.get(host), {(loop.name, host), (host, loop.name)}
        if pairs & self._cut or (pairs & self._stalled and self._chance.random() < 0.3):
            error = TimeoutError("Connection timed out")
            self._world.after(self._chance.uniform(*TIMEOUT), lambda: loop.arrives(_fail, answer, error))
        elif pairs & self._stalled:
            self._world.after(self._chance.uniform(*TIMEOUT), lambda: self._dial(loop, host, answer))
        elif listener is None:
            loop.arrives(_fail, answer, ConnectionRefusedError("Connection refused"))
        else:
            near, far = Socket(self, loop, host), Socket(self, listener.loop, loop.name)
            near.peer, far.peer = far, near
            self._sockets[near] = self._sockets[far] = None
            far.loop.arrives(lambda: far.accept(listener.factory()))
            loop.arrives(_succeed, answer, near)

    # -- what sockets ask

    def carry(self, socket: Socket, data: bytes | None) -> None:
        """Bring it to the other end, as it goes."""
        if socket.cut:
            return
        if socket.pair in self._stalled:
            socket.held.append(data)
        elif data is END:
            self._deliver(socket, data)
        elif self.loss and self._chance.random() < self.loss:
            self._deliver(socket, data[: self._chance.randrange(1, len(data))])
            self._world.after(max(0.0, socket.arrived_at - self._world.now), lambda: self.reset(socket))
        elif self._chance.random() < IN_PIECES:
            at = self._chance.randrange(1, len(data))
            self._deliver(socket, data[:at])
            self._deliver(socket, data[at:])
        else:
            self._deliver(socket, data)

    def forget(self, socket: Socket) -> None:
        """It has ended on its side."""
        self._sockets.pop(socket, None)

    def _deliver(self, socket: Socket, data: bytes | None) -> None:
        arrival = socket.arrived_at = max(self._world.now + self._latency(), socket.arrived_at)
        peer = socket.peer

        def arrive() -> None:
            if data is END:
                self.forget(socket)
            if not socket.cut and peer.loop.alive:
                peer.receive(data)

        self._world.after(arrival - self._world.now, arrive)

    def _latency(self) -> float:
        return self._chance.uniform(*LATENCY) * self.slowness

    # -- what breaks

    def reset(self, socket: Socket) -> None:
        """One connection ends; what is under way on it is lost."""
        for end in (socket, socket.peer):
            if not end.cut:
                self.forget(end)
                end.reset()

    def process_ended(self, loop: SimLoop, power: bool) -> None:
        """Its connections end. What it had sent still arrives, but in a power cut, which others notice late."""
        self._listeners = {name: each for name, each in self._listeners.items() if each.loop is not loop}
        for socket in [each for each in self._sockets if each.loop is loop]:
            if not power:
                self.carry(socket, END)
                continue
            self.forget(socket)
            socket.cut = self._chance.random() < 0.5
            self._world.after(self._chance.uniform(0, 1), socket.peer.reset)

    def cut(self, source: str, target: str, stall: bool) -> None:
        """Packets from ``source`` to ``target`` are dropped: for long (reset), or so that all is held up (stall)."""
        if stall:
            self._stalled.add((source, target))
            return
        self._cut.add((source, target))
        for socket in list(self._sockets):
            if socket.pair == (source, target):
                self.reset(socket)

    def heal(self, pairs: list[Pair]) -> None:
        """These directions carry packets again; what was held up is on its way."""
        for pair in pairs:
            self._cut.discard(pair)
            if pair in self._stalled:
                self._stalled.discard(pair)
                self._release(pair)

    def _release(self, pair: Pair) -> None:
        for socket in [each for each in self._sockets if each.pair == pair]:
            held, socket.held = socket.held, []
            for data in held:
                self._deliver(socket, data)

    def make_one_dead(self) -> None:
        """Nothing comes through one connection any more, either way, and neither end is told."""
        known = [each for each in self._sockets if each.open and not each.cut]
        if not known:
            return
        socket = self._firewall.choice(known)
        self._world.say("fault", f"one connection between {' and '.join(socket.pair)} is dead")
        for end in [each for each in (socket, socket.peer) if not each.cut]:
            end.cut = True
            self.forget(end)
            self._world.after(UNACKNOWLEDGED_SECONDS, end.reset)  # its kernel gives it up


def _succeed(answer: asyncio.Future[Any], result: object) -> None:
    if not answer.done():
        answer.set_result(result)


def _fail(answer: asyncio.Future[Any], error: OSError) -> None:
    if not answer.done():
        answer.set_exception(error)
