"""One node as a process: the product's own shell, links, record thread and broker, wired by the product, on an event
loop in virtual time. Only the store's disk, the sockets, the coordination store and the clocks are models.

The watched parts do what the product's do, and tell the truth of it.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broker_plugin.amqp.parting import heard
from broker_plugin.coordination.record_thread import RecordThread
from broker_plugin.embedded.broker import EmbeddedBroker
from broker_plugin.embedded.queues.windows import WindowLimits
from broker_plugin.guard import Guard
from broker_plugin.node.links import LinkCredentials, Links, PeerAddress
from broker_plugin.node.shell import Clocks, Shell
from broker_plugin.node.wiring import FAREWELL, Parts, release, restored, wire
from ha.apply.applied import Applied
from ha.apply.replica import ALL, UNHEARD, Replica
from ha.core import NodeCore
from ha.membership.record import Coordination, Record
from ha.messages.beats import Beat
from ha.messages.greeting import greeting
from ha.messages.proof import NONCE, LinkSecrets
from ha.messages.stream import Ack, Entries
from ha.messages.wire import Peer
from tests.simulation.calls import Plan, SimCalls
from tests.simulation.disk import Disk, SimStore
from tests.simulation.loop import MachineClock, SimLoop
from tests.simulation.network import Socket
from tests.simulation.node_child import SimChild
from tests.simulation.releases import TODAY
from tests.simulation.surroundings import SimSurroundings
from txobserver.configuration import OPERATIONS, UnknownStep
from txobserver.events import Configure, DtxPrepare, Event, Message, TxPrepare
from txobserver.frames import decode_frame

if TYPE_CHECKING:
    from tests.simulation.seen import Cluster

PORT = 5670
SESSION_BITS = 32
CLUSTER_ID = "5eed" * 8
SECRET = b"of every simulated cluster, and no secret at all"
"""As the nonces are none that could not be guessed: a seed leads to one run."""
WINDOW = WindowLimits(messages=8, bytes=4096)
"""Small, so that queues are read page by page"""


class WatchedReplica(Replica):
    """Says what is applied, and which transaction is closed."""

    def __init__(self, process: Process, *state: Any) -> None:
        self._arrived: deque[tuple[int, int, Event]] = deque()
        super().__init__(*state, operations=process.release.operations, actions=process.release.actions)
        self._process = process

    def _take(self, generation: int, sequence: int, event: Event) -> None:
        """As ever. What waits in a TxBuffer is applied in its place too, though nothing is to be done for it."""
        super()._take(generation, sequence, event)
        self._arrived.append((sequence, generation, event))

    def truncate(self, last: int) -> None:
        """As ever."""
        super().truncate(last)
        while self._arrived and self._arrived[-1][0] > last:
            self._arrived.pop()

    def begin_resync(self) -> None:
        """As ever."""
        super().begin_resync()
        self._arrived.clear()

    def append(self, generation: int, event: Event) -> int:
        """As ever."""
        if isinstance(event, TxPrepare | DtxPrepare):
            self._process.cluster.truth.closing(self._process, event)
        sequence = super().append(generation, event)
        if isinstance(event, Configure):
            self._process.cluster.truth.configuring(self._process, event)
        return sequence

    def unknown(self) -> list[tuple[int, Configure]]:
        """What has been taken, is not applied yet, and cannot be by this release; with its sequences."""
        if self._operations == OPERATIONS:
            return []
        steps = [(at, event) for at, _, event in self._arrived if isinstance(event, Configure)]
        return [(at, step) for at, step in steps if step.operation not in self._operations]

    def apply(self, commit: int, listener: Applied = UNHEARD, most: int = ALL) -> int:
        """As ever. Where the store fails, up to the event in the middle of which it did.

        A release that does not know a step ends where it is to apply it.
        """
        for at, step in self.unknown():
            if at <= commit and not self.resyncing:
                raise UnknownStep(f"unknown configuration step {step.operation!r} is applied at {at}")
        try:
            return super().apply(commit, listener, most)
        finally:
            while self._arrived and self._arrived[0][0] <= self.applied.sequence:
                self._process.cluster.truth.applied(self._process, *self._arrived.popleft())


class WatchedBroker(EmbeddedBroker):
    """Says what it is given."""

    process: Process

    def on_enqueued(self, queue: int, offset: int, rid: int, message: Message) -> None:
        """As ever."""
        self.process.cluster.truth.visible(self.process, queue, message.body.decode())
        super().on_enqueued(queue, offset, rid, message)


class WatchedRecords(RecordThread):
    """Says which members a primary asks for."""

    def __init__(self, process: Process, coordination: Coordination, calls: SimCalls) -> None:
        super().__init__(coordination, process.guard, calls)
        self._process = process

    def compare_and_set(self, expected: int, record: Record, *answers: Any) -> None:
        """As ever."""
        leading = self._process.core.leading
        if leading is not None:
            for member in sorted(set(record.ready) - set(leading.keeper.record.ready)):
                self._process.cluster.truth.granting(self._process, member)
        super().compare_and_set(expected, record, *answers)


class WatchedLinks(Links):
    """Says what is acknowledged, and what of the stream is sent."""

    process: Process
    unheard_by: set[str]
    """Peers that have said so, at whose word this node closes its end and has judged nothing itself"""

    def send(self, peer: str, message: object) -> None:
        """As ever."""
        if isinstance(message, Ack | Entries) and self._is_ended_by_a_middlebox(peer, message):
            return
        if isinstance(message, Ack):
            self.process.cluster.truth.acknowledging(self.process, message.sequence)
        elif isinstance(message, Entries):
            self.process.cluster.truth.sending(self.process, decode_frame(message.frame)[0].position)
        super().send(peer, message)

    def _is_ended_by_a_middlebox(self, peer: str, message: Ack | Entries) -> bool:
        network, out = self.process.cluster.network, self._out.get(peer)
        if isinstance(message, Entries):
            ends = peer in network.streamless
        else:
            ends = self.process.name in network.answerless
        if not ends or out is None or not isinstance(out.transport, Socket):
            return False
        network.reset(out.transport)
        return True

    def close_link(self, peer: str) -> None:
        """As ever."""
        if peer in self.unheard_by:
            self.unheard_by.remove(peer)
        else:
            self.process.cluster.truth.given_up(self.process, peer)
        super().close_link(peer)


class Process:
    """A running node. Raises StoreError when its store cannot be opened.

    Many methods: one for each thing that is done to a process from outside, or that its parts tell.
    """

    def __init__(self, cluster: Cluster, disk: Disk, clock: MachineClock) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.disk = disk
        self.clock = clock
        self.name = disk.member.node
        self.failed: str | None = None
        self.release = cluster.releases.get(self.name, TODAY)
        self._names = 0
        self._number = cluster.starts
        chance = self.world.chance(f"process/{self.name}/{self._number}")
        self.loop = SimLoop(self.world, self.name, clock, cluster.network, chance)
        self.loop.executor = SimCalls(self.world, self.loop, lambda call: Plan((disk.log_latency(),), 0.0))
        self.guard = Guard(lambda reason: self.parts.shell.store_failed(reason), self._broken, self.loop)
        self.store = SimStore(
            disk, self.loop, self.guard, cluster.retention, lambda last: cluster.truth.undoing(self, last)
        )
        replica = restored(self.store, lambda *state: WatchedReplica(self, *state))
        with self.loop.running():
            self.parts = self._wire(replica)
            self.core: NodeCore = self.parts.core
            self.guard.create_task(self._start())

    def _wire(self, replica: Replica) -> Parts:
        cluster, coordination = self.cluster, self.cluster.coordination
        self.broker = WatchedBroker(self._schedule, self._unique, WINDOW)
        self.broker.process = self
        self.greeting = self.release.greets(greeting(cluster.name, self.name, self.name, PORT, CLUSTER_ID))
        self.child = SimChild(self, coordination, self.world.chance(f"child/{self.name}/{self._number}"))
        calls = SimCalls(
            self.world,
            self.loop,
            lambda call: coordination.plan(self.name, call == self.child.compare_and_set),
            coordination.on_wait,
        )
        self.surroundings = SimSurroundings(self)
        nonces = self.world.chance(f"nonces/{self.name}/{self._number}")
        parts = wire(
            self.guard,
            self.store,
            replica,
            self.broker,
            self.release.settings(cluster.settings),
            self.greeting,
            LinkCredentials(LinkSecrets([SECRET]), lambda: nonces.randbytes(NONCE), self.clock.now),
            [PeerAddress(name, name, PORT) for name in cluster.listed_by(self.name) if name != self.name],
            WatchedRecords(self, self.child, calls),
            self._fail,
            clocks=Clocks(self.clock.now, self.clock.wall_ms),
            first_session=self._number << SESSION_BITS,
            local_calls=self.disk.machine.read(),
            surroundings=self.surroundings,
            own=PeerAddress(self.name, self.name, PORT),
        )
        self.surroundings.answers = parts.shell.interpreter
        parts.shell._settle = self._settle  # type: ignore[method-assign]
        parts.shell.on_turn = lambda: self.cluster.truth.turned(self)
        parts.shell.on_overslept = self._forget_output
        parts.links._on_message = self._on_message
        parts.links._on_link = self._on_link
        parts.links.__class__ = WatchedLinks
        parts.links.process = self  # type: ignore[attr-defined]
        parts.links.unheard_by = set()  # type: ignore[attr-defined]
        return parts

    async def _start(self) -> None:
        await self.parts.links.start(self.name, PORT)
        self.parts.shell.start()

    # -- the process

    def asked_for(self, session: int) -> bool:
        """Whether this attachment is one of this process, and of none before."""
        return session >> SESSION_BITS == self._number

    def unknown_steps(self) -> list[tuple[int, Configure]]:
        """What of its log is not applied yet, and cannot be by this release."""
        replica: Any = self.core.replica
        found: list[tuple[int, Configure]] = replica.unknown()
        return found

    @property
    def alive(self) -> bool:
        """Whether it runs, stopped or not."""
        return self.loop.alive

    @property
    def paused(self) -> bool:
        """Whether it is stopped."""
        return self.loop.paused

    def pause(self, calls: int = 0) -> None:
        """SIGSTOP, at once or in the middle of a round of the loop, when it has made so many more calls."""
        self.loop.pause(calls)
        self.child.look_later()

    def go_on(self) -> None:
        """SIGCONT: everything that came meanwhile comes now."""
        self.loop.go_on()

    def end(self) -> None:
        """SIGKILL."""
        self.loop.kill()
        self.store.crash()
        self.surroundings.crash()

    def arrives(self, call: Callable[[], None]) -> None:
        """A client's input comes now (or when the process goes on)."""
        self.loop.arrives(self.guard.run, self._take_input, call)

    def _take_input(self, call: Callable[[], None]) -> None:
        """As ``AmqpProtocol.data_received``."""
        self.parts.shell.look_at_clock()
        call()

    def operate(self, call: Callable[[], None]) -> None:
        """An operator's command comes now (or when the process goes on)."""
        self.loop.arrives(self.parts.shell.report, call)

    def leave(self) -> None:
        """SIGTERM."""
        self.loop.arrives(lambda: self.guard.create_task(self._leave()))

    async def _leave(self) -> None:
        await release(self.parts)
        self.parts.shell.stop()
        await heard(lambda: [link for link in self.cluster.links if link.process is self])
        self.cluster.ended(self)

    # -- what the parts tell

    def _schedule(self) -> None:
        """As ``broker_plugin.amqp.loop_broker.embedded_broker``."""
        self.guard.call_soon(self.broker.end_of_turn)

    def _unique(self) -> str:
        self._names += 1
        return f"{self.name}{self._number}-{self._names}"

    def _settle(self) -> None:
        """As ever."""
        self.cluster.truth.settling(self)
        Shell._settle(self.parts.shell)

    def _forget_output(self) -> None:
        for link in self.cluster.links:
            if link.process is self:
                link.wire.forget_output()

    def _fail(self, reason: str) -> None:
        """As ``broker_plugin.node.main.NodeProcess``."""
        self.world.say(self.name, f"stops: {reason}")
        self.failed = reason
        self.guard.call_later(FAREWELL, lambda: self.cluster.ended(self))

    def _broken(self, reason: str) -> None:
        """No fault that is drawn leads to an error which nothing expects: it is a breach in itself."""
        self.world.fail(sys.exc_info()[1] or RuntimeError(reason))

    def _on_link(self, peer: str, features: frozenset[str] | None) -> None:
        """As ever; whether the two understand each other is looked at."""
        if features is not None:
            self.cluster.truth.linked(self, self.parts.links.greetings[peer])
        self.parts.shell.on_link(peer, features)

    def _on_message(self, peer: str, message: Peer) -> None:
        """As ever; whether a message of a lower generation changes something is looked at."""
        self.cluster.truth.taking(self, message)
        if not self.release.reads(message):
            raise ValueError(f"Invalid value {message.__struct_config__.tag}, as a decoder of {self.release.name} says")
        shell = self.parts.shell
        if isinstance(message, Beat) and message.unheard and not self.core.failed:
            self.parts.links.unheard_by.add(peer)  # type: ignore[attr-defined]
        if getattr(message, "generation", self.core.generation) >= self.core.generation:
            shell.on_message(peer, message)
            return
        shell.look_at_clock()
        before = self._standing()
        shell.on_message(peer, message)
        self.cluster.truth.stale(self, before, self._standing())

    def _standing(self) -> object:
        """What a message could change: the log, and at a primary how far each backup has got."""
        sessions = self.core.leading.backups.sessions if self.core.leading else {}
        replies = dict(self.core.candidate.poll.replies)
        return self.core.replica.tail, {n: (s.number, s.acknowledged) for n, s in sorted(sessions.items())}, replies
