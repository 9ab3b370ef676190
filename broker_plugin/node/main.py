"""One node as a process: open the store, wire the parts together, run until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import uvloop

from broker_plugin.admin.server import AdminServer, CommandRefused
from broker_plugin.compiled import running
from broker_plugin.coordination.record_thread import RecordThread
from broker_plugin.guard import Guard
from broker_plugin.logs.events import InvariantsChecked, NodeStarted
from broker_plugin.logs.formats import set_up, tell
from broker_plugin.node.audited_changes import AuditedChanges
from broker_plugin.node.branch_admin import BranchAdmin
from broker_plugin.node.calls.part import CallsPart
from broker_plugin.node.certificate_watch import watch_certificate
from broker_plugin.node.client_settings import amqp_settings, features_for_clients, with_tls
from broker_plugin.node.clients import ClientService, clients_of
from broker_plugin.node.cluster_users import check_own_users
from broker_plugin.node.collector import Collector
from broker_plugin.node.config import INVARIANTS, ConfigError, NodeConfig, switch_invariants
from broker_plugin.node.definitions_admin import DefinitionsAdmin
from broker_plugin.node.descriptors import Rooms, raise_limit, rooms
from broker_plugin.node.door.admin import DoorAdmin
from broker_plugin.node.door.metrics import NodeMetrics
from broker_plugin.node.door.process import DoorProcess
from broker_plugin.node.doors import Doors
from broker_plugin.node.ending import end_at_once, end_in_time, ended
from broker_plugin.node.entrances import Entrances
from broker_plugin.node.link_identity import link_credentials
from broker_plugin.node.links import Links, PeerAddress
from broker_plugin.node.log_server import LogServer
from broker_plugin.node.member_admin import MemberAdmin
from broker_plugin.node.membership import cluster_identity
from broker_plugin.node.passing_tls import dialled_by
from broker_plugin.node.ports import check_ports
from broker_plugin.node.readiness import Readiness
from broker_plugin.node.rule_admin import RuleAdmin
from broker_plugin.node.shell import Shell, wall_ms
from broker_plugin.node.status import queue_names, status, transactions
from broker_plugin.node.tls_config import contexts_of
from broker_plugin.node.upkeep import clients_that_fit
from broker_plugin.node.user_admin import UserAdmin
from broker_plugin.node.users import read_users
from broker_plugin.node.waits import WAITS
from broker_plugin.node.wiring import FAREWELL, Parts, release, restored, wire
from broker_plugin.turn_monitor import TurnMonitor
from ha.core import NodeCore
from ha.membership.node_state import ACTIVE
from ha.membership.record import Coordination
from ha.membership.watchdog import Watchdog
from ha.messages.greeting import greeting
from recovery.store.store import CLOSE_SECONDS, Store, StoreHung, StoreSettings, open_store
from txobserver.invariants import CHECKS
from txobserver.ports.store import StoreBusy, StoreError

log = logging.getLogger("txha.node")
T = TypeVar("T")
SWITCH_INTERVAL = 0.0005
FIRST_SESSION_BITS = 61
"""A process numbers its attachments from a random number on: messages of a former one's are never taken for its own."""


def run_node(config: NodeConfig) -> int:
    """Run a node in the foreground; returns its exit status. Raises ConfigError, StoreBusy with nothing written."""
    switch_invariants(os.environ)
    set_up(config.name, config.log_level, config.log_format)
    # The log's writer thread waits for the interpreter at every step; the default of 5 ms would dominate its latency.
    sys.setswitchinterval(SWITCH_INTERVAL)
    return uvloop.run(_run(NodeProcess(config)))


async def _run(node: NodeProcess) -> int:
    status = await node.run()
    end_in_time()
    return status


class NodeProcess:
    """Everything of one node."""

    def __init__(self, config: NodeConfig) -> None:
        self._config = config
        self._users = read_users(config.amqp)
        self.tls = contexts_of(config.tls)
        self._credentials = link_credentials(config, self.tls)
        self._ended: asyncio.Event = asyncio.Event()
        self._started = contextlib.AsyncExitStack()  # what closes each part that has been started; the last one first
        self._failure: str | None = None
        self._in_order = False
        self._hung: str | None = None
        self._cluster_id = ""
        self._readiness = Readiness(1 + len(config.peers), config.min_ready)
        self._coordination: Coordination
        self._watchdog: Watchdog | None = None
        self.guard = Guard(lambda reason: self.shell.store_failed(reason), self._broken)
        self.store: Store
        self.parts: Parts
        self.core: NodeCore
        self.shell: Shell
        self.links: Links
        self.readers: LogServer
        self.doors: Doors
        self.calls: CallsPart
        self.metrics: NodeMetrics
        self.operators: DoorProcess | None = None
        self.clients: ClientService = clients_of(self.guard, config, partial(self._fail, in_order=True))

    async def run(self) -> int:
        """Start, wait for a signal or a failure, stop."""
        self.guard.watch()
        self.guard.monitor = TurnMonitor(self.guard.call_soon)
        for name in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(name, self._ended.set)  # a node that is broken ends as well
        await check_ports(self._config)
        async with self._started:
            if await self._join_cluster():
                if not await self._start():
                    return 0
                started = NodeStarted(str(self.store.member), str(self.core.replica.tail), running())
                tell(log, logging.INFO, started)
                if CHECKS.on:
                    tell(log, logging.WARNING, InvariantsChecked(INVARIANTS))
                await self._ended.wait()
        return ended(self._failure, self._hung)

    # -- starting

    async def _join_cluster(self) -> bool:
        """Learn which cluster this is, and open its store; False if the node was told to end meanwhile."""
        config = self._config
        self._coordination, self._watchdog = config.serve_coordination()
        end = self.guard.create_task(self._give_up_at_the_end())
        try:
            cluster_id = await cluster_identity(config, self._coordination, self._ended.is_set)
            if cluster_id is not None:
                self._cluster_id = cluster_id
                await self._unless_the_disk_hangs(self._open_store)
                self._started.callback(self._close_store)
                return True
        except BaseException:
            self._coordination.close()
            raise
        finally:
            end.cancel()
        self._coordination.close()
        return False

    async def _give_up_at_the_end(self) -> None:
        """A node that is told to end before it has read the record does not wait for an answer."""
        await self._ended.wait()
        self._coordination.give_up()

    async def _unless_the_disk_hangs(self, job: Callable[[], T]) -> T:
        """Do it in a thread: a node whose disk hangs at the start hears all the same that it is to end."""
        end = self.guard.create_task(self._end_without_the_store())
        try:
            return await asyncio.to_thread(job)
        finally:
            end.cancel()

    async def _end_without_the_store(self) -> None:
        await self._ended.wait()
        await asyncio.sleep(CLOSE_SECONDS)
        end_at_once(
            f"{self._config.dir} could not be opened within {CLOSE_SECONDS:g} s, so the node ends without it, as if it "
            "had been killed; look at the disk before you start the node again"
        )

    def _open_store(self) -> None:
        config = self._config
        try:
            self.store = open_store(
                config.dir,
                cluster=config.cluster,
                node=config.name,
                settings=StoreSettings(config.store.retention_seconds, config.store.segment_bytes),
                post=self.guard.call_soon_threadsafe,
                new_incarnation=lambda: secrets.token_hex(4),
                now_ms=wall_ms,
                cluster_id=self._cluster_id,
            )
        except StoreBusy:
            raise
        except StoreError as error:
            raise ConfigError(str(error)) from error

    async def _start(self) -> bool:
        """Returns whether the node takes part; it does not if it is told to end before its host broker has come."""
        config = self._config
        if not await self.clients.attach(self._ended):
            return False
        records = RecordThread(self._coordination, self.guard)
        self._started.callback(records.stop)
        replica = await self._unless_the_disk_hangs(lambda: restored(self.store))
        self.calls = CallsPart(self.guard, config, self._cluster_id, self.store.member, self.tls)
        await self._unless_the_disk_hangs(self.calls.load)
        self._started.callback(self.calls.stop)
        if self.clients.keeps_users:
            access, own = replica.contents.access, self._users
            await asyncio.to_thread(check_own_users, access, config.amqp, own)
        limit = raise_limit()
        room = rooms(limit)
        fit = clients_that_fit(config, limit, room)
        amqp = config.amqp
        others = features_for_clients(config)
        hello = with_tls(greeting(config.cluster, config.name, *amqp.reached, self._cluster_id, others), amqp)
        peers = [PeerAddress(peer.name, peer.host, peer.port) for peer in config.peers]
        self.readers = LogServer(
            self.guard, config.dir, config.cluster, lambda: self.core.feed, lambda: queue_names(self.core)
        )
        self._started.callback(self.readers.stop)
        self.parts = wire(
            self.guard,
            self.store,
            replica,
            self.clients.host,
            config.core_settings(),
            hello,
            self._credentials,
            peers,
            records,
            self._fail,
            self.readers.accept,
            first_session=secrets.randbits(FIRST_SESSION_BITS),
            admit=room.others.admit,
            watchdog=self._watchdog,
            local_calls=self.calls.local,
            surroundings=self.calls.surroundings,
            own=PeerAddress(config.name, config.peer.host, config.peer.port),
        )
        self.calls.answer_to(self.parts)
        self.core, self.shell, self.records, self.links = self.parts
        self._started.callback(self.shell.stop)
        amiss = self.calls.surroundings.amiss
        of_clients = (self.clients, self._readiness, amiss, self.calls.certificates.expires)
        self.metrics = NodeMetrics(self.guard, self.core, self.shell, self.store, *of_clients)
        self.shell.on_turn = self._after_turn
        await self._listen(room, fit)
        self._started.push_async_callback(self._leave)
        self._started.callback(watch_certificate(self.guard, self.tls))
        collector = Collector(self.guard)
        self._started.callback(collector.stop)
        collector.start()
        self.shell.start()
        return True

    async def _listen(self, room: Rooms, fit: int) -> None:
        """To clients, other nodes and operators. A part that listens and then fails is closed as well."""
        config = self._config
        self.clients.open(self.parts, amqp_settings(config, self._cluster_id, self._users, fit), fit)
        self._closed_by(self.clients.stop)
        refuse, amqp = config.backup_clients == "refuse", config.host is None
        secrets, dialled = self._credentials.secrets, dialled_by(self.tls)
        self.doors = Doors(self.guard, self.parts, self.clients, room.clients, secrets, refuse, amqp, dialled)
        self._closed_by(self.links.stop)
        await self.links.start(config.peer.host, config.peer.port)
        arrivals, certified = self.clients.arrivals, secrets.by_certificate
        entrances = Entrances(self.guard, config.amqp, self.tls, arrivals, room.clients, self.doors.open, certified)
        self._started.callback(entrances.close)
        await entrances.listen()
        calls = self.calls.open(self.parts, entrances)
        self._started.callback(self.calls.listeners.stop)
        logins = self.clients.logins if self.clients.keeps_users else None
        changes = AuditedChanges(self.core, self.shell.report, logins)
        shown, told = self.clients.shown, self.links.alarms.of
        door = DoorAdmin(config, self.core, self._readiness, self.calls.listeners, logins, shown, told)
        admin = AdminServer(
            self.guard,
            config.dir,
            {
                "status": self._status,
                "transactions": self._transactions,
                "promote": self._promote,
                **BranchAdmin(self.core, self.clients.branches, self.shell).handlers,
                **calls,
                **UserAdmin(changes).handlers,
                **RuleAdmin(changes).handlers,
                **MemberAdmin(self.core, self.shell.report, lambda: self.records.complaint).handlers,
                **DefinitionsAdmin(self.core, changes).handlers,
                **door.handlers,
                **self.metrics.handlers,
            },
            room.operators.admit,
            WAITS,
        )
        self._closed_by(admin.stop)
        await admin.start()
        if config.http is not None:
            self.operators = DoorProcess(self.guard, config)
            self.calls.certificates.on_change = self.operators.certificates_changed
            self._started.callback(self.operators.stop)
            self.operators.start()

    # -- running

    def _after_turn(self) -> None:
        core = self.core
        leading = core.leading
        self._readiness.follow(core)
        self._readiness.look(len(leading.keeper.record.ready) if leading and core.state == ACTIVE else None)
        congested = leading is not None and leading.primary.point.serving and leading.primary.congested
        self.clients.turned(core, congested)
        self.links.alarms.look(self.clients.alarms)
        self.doors.look()
        self.metrics.look()

    def _fail(self, reason: str, in_order: bool = False) -> None:
        """The node cannot go on: leave time for the last messages, then end; ``in_order``, as when it is told to."""
        if self._failure is None:
            self._failure, self._in_order = reason, in_order
        self.guard.call_later(0 if in_order else FAREWELL, self._ended.set)

    def _broken(self, reason: str) -> None:
        """Nothing of this node runs any more: end at once."""
        self._failure = self._failure or reason
        self._ended.set()

    async def _status(self, arguments: dict[str, Any]) -> Any:
        self.shell.look_at_clock()
        said = status(self.core, self.store.member, self._readiness, self.records.complaint)
        door_error = None if self.operators is None else self.operators.complaint
        certificate = self.calls.certificates.shown()
        return {**said, "door_error": door_error, "certificate": certificate, **self.clients.shown()}

    async def _transactions(self, arguments: dict[str, Any]) -> Any:
        self.shell.look_at_clock()
        return transactions(self.core)

    async def _promote(self, arguments: dict[str, Any]) -> Any:
        refused: list[str | None] = []
        try:
            loses, version = bool(arguments.get("accept_data_loss")), int(arguments.get("version", 0))
        except (TypeError, ValueError, OverflowError):
            raise CommandRefused("the version of the record is a whole number") from None
        self.shell.report(lambda: refused.append(self.core.promote(loses, version)))
        reason = refused[0] if refused else "the node is stopping"
        if reason:
            complaint = self.records.complaint  # of the record, by which the node would judge
            raise CommandRefused(f"{complaint}; {reason}" if complaint else reason)
        return {}

    # -- stopping

    def _closed_by(self, stop: Callable[[], Awaitable[None]]) -> None:
        """A part is about to be started, which ``stop`` closes. That the system refuses to is no reason to stay."""

        async def closing() -> None:
            with contextlib.suppress(OSError):
                await stop()

        self._started.push_async_callback(closing)

    async def _leave(self) -> None:
        """The first step of the end: give the lease up, if it is ours, and take no more turns."""
        if self._failure is None or self._in_order:
            await release(self.parts)
        self.shell.stop()

    def _close_store(self) -> None:
        try:
            self.store.close()
        except StoreHung as error:
            self._hung = str(error)
