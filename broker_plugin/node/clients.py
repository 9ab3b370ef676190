"""Where this node's clients are served while it is the active primary: here, or by a host broker in its own process."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Any

from broker_plugin.amqp.arrivals import Arrivals
from broker_plugin.amqp.loop_broker import embedded_broker
from broker_plugin.amqp.password_pool import PasswordPool
from broker_plugin.amqp.protocol.logins import Logins
from broker_plugin.amqp.protocol.settings import AmqpSettings
from broker_plugin.amqp.server import AmqpServer
from broker_plugin.embedded.queues.queue import Queue
from broker_plugin.embedded.transactions.branch_table import DtxLimits
from broker_plugin.guard import Guard
from broker_plugin.host.node_end import BrokerDoor
from broker_plugin.node.client_settings import meets_unsupported, tell_refused_login
from broker_plugin.node.cluster_users import ClusterUsers, UsersTakeOver, names_users, renewed_hash
from broker_plugin.node.config import ConfigError, NodeConfig
from broker_plugin.node.operator_branches import EmbeddedBranches, OperatorBranches, RemoteBranches
from broker_plugin.node.passing import PassOn, Serve
from broker_plugin.node.upkeep import Upkeep
from broker_plugin.node.wiring import Parts, amqp_server
from ha.core import NodeCore
from ha.membership.node_state import ACTIVE
from txobserver.ports.ledger import Host


class ClientService(ABC):
    """``host`` is what the core tells; ``branches`` is for operators."""

    host: Host
    branches: OperatorBranches

    async def attach(self, ended: asyncio.Event) -> bool:
        """Before the node takes part in anything; False if it is told to end meanwhile. Raises ConfigError."""
        return True

    @abstractmethod
    def open(self, parts: Parts, settings: AmqpSettings, fit: int) -> None:
        """The node is wired, and has descriptors for so many clients."""

    def shown(self) -> dict[str, Any]:
        """What ``txha status`` shows of the clients and of what they take; nothing where that is not known here."""
        return {}

    @property
    def alarms(self) -> Collection[str]:
        """Why publishers are blocked, or would be, in the words of ``broker_plugin.amqp.alarms``."""
        return ()

    def queues(self) -> Sequence[Queue]:
        """Those of an active primary; none where that is not known here."""
        return ()

    def counted(self) -> dict[str, int]:
        """What has been done for clients since the process began, by name; nothing where that is not known here."""
        return {}

    @property
    @abstractmethod
    def logins(self) -> Logins:
        """Where logins that are refused before a client is passed on are told. Only when the node is wired."""

    @property
    @abstractmethod
    def keeps_users(self) -> bool:
        """Whether they log in as users of the cluster."""

    @property
    @abstractmethod
    def arrivals(self) -> Arrivals:
        """Of this node's clients, served here or passed on. Only when the node is wired."""

    @abstractmethod
    def verdict(self, generation: int) -> Serve | PassOn:
        """What becomes of a client of the active primary."""

    @abstractmethod
    def turned(self, core: NodeCore, congested: bool) -> None:
        """At the end of a turn. ``congested``: the cluster is behind, and takes nothing more at the moment."""

    @abstractmethod
    async def stop(self) -> None:
        """End every connection."""


class EmbeddedClients(ClientService):
    """ClientService of the embedded broker."""

    def __init__(self, guard: Guard, config: NodeConfig) -> None:
        self._guard = guard
        self._config = config
        self._broker = embedded_broker(
            guard,
            dtx_limits=DtxLimits(config.dtx.default_timeout, config.dtx.max_timeout),
            unsupported=meets_unsupported(config),
            marks=config.memory_marks(),
        )
        self._amqp: AmqpServer | None = None
        self._upkeep: Upkeep | None = None
        self._passwords: PasswordPool | None = None
        self._take_over: UsersTakeOver | None = None
        self.host = self._broker
        self.branches = EmbeddedBranches(self._broker)

    def open(self, parts: Parts, settings: AmqpSettings, fit: int) -> None:
        """The server of these clients begins, and what looks after their memory and the disk."""
        core, report, own = parts.core, parts.shell.report, settings.users
        self._passwords = PasswordPool(self._guard, renewed_hash(core, report))
        self._take_over = UsersTakeOver(self._guard, core, own, names_users(self._config.amqp), report)
        self._broker.rights.access = lambda: core.replica.contents.access
        users = ClusterUsers(lambda: core.replica.contents.access, own)
        self._amqp = amqp_server(parts, self._guard, self._broker, settings, tell_refused_login, users, self._passwords)
        self._amqp.keep_time()
        self._upkeep = Upkeep(self._config, self._guard, self._amqp, lambda: parts.core.state == ACTIVE, fit)
        self._upkeep.start()

    def shown(self) -> dict[str, Any]:
        """What clients take, and which alarms are on."""
        return self._upkeep.shown() if self._upkeep is not None else {}

    @property
    def alarms(self) -> Collection[str]:
        """Those that are on."""
        return self._server.alarms.on

    def queues(self) -> Sequence[Queue]:
        """Those that clients can use at this moment."""
        return list(self._broker.topology.queues.values()) if self._broker.active else ()

    def counted(self) -> dict[str, int]:
        """Of messages, channels and connections."""
        opened, there = self._server.opened, self._server.connections
        return {**self._broker.counters.shown(), "connections_opened": opened, "connections_closed": opened - there}

    @property
    def keeps_users(self) -> bool:
        """They do."""
        return True

    @property
    def logins(self) -> Logins:
        """Of this node's clients."""
        return self._server.logins

    @property
    def arrivals(self) -> Arrivals:
        """Counted with those that are served."""
        return self._server.arrivals

    def verdict(self, generation: int) -> Serve:
        """Served here."""
        return Serve(self._server.connection_factory)

    def turned(self, core: NodeCore, congested: bool) -> None:
        """Read no client while the cluster is behind; and make the node's users the cluster's, when that may be."""
        if self._take_over is not None:
            self._take_over.look()
        amqp = self._server
        if congested != amqp.paused:
            if congested:
                amqp.pause()
            else:
                amqp.resume()

    async def stop(self) -> None:
        """End every connection, and look no more."""
        try:
            await self._server.stop()
        finally:
            if self._upkeep is not None:
                self._upkeep.stop()
            if self._passwords is not None:
                self._passwords.stop()

    @property
    def _server(self) -> AmqpServer:
        assert self._amqp is not None, "opened before anything is asked"
        return self._amqp


class RemoteClients(ClientService):
    """ClientService of a host broker, which listens for them at an address of its own."""

    def __init__(self, guard: Guard, config: NodeConfig, on_gone: Callable[[str], None]) -> None:
        assert config.host is not None
        self._guard = guard
        self._door = BrokerDoor(guard, config.dir / config.host.socket, config.cluster, config.name, on_gone)
        self._congested = False
        self.host = self._door.remote
        self.branches = RemoteBranches(self._door.remote)

    async def attach(self, ended: asyncio.Event) -> bool:
        """Listen, and wait for the broker: without one the node would be a primary that serves no client."""
        try:
            await self._door.listen()
        except OSError as error:
            where = f"cannot listen for a host broker at {self._door.path}"
            raise ConfigError(f"{where}: {error.strerror or error}") from error
        waits = [self._guard.create_task(event.wait()) for event in (self._door.attached, ended)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
        if ended.is_set():
            await self._door.stop()
        return not ended.is_set()

    def open(self, parts: Parts, settings: AmqpSettings, fit: int) -> None:
        """Requests are taken as those of clients are: not after the lease."""
        self._door.before_input = parts.shell.look_at_clock
        self._logins = Logins(settings.users, tell_refused_login)
        self._arrivals = Arrivals(settings, lambda: self._guard.loop.time())

    @property
    def keeps_users(self) -> bool:
        """The host broker has its own."""
        return False

    @property
    def logins(self) -> Logins:
        """The host broker judges logins; what is refused on the way to it is told here."""
        return self._logins

    @property
    def arrivals(self) -> Arrivals:
        """Until the broker has let them log in."""
        return self._arrivals

    def verdict(self, generation: int) -> PassOn:
        """Passed on to the broker, until the record has another generation."""
        return PassOn(*self._door.address, generation)

    def turned(self, core: NodeCore, congested: bool) -> None:
        """Tell the broker of its lease, and read nothing of it while the cluster is behind."""
        leading = core.leading
        self._door.remote.lease(leading.keeper.serves_until if leading is not None else 0.0)
        if congested != self._congested:
            self._congested = congested
            self._door.set_reading(not congested)

    async def stop(self) -> None:
        """End the connection with the broker, which closes its clients."""
        await self._door.stop()


def clients_of(guard: Guard, config: NodeConfig, on_gone: Callable[[str], None]) -> ClientService:
    """As the configuration says."""
    return EmbeddedClients(guard, config) if config.host is None else RemoteClients(guard, config, on_gone)
