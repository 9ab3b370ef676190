"""Upkeep: what a node looks after beside its work, so that no client uses it up: its disk, its heap, its descriptors.

What is short becomes an alarm of the AMQP server (``broker_plugin.amqp.alarms``), on a backup too: it may be primary in
a moment. ``shown`` is what ``txha status`` shows of all this.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from broker_plugin.amqp.alarms import LOW_ON_DISK
from broker_plugin.amqp.server import AmqpServer
from broker_plugin.embedded.memory_budget import KINDS, work_bytes
from broker_plugin.guard import Guard
from broker_plugin.logs.events import DiskEnough, DiskShort, DiskUnread
from broker_plugin.logs.formats import tell
from broker_plugin.node.config import NodeConfig
from broker_plugin.node.descriptors import Needs, Rooms, compare
from broker_plugin.node.disk_watch import DiskRoom, DiskWatch
from broker_plugin.node.log_server import MAX_READERS
from broker_plugin.node.resident import ResidentTrim

log = logging.getLogger("txha.node")


def clients_that_fit(config: NodeConfig, limit: int, room: Rooms) -> int:
    """How many clients this node has descriptors for; it says so if they are fewer than the configuration allows."""
    passes_on = config.host is not None or (config.backup_clients == "proxy" and bool(config.peers))
    needs = Needs(config.amqp.max_connections, len(config.peers), MAX_READERS, passes_on)
    return compare(needs, limit, room.clients)


class Upkeep:
    """``leading`` tells whether this node is the active primary; ``fit``: how many clients have descriptors."""

    def __init__(
        self, config: NodeConfig, guard: Guard, server: AmqpServer, leading: Callable[[], bool], fit: int
    ) -> None:
        self._config = config
        self._server = server
        self._leading = leading
        self._fit = fit
        self._heap = ResidentTrim(mapped=config.dir / "state" / "data.mdb")
        self._disk = DiskWatch(config.dir, config.store.disk_free_bytes, guard.call_soon_threadsafe, self._looked)

    def start(self) -> None:
        """Begin to look."""
        self._disk.start()
        self._heap.start()

    def stop(self) -> None:
        """Look no more."""
        self._disk.stop()
        self._heap.stop()

    def shown(self) -> dict[str, Any]:
        """What clients make the node hold, what they may, and which alarms are on; sizes in bytes."""
        server, broker, disk = self._server, self._server.broker, self._disk.room
        memory, work, limits = broker.memory, broker.open_work, self._config.work_limits()
        return {
            "alarms": list(server.alarms.on),
            "clients": {
                "connected": server.connections,
                "not_logged_in": server.arrivals.newcomers.count,
                "closed_without_login": server.arrivals.newcomers.refused,
                "closed_for_memory": server.alarms.closed,
                "descriptors_for": self._fit,
                "most": self._config.amqp.max_connections,
            },
            "memory": {
                "held": broker.held_bytes,
                **dict(zip(KINDS, memory.kinds, strict=True)),
                "open_transactions": work_bytes(work),
                "declared": broker.topology.size,
                **{f"{name}_bytes": value for name, value in memory.marks._asdict().items()},
            },
            "open_work": {
                "bytes": work.open_bytes,
                "events": work.open_events,
                **{f"most_{name}": value for name, value in limits._asdict().items()},
            },
            "disk": {
                "free": disk.free,
                "least": self._config.store.disk_free_bytes,
                "short": disk.short,
                "problem": disk.problem or None,
            },
        }

    def _looked(self, before: DiskRoom, room: DiskRoom) -> None:
        directory = str(self._config.dir)
        if room.problem and not before.problem:
            tell(log, logging.WARNING, DiskUnread(directory, room.problem))
        if room.short and not before.short:
            least = self._config.store.disk_free_bytes
            tell(log, logging.WARNING, DiskShort(directory, room.free, least, self._leading()))
        elif before.short and not room.short:
            tell(log, logging.INFO, DiskEnough(directory, room.free))
        self._server.alarms.set(LOW_ON_DISK, room.short)
