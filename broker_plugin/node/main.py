"""One node as a process: open the store, wire the parts together, run until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import secrets
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import uvloop

from broker_plugin.admin.server import AdminServer, CommandRefused
from broker_plugin.amqp.protocol.settings import AmqpSettings
from broker_plugin.amqp.server import AmqpServer, embedded_broker
from broker_plugin.compiled import running
from broker_plugin.coordination.coordination_process import ANSWER_SECONDS
from broker_plugin.coordination.record_thread import RecordThread
from broker_plugin.embedded.broker import EmbeddedBroker
from broker_plugin.embedded.transactions.branch_table import DtxLimits
from broker_plugin.guard import Guard
from broker_plugin.logs.events import InvariantsChecked, NodeFailed, NodeStarted
from broker_plugin.logs.formats import set_up, tell
from broker_plugin.node.branch_admin import BranchAdmin
from broker_plugin.node.config import INVARIANTS, ConfigError, NodeConfig, switch_invariants
from broker_plugin.node.descriptors import Rooms, raise_limit, rooms
from broker_plugin.node.links import Links, PeerAddress
from broker_plugin.node.log_server import LogServer
from broker_plugin.node.membership import cluster_identity
from broker_plugin.node.proxy import FrontDoor, PassOn, Refuse, Serve, Verdict
from broker_plugin.node.readiness import Readiness
from broker_plugin.node.shell import Shell, wall_ms
from broker_plugin.node.status import queue_names, status, transactions
from broker_plugin.node.users import read_users
from broker_plugin.node.wiring import FAREWELL, Parts, amqp_server, release, restored, wire
from ha.core import NodeCore
from ha.membership.node_state import ACTIVE
from ha.membership.record import Coordination
from ha.messages.greeting import greeting
from recovery.store.store import CLOSE_SECONDS, Store, StoreHung, StoreSettings, open_store
from txobserver.invariants import CHECKS
from txobserver.ports.store import StoreBusy, StoreError

log = logging.getLogger("txha.node")
T = TypeVar("T")
SWITCH_INTERVAL = 0.0005
CLIENTS_WAITING = 1024
"""Connections that the operating system keeps until the node accepts them."""
GC_THRESHOLDS = (50_000, 20, 50)
"""Of the collector's three generations, in objects and in runs of the generation below."""
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
        self._ended: asyncio.Event = asyncio.Event()
        self._started = contextlib.AsyncExitStack()  # what closes each part that has been started; the last one first
        self._failure: str | None = None
        self._hung: str | None = None
        self._cluster_id = ""
        self._readiness = Readiness(1 + len(config.peers), config.min_ready)
        self._coordination: Coordination
        self._doors: set[FrontDoor] = set()
        self._verdict_state: object = None
        self.guard = Guard(lambda reason: self.shell.store_failed(reason), self._broken)
        self.store: Store
        self.parts: Parts
        self.core: NodeCore
        self.shell: Shell
        self.links: Links
        self.readers: LogServer
        self.amqp: AmqpServer

    async def run(self) -> int:
        """Start, wait for a signal or a failure, stop."""
        self.guard.watch()
        for name in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(name, self._ended.set)  # a node that is broken ends as well
        await self._check_ports()
        async with self._started:
            if await self._join_cluster():
                await self._start()
                started = NodeStarted(str(self.store.member), str(self.core.replica.tail), running())
                tell(log, logging.INFO, started)
                if CHECKS.on:
                    tell(log, logging.WARNING, InvariantsChecked(INVARIANTS))
                await self._ended.wait()
        return ended(self._failure, self._hung)

    # -- starting

    async def _check_ports(self) -> None:
        """Find a port in use before anything is written."""
        loop = asyncio.get_running_loop()
        for what, host, port in (
            ("AMQP clients", self._config.amqp.host, self._config.amqp.port),
            ("other nodes", self._config.peer.host, self._config.peer.port),
        ):
            try:
                server = await loop.create_server(asyncio.Protocol, host, port)
            except OSError as error:
                raise ConfigError(
                    f"cannot listen for {what} on {host}:{port}: {error.strerror or error}; choose another port"
                ) from error
            server.close()
            await server.wait_closed()

    async def _join_cluster(self) -> bool:
        """Learn which cluster this is, and open its store; False if the node was told to end meanwhile."""
        config = self._config
        answer_seconds = max(ANSWER_SECONDS, config.timing.lease_ttl)
        self._coordination = config.coordination.serve(config.cluster, answer_seconds)
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

    async def _start(self) -> None:
        config = self._config
        records = RecordThread(self._coordination, self.guard)
        self._started.callback(records.stop)
        replica = await self._unless_the_disk_hangs(lambda: restored(self.store))
        room = rooms(raise_limit())
        broker = embedded_broker(self.guard, dtx_limits=DtxLimits(config.dtx.default_timeout, config.dtx.max_timeout))
        hello = greeting(config.cluster, config.name, config.amqp.host, config.amqp.port, self._cluster_id)
        peers = [PeerAddress(peer.name, peer.host, peer.port) for peer in config.peers]
        self.readers = LogServer(
            self.guard, config.dir, config.cluster, lambda: self.core.feed, lambda: queue_names(self.core)
        )
        self._started.callback(self.readers.stop)
        self.parts = wire(
            self.guard,
            self.store,
            replica,
            broker,
            config.core_settings(),
            hello,
            peers,
            records,
            self._fail,
            self.readers.accept,
            first_session=secrets.randbits(FIRST_SESSION_BITS),
            admit=room.others.admit,
        )
        self.core, self.shell, self.records, self.links = self.parts
        self._started.callback(self.shell.stop)
        self.shell.on_turn = self._after_turn
        await self._listen(broker, room)
        self._started.push_async_callback(self._leave)
        # Messages are not looked at by the collector; what is left to find is little, and all clients feel a pause.
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        self.shell.start()

    async def _listen(self, broker: EmbeddedBroker, room: Rooms) -> None:
        """To clients, other nodes and operators. A part that listens and then fails is closed as well."""
        config = self._config
        settings = amqp_settings(self._config, self._cluster_id, self._users)
        self.amqp = amqp_server(self.parts, self.guard, broker, settings)
        self._closed_by(self.amqp.stop)
        self._closed_by(self.links.stop)
        await self.links.start(config.peer.host, config.peer.port)
        server = await self.guard.create_server(
            lambda: FrontDoor(self.guard, self._decide, self._doors, room.clients),
            config.amqp.host,
            config.amqp.port,
            backlog=CLIENTS_WAITING,
        )
        self._started.callback(server.close)
        admin = AdminServer(
            self.guard,
            config.dir,
            {
                "status": self._status,
                "transactions": self._transactions,
                "promote": self._promote,
                **BranchAdmin(self.core, broker, self.shell).handlers,
            },
            room.operators.admit,
        )
        self._closed_by(admin.stop)
        await admin.start()

    # -- running

    def _decide(self) -> Verdict:
        """What becomes of a client's connection."""
        self.shell.look_at_clock()
        core = self.core
        if core.state == ACTIVE and core.leading and core.leading.primary.point.serving:
            return Serve(self.amqp.connection_factory)
        if self._config.backup_clients == "refuse" and core.state != ACTIVE:
            return Refuse()
        if (following := core.following) and following.backup.attached:
            greeting = self.links.greetings.get(following.backup.primary)
            if greeting is not None:
                return PassOn(greeting.amqp_host, greeting.amqp_port, core.generation)
        return None

    def _after_turn(self) -> None:
        core = self.core
        leading, following = core.leading, core.following
        self._readiness.look(len(leading.keeper.record.ready) if leading and core.state == ACTIVE else None)
        congested = leading is not None and leading.primary.point.serving and leading.primary.congested
        if congested != self.amqp.paused:
            if congested:
                self.amqp.pause()
            else:
                self.amqp.resume()
        state = (core.state, core.generation, following is not None and following.backup.attached)
        if state != self._verdict_state:
            self._verdict_state = state
            for door in list(self._doors):
                door.look(core.generation)

    def _fail(self, reason: str) -> None:
        """The core cannot go on: leave time for the last messages, then end."""
        self._failure = self._failure or reason
        self.guard.call_later(FAREWELL, self._ended.set)

    def _broken(self, reason: str) -> None:
        """Nothing of this node runs any more: end at once."""
        self._failure = self._failure or reason
        self._ended.set()

    async def _status(self, arguments: dict[str, Any]) -> Any:
        self.shell.look_at_clock()
        return status(self.core, self.store.member, self._readiness, self.records.complaint)

    async def _transactions(self, arguments: dict[str, Any]) -> Any:
        self.shell.look_at_clock()
        return transactions(self.core)

    async def _promote(self, arguments: dict[str, Any]) -> Any:
        refused: list[str | None] = []
        loses, version = bool(arguments.get("accept_data_loss")), int(arguments.get("version", 0))
        self.shell.report(lambda: refused.append(self.core.promote(loses, version)))
        reason = refused[0] if refused else "the node is stopping"
        if reason:
            complaint = self.records.complaint  # of the record, by which the node would judge
            raise CommandRefused(f"{reason}; {complaint}" if complaint else reason)
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
        if self._failure is None:
            await release(self.parts)
        self.shell.stop()

    def _close_store(self) -> None:
        try:
            self.store.close()
        except StoreHung as error:
            self._hung = str(error)


def amqp_settings(config: NodeConfig, cluster_id: str, users: dict[str, str]) -> AmqpSettings:
    """What connections of clients go by."""
    amqp = config.amqp
    return AmqpSettings(
        cluster=config.cluster,
        cluster_id=cluster_id,
        users=users,
        heartbeat=amqp.heartbeat,
        frame_max=amqp.frame_max,
        channel_max=amqp.channel_max,
        max_connections=amqp.max_connections,
    )


def ended(failure: str | None, hung: str | None) -> int:
    """Say what the node has failed with; its exit status. Where its disk hangs, this is the end."""
    if failure:
        tell(log, logging.ERROR, NodeFailed(failure))
    if hung:
        end_at_once(hung)
    return 1 if failure else 0


def end_in_time() -> None:
    """Let this process end by itself, or at once when threads of it still wait for a disk after CLOSE_SECONDS."""
    reason = f"a thread of this node has waited for its disk for {CLOSE_SECONDS:g} s, so the node ends without it"
    timer = threading.Timer(CLOSE_SECONDS, end_at_once, [f"{reason}; look at the disk before you start it again"])
    timer.daemon = True
    timer.start()


def end_at_once(reason: str) -> None:
    """End this process with status 1, also while threads of it wait for a disk: its usual end would wait for them.

    Nothing that was acknowledged needs what they write, or it would not have been acknowledged.
    """
    tell(log, logging.ERROR, NodeFailed(reason))
    logging.shutdown()
    os._exit(1)
