"""Real cores wired together in memory: the default fixture.

Time, the network, the disks and the coordination store do what the test says. By default messages arrive, writes
complete and compare-and-sets land at the next turn; each can be held back, let go, or lost.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from typing import Any

from broker_plugin.logs.prose import sentence
from ha.apply.replica import Replica
from ha.core import NodeCore
from ha.effects import CompareAndSet, LogLine, Persist, ReadLog, ReadQueue, ResetLog, Truncate, WriteCheckpoint
from ha.interpreter import Interpreter, Write
from ha.membership.record import CasConflict, MemoryCoordination, Record, first_record
from ha.messages.stream import Entries
from ha.messages.wire import decode, encode
from ha.node import NO_FEATURES
from ha.settings import Settings
from tests.support.memory_disk import CLUSTER_ID, MemoryDisk
from tests.support.memory_host import MemoryHost
from tests.support.memory_links import ClosedLinks
from tests.support.memory_surroundings import MemorySurroundings
from txobserver.actions import SHIPPED
from txobserver.frames import decode_frame
from txobserver.ids import Member, Position
from txobserver.outcomes import Outcomes
from txobserver.ports.ledger import Host
from txobserver.ports.store import Page, StoreError

TURN = 0.01


class MemoryNode:
    """One node: its core, its disk, and what is under way between them."""

    def __init__(self, cluster: MemoryCluster, name: str, disk: MemoryDisk) -> None:
        self.cluster = cluster
        self.name = name
        self.disk = disk
        self.host: Any = cluster.make_host(self)
        self.member = Member(name, disk.incarnation)
        self.writes: list[Any] = []
        self.reads: list[ReadLog] = []
        self.queue_reads: list[ReadQueue] = []
        self.pages: list[tuple[ReadQueue, Page]] = []
        self.pages_held = False
        self.disk_held = False
        self.checkpoints_held: Callable[[WriteCheckpoint], bool] = lambda write: False
        self.disk_error: str | None = None
        self.lines: list[str] = []
        self.stopped: str | None = None
        self.core = self._boot()
        self.surroundings = MemorySurroundings(self)
        self.interpreter = Interpreter(self.core, self, self, self.surroundings)

    def _boot(self) -> NodeCore:
        base = self.disk.base
        frames = [] if base.meta.resyncing else self.disk.frames
        replica = Replica(base, *base.load(), actions=self.cluster.actions)
        for frame in frames:
            assert frame.first <= replica.tail.sequence + 1 or not replica.tail.sequence, "the log has a gap"
            if frame.last > base.meta.applied.sequence:
                replica.restore(frame)
        if frames:
            replica.durable = frames[-1].last
        self.cluster.starts += 1
        return NodeCore(
            self.member,
            replica,
            self.host,
            self.cluster.settings,
            self.disk.log_first,
            self.disk.cluster_id,
            self.cluster.starts << 32,
            self.disk.local_calls,
        )

    @property
    def state(self) -> str:
        return self.core.state

    def link(self, other: str) -> None:
        """The connection to this node is up."""
        self.report(lambda: self.core.on_link(other, True, self.cluster.features_of(self.name, other)))

    def report(self, call: Callable[[], None], stored: bool = False) -> None:
        """Tell the core that something happened, or that a change of the record was stored; carry out its answer."""
        if self.stopped is not None:
            return
        clock = self.core.set_clock if stored else self.core.look_at_clock
        clock(self.cluster.now, int((self.cluster.now + self.cluster.wall_off.get(self.name, 0.0)) * 1000))
        try:
            call()
            self.core.settle()
        except StoreError as error:
            self.core.on_store_error(str(error))
        self.interpreter.run()

    def answered(self, call: Callable[[], None]) -> None:
        """The coordination store has answered."""
        self.report(call, stored=True)

    def stored(self, record: Record, call: Callable[[], None]) -> None:
        """A change of the record has been made."""
        self.answered(call)

    # -- Io

    def write(self, effect: Write) -> None:
        """The disk does it later."""
        self.writes.append(effect)

    def read_log(self, effect: ReadLog) -> None:
        """Another thread does it later."""
        self.reads.append(effect)

    def read_queue(self, effect: ReadQueue) -> None:
        """Another thread does it later."""
        self.queue_reads.append(effect)

    def read_record(self) -> None:
        """It is read at every turn."""

    def compare_and_set(self, effect: CompareAndSet) -> None:
        """It lands later."""
        self.cluster.cas.append((self, effect))

    def send(self, peer: str, message: Any) -> None:
        """To the network of the test."""
        self.cluster.send(self.name, peer, message)

    def close_link(self, peer: str) -> None:
        """Both connections; they are made anew when both ways carry messages."""
        self.cluster.close_link(self.name, peer)

    def log(self, line: LogLine) -> None:
        """Kept for the test."""
        self.lines.append(sentence(line.event))

    def stop(self, reason: str) -> None:
        """The node ends."""
        self.stopped = reason

    # -- the disk

    def do_reads(self) -> None:
        """Another thread reads the log, also while the one that writes it waits for the disk."""
        reads, self.reads = self.reads, []
        coming = [write.frame for write in takewhile(lambda each: isinstance(each, Persist), self.writes)]
        for effect in reads:
            frames = self.disk.read(effect, coming)
            self.interpreter.log_read(effect, frames)

    def do_queue_reads(self) -> None:
        """A third thread reads queues: what it looked at in the last turn comes in this one, unless it is held."""
        if self.pages_held:
            return
        pages, self.pages = self.pages, []
        for effect, page in pages:
            self.interpreter.queue_read(effect, page)
        asked, self.queue_reads = self.queue_reads, []
        try:
            self.pages = [(effect, self.disk.base.read(effect.asked)) for effect in asked]
        except StoreError as error:
            self.report(lambda e=error: self.core.on_store_error(str(e)))  # type: ignore[misc]

    def do_writes(self) -> None:
        """The disk completes what it was given."""
        held = [w for w in self.writes if isinstance(w, WriteCheckpoint) and self.checkpoints_held(w)]
        writes, self.writes = [w for w in self.writes if not any(w is each for each in held)], held
        for write in writes:
            if self.disk_error and isinstance(write, Persist | Truncate | WriteCheckpoint | ResetLog):
                self.report(lambda: self.core.on_store_error(str(self.disk_error)))
            else:
                self._write(write)

    def _write(self, write: Write) -> None:
        disk = self.disk
        if isinstance(write, Persist):
            disk.frames.append(write.frame)
        elif isinstance(write, Truncate):
            if disk.frames and disk.frames[-1].last > write.last:
                self.cluster.check_not_ready(self, "cuts its log")
            disk.truncate(write.last)
        elif isinstance(write, WriteCheckpoint):
            disk.base.write(write.checkpoint)
        else:
            self.cluster.check_not_ready(self, "throws its log away")
            disk.frames = []
        self.interpreter.written(write)


class MemoryCluster(ClosedLinks):
    """Nodes named a, b, c, …; ``now`` is in seconds. ``wall_off``: by how much a node's wall clock is wrong;
    ``storeless``: nodes that cannot reach the coordination store: no reading comes, and each change fails.
    ``actions``: what calls may name; ``features``: what all nodes know; ``kind``: of a node."""

    actions = SHIPPED
    features = NO_FEATURES
    kind = MemoryNode

    def __init__(self, size: int = 3, **settings: Any) -> None:
        super().__init__()
        self.settings = Settings(**settings)
        self.now = 100.0
        self.wall_off: dict[str, float] = {}
        self.coordination = MemoryCoordination()
        self.cas: list[tuple[MemoryNode, CompareAndSet]] = []
        self.cas_held: set[str] = set()
        self.storeless: set[str] = set()
        self.late: list[tuple[MemoryNode, CompareAndSet]] = []
        self.cut: set[tuple[str, str]] = set()
        self.held: set[tuple[str, str]] = set()
        self.wire: list[tuple[str, str, bytes]] = []
        self.lose: Callable[[str, str, Any], bool] = lambda source, target, message: False
        self.disks = {name: MemoryDisk(f"{name}1") for name in "abcdefg"[:size]}
        self.coordination.record = first_record("test", CLUSTER_ID, Member("a", "a1"))
        self.nodes: dict[str, MemoryNode] = {}
        self.frozen: set[str] = set()
        self._were_frozen: set[str] = set()
        self.starts = 0
        for name in self.disks:
            self.start(name)

    def make_host(self, node: MemoryNode) -> Host:
        """The broker of a node."""
        host = MemoryHost()
        host.on_ok = lambda label: self.check_durable(node, label)
        return host

    def start(self, name: str, wipe: bool = False) -> MemoryNode:
        """Start a node on its disk, or on a new one."""
        if wipe:
            self.disks[name] = MemoryDisk(self.disks[name].incarnation + "'")
        node = self.nodes[name] = self.kind(self, name, self.disks[name])
        for other in list(self.nodes):
            if other != name and (name, other) not in self.cut:
                self.nodes[other].link(name)
                node.link(other)
        return node

    def kill(self, name: str) -> None:
        """SIGKILL: memory, unfinished writes and messages under way are gone."""
        del self.nodes[name]
        self.wire = [(s, t, m) for s, t, m in self.wire if name not in (s, t)]
        self.cas = [(node, effect) for node, effect in self.cas if node.name != name]
        for node in self.nodes.values():
            node.report(lambda n=node: n.core.on_link(name, False))  # type: ignore[misc]

    def partition(self, *names: str) -> None:
        """Cut these nodes off from all others, and from each other nothing."""
        for one in self.disks:
            for other in self.disks:
                if (one in names) != (other in names):
                    self.cut.add((one, other))
        self.wire = [(s, t, m) for s, t, m in self.wire if (s, t) not in self.cut]
        for one, other in self.cut:
            if one in self.nodes:
                self.nodes[one].report(lambda o=one, p=other: self.nodes[o].core.on_link(p, False))  # type: ignore[misc]

    def heal(self) -> None:
        """Every connection comes back."""
        cut, self.cut = self.cut, set()
        for one, other in cut:
            if one in self.nodes and other in self.nodes:
                self.nodes[one].link(other)

    def send(self, source: str, target: str, message: Any) -> None:
        if isinstance(message, Entries):
            last = decode_frame(message.frame)[0].last
            assert last <= self.disks[source].durable, f"{source} sends {last}, which is not durable on itself"
        if target in self.nodes and (source, target) not in self.cut and not self.lose(source, target, message):
            self.wire.append((source, target, encode(message)))

    def turn(self) -> None:
        """One turn: writes complete, messages arrive, compare-and-sets land, time passes."""
        self.now += TURN
        self._go_on()
        for node in list(self.nodes.values()):
            if node.name not in self.frozen:
                node.do_reads()
                node.do_queue_reads()
                if not node.disk_held:
                    node.do_writes()
                node.surroundings.turn()
        wire, self.wire = self.wire, []
        for source, target, data in wire:
            if (source, target) in self.held or target in self.frozen:
                self.wire.append((source, target, data))
            elif target in self.nodes:
                node = self.nodes[target]
                node.report(lambda n=node, s=source: n.core.on_heard({s}))  # type: ignore[misc]
                node.report(lambda n=node, s=source, d=data: n.core.on_message(s, decode(d)))  # type: ignore[misc]
        self._dial_anew()
        self._do_cas()
        for node in list(self.nodes.values()):
            if node.name not in self.frozen:
                if node.name not in self.storeless:
                    node.interpreter.record_read(self.coordination.read())
                node.report(node.core.tick)

    def _do_cas(self) -> None:
        while self.late:
            self.land(*self.late.pop(), report=False)
        cas, self.cas = self.cas, []
        for node, effect in cas:
            if node.name in self.cas_held or node.name in self.frozen:
                self.cas.append((node, effect))
            elif node.name in self.storeless:
                node.interpreter.cas_failed(effect)
            else:
                self.land(node, effect)

    def land(self, node: MemoryNode, effect: CompareAndSet, report: bool = True) -> None:
        """A compare-and-set reaches the store; ``report`` False loses its answer."""
        try:
            stored = self.coordination.compare_and_set(effect.expected, effect.record)  # type: ignore[arg-type]
        except CasConflict as conflict:
            current = conflict.current
            if report:
                node.interpreter.conflict(effect, current)
            return
        if report:
            node.interpreter.stored(effect, stored)

    def run(self, until: Callable[[], bool], seconds: float = 20.0) -> None:
        """Turn until the condition holds; fails after this much of the cluster's own time."""
        end = self.now + seconds
        while not until():
            assert self.now < end, f"not reached: {self.describe()}"
            self.turn()

    def pause(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while self.now < end:
            self.turn()

    @property
    def primary(self) -> MemoryNode:
        """The active primary of the greatest generation."""
        active = [node for node in self.nodes.values() if node.state == "active"]
        return max(active, key=lambda node: node.core.generation)

    def all_ready(self) -> bool:
        """One active primary, every other running node ready and listed."""
        states = sorted(node.state for node in self.nodes.values())
        record = self.coordination.read()
        listed = {member.node for member in record.ready} if record else set()
        return states == ["active"] + ["ready"] * (len(states) - 1) and set(self.nodes) <= listed

    def settled(self) -> MemoryCluster:
        """Turn until every node is ready."""
        self.run(self.all_ready)
        return self

    def describe(self) -> str:
        """Every node's state, for failures."""
        nodes = [
            f"{n.name}: {n.state} {n.core.replica.tail} applied {n.core.replica.applied}" for n in self.nodes.values()
        ]
        return (
            f"{self.coordination.record} | " + " | ".join(nodes) + f" | {[n.lines[-4:] for n in self.nodes.values()]}"
        )

    def check_durable(self, node: MemoryNode, label: str) -> None:
        """P2, P11: what is answered ok is on the disk of every member of the ready set, as the store has it now."""
        assert node.core.leading and self.coordination.record
        for member in self.coordination.record.ready:
            disk = self.disks[member.node]
            assert disk.incarnation == member.incarnation, f"{label} answered with {member} listed, which is gone"
            commit = node.core.leading.primary.point.sequence
            assert disk.durable >= commit, f"{label} answered, and {member} has it not on disk"

    def check_not_ready(self, node: MemoryNode, what: str) -> None:
        """P6: nothing in the store of a member of the ready set is undone or overwritten."""
        record = self.coordination.record
        assert record is None or node.member not in record.ready, f"{node.name} {what} while it is a ready member"

    def check_agreement(self) -> None:
        """P3, P7: nodes at the same position hold the same in queues, watermarks, branches and outcomes."""
        seen: dict[Position, tuple[object, ...]] = {}
        for node in self.nodes.values():
            contents = node.core.replica.contents
            if node.core.replica.resyncing:
                continue
            digests = {}
            for spec in contents.configuration.queues.values():
                summary = contents.queues.summary(spec.number)
                whole = not node.core.replica.in_parts
                assert not whole or summary.count == len(contents.messages.ids(spec.number))
                digests[spec.number] = (summary.count, summary.digest, summary.watermark)
            outcomes = contents.table.outcomes
            assert Outcomes(outcomes.meta, outcomes.all()).meta == outcomes.meta
            held = (digests, list(contents.table.prepared), outcomes.meta)
            assert seen.setdefault(contents.applied, held) == held, f"disagreement at {contents.applied}"
