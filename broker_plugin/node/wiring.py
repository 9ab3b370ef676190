"""How the parts of a node are wired together, for the process and for the simulator alike."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from broker_plugin.amqp.protocol.handshake import History
from broker_plugin.amqp.protocol.logins import AtOnce, PasswordChecks, Told, UserBook
from broker_plugin.amqp.protocol.settings import AmqpSettings
from broker_plugin.amqp.server import AmqpServer
from broker_plugin.coordination.record_thread import RecordThread
from broker_plugin.embedded.broker import EmbeddedBroker
from broker_plugin.guard import Guard
from broker_plugin.node.client_settings import tell_refused_login
from broker_plugin.node.linked_members import LinkedMembers
from broker_plugin.node.links import LinkCredentials, Links, PeerAddress
from broker_plugin.node.loop_watch import LoopWatch
from broker_plugin.node.peer_protocol import Admit, OnReader, admit_all
from broker_plugin.node.shell import CLOCKS, Clocks, Shell
from ha.apply.replica import GapInStream, Replica, UnknownEvents
from ha.core import NodeCore
from ha.interpreter import Surroundings
from ha.membership.watchdog import Watchdog
from ha.messages.greeting import Hello
from ha.settings import Settings
from recovery.store.store import Store
from txobserver.calls import LocalCalls
from txobserver.ports.ledger import Host
from txobserver.ports.store import StoreDamaged, StoreError

FAREWELL = 0.3
"""Seconds between a failure and the end of the node, for its last messages"""

RELEASE_SECONDS = 0.5
RELEASE_GLANCE = 0.01
"""How long a primary that is stopping waits for its lease to be given up, when its clients have been drained for
``timing.drain_seconds`` at most, and how often it looks."""


class Parts(NamedTuple):
    """What every node consists of, whatever its clients are."""

    core: NodeCore
    shell: Shell
    records: RecordThread
    links: Links


def restored(store: Store, make: Callable[..., Replica] = Replica) -> Replica:
    """What the store leads to. Raises StoreError, also for a log that a later version of txha has written."""
    replica = make(store.base, *store.loaded)
    try:
        for frame in store.suffix():
            replica.restore(frame)
    except UnknownEvents as error:
        raise StoreError(
            f"the log: {error}; start this node with the version that wrote it, nothing in its store has been lost"
        ) from None
    except GapInStream as error:
        raise StoreDamaged(f"the log: {error}; let the node rejoin with a new store") from None
    return replica


def wire(
    guard: Guard,
    store: Store,
    replica: Replica,
    broker: Host,
    settings: Settings,
    hello: Hello,
    credentials: LinkCredentials,
    peers: list[PeerAddress],
    records: RecordThread,
    on_stop: Callable[[str], None],
    on_reader: OnReader | None = None,
    clocks: Clocks = CLOCKS,
    first_session: int = 0,
    admit: Admit = admit_all,
    watchdog: Watchdog | None = None,
    local_calls: LocalCalls | None = None,
    surroundings: Surroundings | None = None,
    own: PeerAddress | None = None,
) -> Parts:
    """To be called in the event loop; then ``links`` and ``shell`` are to be started, in this order.

    ``guard`` tells ``shell.store_failed`` what a store fails with. ``watchdog`` is shown the turns of a primary.
    ``local_calls``: what the node has kept of cluster calls; ``surroundings``: what these work on. ``own``: where it
    listens for other nodes; None where no record ever says who is a member.
    """
    core = NodeCore(store.member, replica, broker, settings, store.first, hello.cluster_id, first_session, local_calls)
    loop_watch = None if watchdog is None else LoopWatch(core, watchdog)
    shell = Shell(core, store, records, settings.renew_every, on_stop, guard, clocks, loop_watch, surroundings)
    core.wake = shell.due
    links = shell.io.links = Links(guard, hello, credentials, peers, shell.on_link, shell.on_message, on_reader, admit)
    if own is not None:
        shell.on_settled = LinkedMembers(core, links, peers, own).look
    return Parts(core, shell, records, links)


def amqp_server(
    parts: Parts,
    guard: Guard,
    broker: EmbeddedBroker,
    settings: AmqpSettings,
    told: Told = tell_refused_login,
    users: UserBook | None = None,
    checks: PasswordChecks = AtOnce(),  # noqa: B008 -- it has no state
) -> AmqpServer:
    """The server of this node's clients, which tells them nothing when its lease may be another's.

    ``told`` is called with each login that is refused; ``users`` and ``checks`` as for ``AmqpServer``.
    """

    def history() -> History:
        record = parts.core.record
        return History(record.generation, max(record.loss_accepted, record.loss_unknown)) if record else History()

    look = parts.shell.look_at_clock
    server = AmqpServer(guard, broker, settings, lambda: None, look, history, told, users, checks)
    parts.shell.on_overslept = server.forget_output
    return server


async def release(parts: Parts) -> None:
    """The node is about to stop: if it is primary, drain the clients and give the lease up, if the coordination store
    answers in time."""
    parts.shell.report(lambda: parts.core.resign("the node is stopping"))
    seconds = parts.core.settings.drain_seconds + RELEASE_SECONDS
    for _ in range(round(seconds / RELEASE_GLANCE)):
        if parts.core.leading is None:
            return
        await asyncio.sleep(RELEASE_GLANCE)
