"""What a node says of itself in numbers, for the HTTP door, which makes metrics of them.

Nothing here goes through all queues in one turn of the loop: their numbers come in pages, or are summed up some in a
turn. A walk over the queues goes by a list as of its begin, so a queue that comes or goes meanwhile shifts no page.
"""

from __future__ import annotations

import asyncio
import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from broker_plugin.admin.server import CommandRefused, Handler
from broker_plugin.compiled import running
from broker_plugin.embedded.queues.queue import Queue
from broker_plugin.guard import Guard
from broker_plugin.node.calls.shown import own_standing
from broker_plugin.node.readiness import Readiness
from broker_plugin.node.shell import Shell
from ha.core import NodeCore
from ha.membership.node_state import ACTIVE, READY
from txobserver.vhosts import parts_of

PAGE = 1000
"""Queues that are looked at in one turn."""
MOST_WALKS = 4
"""Walks over the queues at a time; the oldest is forgotten for another."""
TAIL_SECONDS = 0.1
"""Between two notes of where the stream ends: by them it is known how old is what a backup lacks."""
TAILS_KEPT = 6000
"""Such notes: ten minutes of them."""


class CountedClients(Protocol):
    """What a node's clients are asked for."""

    def queues(self) -> Sequence[Queue]:
        """All of an active primary; of another node none."""
        ...

    def counted(self) -> dict[str, int]:
        """What never falls, by name."""
        ...

    def shown(self) -> dict[str, Any]:
        """What they take, and which alarms are on."""
        ...


class CountedStore(Protocol):
    """What a store is asked for."""

    syncs: int
    synced_bytes: int

    @property
    def waiting(self) -> int:
        """Frames that wait for the log's writer."""
        ...


class TailHistory:
    """Where the stream has ended, and when; times are the shell's monotonic seconds."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._tails: list[int] = []

    def note(self, now: float, tail: int) -> None:
        """It ends there now."""
        if self._times and now - self._times[-1] < TAIL_SECONDS:
            return
        if self._tails and tail < self._tails[-1]:  # cut off: what was noted is of another stream
            self._times.clear()
            self._tails.clear()
        if len(self._times) >= 2 * TAILS_KEPT:
            del self._times[:TAILS_KEPT]
            del self._tails[:TAILS_KEPT]
        self._times.append(now)
        self._tails.append(tail)

    def age(self, now: float, acknowledged: int, tail: int) -> float:
        """For how long, at least, there has been what lies behind ``acknowledged``; 0 if nothing does."""
        if acknowledged >= tail:
            return 0.0
        index = bisect_right(self._tails, acknowledged)
        return now - self._times[index] if index < len(self._times) else 0.0


class NodeMetrics:
    """``look`` is called at the end of each turn. ``amiss``: what calls have set and is not so at this node.
    ``expires``: in how many seconds the node's certificate does."""

    def __init__(
        self,
        guard: Guard,
        core: NodeCore,
        shell: Shell,
        store: CountedStore,
        clients: CountedClients,
        readiness: Readiness,
        amiss: Callable[[], dict[str, str]],
        expires: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._guard = guard
        self._core = core
        self._shell = shell
        self._store = store
        self._clients = clients
        self._readiness = readiness
        self._amiss = amiss
        self._expires = expires
        self._tails = TailHistory()
        self._walks: OrderedDict[int, Sequence[Queue]] = OrderedDict()
        self._last_walk = 0
        self._led = 0
        self.take_overs = 0

    @property
    def handlers(self) -> dict[str, Handler]:
        """By the names of the commands."""
        return {"metrics.node": self._node, "metrics.totals": self._totals, "metrics.queues": self._queues}

    def look(self) -> None:
        """A turn has ended."""
        core = self._core
        if core.leading is not None:
            if core.generation != self._led:
                self._led = core.generation
                self.take_overs += 1
            self._tails.note(core.now, core.replica.tail.sequence)

    async def _node(self, arguments: dict[str, Any]) -> Any:
        """Numbers of this node, and of each backup if it is the primary."""
        self._shell.look_at_clock()
        core, record, shown = self._core, self._core.record, self._clients.shown()
        ready = [member.node for member in record.ready] if record else []
        name = core.member.node
        return {
            "node": name,
            "cluster": record.cluster if record else "",
            "cluster_id": record.cluster_id if record else "",
            "core": running(),
            "pid": os.getpid(),
            "counted": self._clients.counted(),
            "backups": self._backups(),
            "values": {
                "active": int(core.state == ACTIVE),
                "ready": int(core.state in (ACTIVE, READY) and name in ready),
                "generation": core.generation,
                "take_overs": self.take_overs,
                "commit_point": core.feed.commit,
                "applied": core.replica.applied.sequence,
                "tail": core.replica.tail.sequence,
                "ready_nodes": len(ready),
                "min_ready": self._readiness.min_ready,
                "nodes": self._readiness.nodes,
                "waits_for_operator": int(core.waits_for_operator is not None),
                "certificate_expires": self._expires(),
                **self._loop(),
                **self._work(),
                **_of_clients(shown),
            },
        }

    def _loop(self) -> dict[str, Any]:
        core, monitor, standing = self._core, self._guard.monitor, own_standing(self._core)
        leading = core.leading
        margin = None if leading is None else max(0.0, leading.keeper.serves_until - core.now)
        return {
            "lease_margin": margin,
            "turns": self._shell.turns,
            "long_turns": 0 if monitor is None else monitor.long_turns,
            "longest_turn": 0.0 if monitor is None else monitor.longest_seconds,
            "syncs": self._store.syncs,
            "synced_bytes": self._store.synced_bytes,
            "writer_queue": self._store.waiting,
            "calls_behind": standing["behind"],
            "call_fails": int(standing["failing"] is not None or standing["undoing"] or bool(self._amiss())),
        }

    def _work(self) -> dict[str, Any]:
        replica = self._core.replica
        prepared = sum(buffer.prepared is not None for buffer in replica.buffers.values())
        in_doubt = replica.contents.table.prepared
        oldest = next(iter(in_doubt.values()), None)
        age = 0.0 if oldest is None else max(0, self._core.wall_ms - oldest.prepared_ms) / 1000
        return {
            "transactions_open": len(replica.buffers) - prepared,
            "transactions_prepared": prepared,
            "branches_in_doubt": len(in_doubt),
            "oldest_in_doubt": age,
            "queues_declared": len(replica.contents.configuration.queues),
        }

    def _backups(self) -> dict[str, Any]:
        core, leading = self._core, self._core.leading
        if leading is None:
            return {}
        tail = core.replica.tail.sequence
        return {
            node: {
                "ready": int(leading.keeper.is_ready(session.member)),
                "lag_events": max(0, tail - session.acknowledged),
                "lag_bytes": session.lag_bytes,
                "lag_seconds": self._tails.age(core.now, session.acknowledged, tail),
                "trackers": len(session.trackers),
            }
            for node, session in leading.backups.sessions.items()
        }

    async def _totals(self, arguments: dict[str, Any]) -> Any:
        """Of all queues of an active primary, some in each turn."""
        queues = list(self._clients.queues())
        ready = unacknowledged = consumers = 0
        for begin in range(0, len(queues), PAGE):
            for queue in queues[begin : begin + PAGE]:
                if not queue.deleted:
                    ready += queue.ready
                    unacknowledged += queue.out
                    consumers += len(queue.consumers)
            await asyncio.sleep(0)
        return {"queues": len(queues), "ready": ready, "unacknowledged": unacknowledged, "consumers": consumers}

    async def _queues(self, arguments: dict[str, Any]) -> Any:
        """A page of rows (name, ready, unacknowledged, consumers, vhost). ``walk``, ``at`` go on with one."""
        walk, at = arguments.get("walk", 0), arguments.get("at", 0)
        if not (isinstance(walk, int) and isinstance(at, int)) or at < 0:
            raise CommandRefused("walk and at are whole numbers")
        if walk == 0:
            walk = self._begin_walk()
        queues = self._walks.get(walk)
        if queues is None:
            raise CommandRefused("too many ask for all queues at once; begin again")
        rows = [_row(each) for each in queues[at : at + PAGE] if not each.deleted]
        if at + PAGE >= len(queues):
            del self._walks[walk]
            return {"walk": walk, "next": None, "rows": rows}
        return {"walk": walk, "next": at + PAGE, "rows": rows}

    def _begin_walk(self) -> int:
        self._last_walk += 1
        self._walks[self._last_walk] = list(self._clients.queues())
        while len(self._walks) > MOST_WALKS:
            self._walks.popitem(last=False)
        return self._last_walk


def _row(queue: Queue) -> tuple[str, int, int, int, str]:
    vhost, name = parts_of(queue.name)
    return name, queue.ready, queue.out, len(queue.consumers), vhost


def _of_clients(shown: dict[str, Any]) -> dict[str, Any]:
    alarms = shown.get("alarms", [])
    memory, disk, clients = (shown.get(key, {}) for key in ("memory", "disk", "clients"))
    return {
        "memory_alarm": int("low on memory" in alarms),
        "disk_alarm": int("low on disk" in alarms),
        "memory_held": memory.get("held"),
        "memory_high": memory.get("high_bytes"),
        "disk_free": disk.get("free"),
        "disk_least": disk.get("least"),
        "connections": clients.get("connected"),
    }
