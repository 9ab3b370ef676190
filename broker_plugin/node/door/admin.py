"""What the HTTP door asks of its node, beside what commands ask: logins, health, and who has changed what.

A password goes over the loopback port of the administration, and no further.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from broker_plugin.admin.server import CommandRefused, Handler
from broker_plugin.amqp.protocol.logins import LOOPBACK_ONLY, Logins, may_come_from
from broker_plugin.amqp.protocol.sasl import Credentials
from broker_plugin.node.calls.listeners import Listeners
from broker_plugin.node.calls.shown import created_at
from broker_plugin.node.config import NodeConfig
from broker_plugin.node.member_admin import others_of
from broker_plugin.node.readiness import Readiness
from broker_plugin.node.verdicts import MECHANISM, verdict_on
from ha.core import NodeCore
from ha.membership.node_state import ACTIVE, READY
from txobserver.audited import KeptChange

WRONG = "the user or the password is wrong"
ONLY_LOOPBACK = f"{LOOPBACK_ONLY} can only log in from loopback"


class DoorAdmin:
    """``logins``: those of this node's clients; None where a host broker has users of its own. ``shown``: what clients
    take and which alarms are on. ``alarms_of``: which are on at another node, None where that is not known."""

    def __init__(
        self,
        config: NodeConfig,
        core: NodeCore,
        readiness: Readiness,
        listeners: Listeners,
        logins: Logins | None,
        shown: Callable[[], dict[str, Any]],
        alarms_of: Callable[[str], list[str] | None],
    ) -> None:
        self._config = config
        self._core = core
        self._readiness = readiness
        self._listeners = listeners
        self._logins = logins
        self._shown = shown
        self._alarms_of = alarms_of
        self._began = time.monotonic()

    @property
    def handlers(self) -> dict[str, Handler]:
        """By the names of the commands."""
        return {
            "door.login": self._login,
            "door.health": self._health,
            "door.nodes": self._nodes,
            "changes.list": self._changes,
        }

    async def _login(self, arguments: dict[str, Any]) -> Any:
        """Whether a login is right, the user's tags and number, and where it is not, how long to wait before saying
        so."""
        if self._logins is None:
            raise CommandRefused("a host broker serves the clients of this node, and has users of its own")
        user, password, address = (arguments.get(key) for key in ("name", "password", "address"))
        if not (isinstance(user, str) and isinstance(password, str) and isinstance(address, str)):
            raise CommandRefused("a login has name, password and address")
        if not may_come_from(user, address):
            return self._refused(user, address, ONLY_LOOPBACK, local=False)
        if not await verdict_on(self._logins, Credentials(user, password), address):
            return self._refused(user, address, WRONG)
        there = self._core.replica.contents.access.users.get(user)
        tags, number = ([], None) if there is None else (list(there.tags), there.number)
        return {"right": True, "tags": tags, "number": number, "delay": 0.0, "local": True}

    def _refused(self, user: str, address: str, why: str, local: bool = True) -> Any:
        assert self._logins is not None
        delay = self._logins.refused(user, address, MECHANISM, why).delay
        return {"right": False, "tags": [], "number": None, "delay": delay, "local": local}

    async def _health(self, arguments: dict[str, Any]) -> Any:
        """In few numbers: it is asked often, and also where there are very many queues."""
        core, config, record = self._core, self._config, self._core.record
        ready_set = [member.node for member in record.ready] if record else []
        own = [port for _, port in config.amqp.addresses]
        listening = [*own, *(config.listeners[name].port for name in self._listeners.opened)]
        return {
            "name": core.member.node,
            "cluster": config.cluster,
            "cluster_id": record.cluster_id if record else None,
            "state": core.state,
            "generation": core.generation,
            "primary": record.primary.node if record and record.primary else None,
            "ready": core.state in (ACTIVE, READY) and core.member.node in ready_set,
            "ready_set": ready_set,
            "min_ready": self._readiness.min_ready,
            "nodes": self._readiness.nodes,
            "shortage": self._readiness.shortage(len(ready_set)) if core.state == ACTIVE else None,
            "waits_for_operator": core.waits_for_operator,
            "alarms": self._shown().get("alarms", []),
            "others_alarms": self._others_alarms(),
            "amqp_ports": listening,
        }

    async def _nodes(self, arguments: dict[str, Any]) -> Any:
        """This node with what it takes, and which others it is linked to."""
        shown, core = self._shown(), self._core
        return {
            "name": core.member.node,
            "pid": os.getpid(),
            "uptime": time.monotonic() - self._began,
            "alarms": shown.get("alarms", []),
            "memory": shown.get("memory", {}),
            "disk": shown.get("disk", {}),
            "clients": shown.get("clients", {}),
            "others": {name: name in core.features for name in others_of(core)},
            "others_alarms": self._others_alarms(),
        }

    def _others_alarms(self) -> dict[str, list[str] | None]:
        return {name: self._alarms_of(name) for name in others_of(self._core)}

    async def _changes(self, arguments: dict[str, Any]) -> Any:
        """The history of what operators have changed, of one user if it is named; the oldest first."""
        by = arguments.get("by")
        if by is not None and not isinstance(by, str):
            raise CommandRefused("by is the name of a user")
        changes = self._core.replica.contents.access.changes
        return [change_row(each) for each in changes if by is None or each.user == by]


def change_row(change: KeptChange) -> dict[str, Any]:
    """One change, as people see it."""
    return {
        "tnx_id": change.tnx_id,
        "operation": change.operation,
        "name": change.name,
        "user": change.user,
        "address": change.address,
        "node": change.node,
        "created_at": created_at(change.created_ms),
        "before": change.before or None,
        "after": change.after or None,
        "result": change.refusal or "done",
    }
