"""A node's part in cluster calls, put together: what is kept, its surroundings, what operators ask of it."""

from __future__ import annotations

from broker_plugin.admin.server import Handler
from broker_plugin.guard import Guard
from broker_plugin.node.calls.actions import FlagAction, LogLevel, NodeAction
from broker_plugin.node.calls.admin import CallsAdmin
from broker_plugin.node.calls.certificates import Certificates
from broker_plugin.node.calls.hooks import Hooks
from broker_plugin.node.calls.kept_file import FileOwner
from broker_plugin.node.calls.listeners import ListenerAddress, Listeners
from broker_plugin.node.calls.surroundings import NodeSurroundings, actions_file, calls_file, local_calls
from broker_plugin.node.config import NodeConfig
from broker_plugin.node.entrances import Entrances
from broker_plugin.node.wiring import Parts
from broker_plugin.tls.contexts import Contexts
from txobserver.actions import CERTIFICATES, FLAG, HOOK, LISTENER, LOG_LEVEL
from txobserver.calls import LocalCalls
from txobserver.ids import Member


class CallsPart:
    """``load`` before the node is wired, then ``open``, and ``stop`` in the end."""

    def __init__(
        self, guard: Guard, config: NodeConfig, cluster_id: str, member: Member, contexts: Contexts | None = None
    ) -> None:
        self.local = LocalCalls()
        self._owner = FileOwner(cluster_id, member.node, member.incarnation)
        self._nodes = 1 + len(config.peers)
        retry = config.timing.call_retry
        addresses = {name: ListenerAddress(each.host, each.port, each.tls) for name, each in config.listeners.items()}
        self.listeners = Listeners(guard, addresses, retry)
        self.certificates = Certificates(contexts)
        about = {"HOOK_NODE": config.name, "HOOK_CLUSTER": config.cluster}
        actions: dict[str, NodeAction] = {
            LOG_LEVEL: LogLevel(config.log_level),
            LISTENER: self.listeners,
            HOOK: Hooks(config.hooks, config.hook_seconds, config.dir, about),
            FLAG: FlagAction(),
            CERTIFICATES: self.certificates,
        }
        self._file = calls_file(config.dir, self._owner)
        self.surroundings = NodeSurroundings(guard, actions, self._file, actions_file(config.dir, self._owner), retry)

    def load(self) -> None:
        """Read what was kept, and do again what has gone with the former process. Raises StoreError."""
        self.local = local_calls(self._file, self._owner)
        self.surroundings.load()

    def answer_to(self, parts: Parts) -> None:
        """The node is wired: its core hears what becomes of what it asks for."""
        self.surroundings.answers = parts.shell.interpreter

    def open(self, parts: Parts, entrances: Entrances) -> dict[str, Handler]:
        """Take clients at the listeners that are to be open; what operators ask."""
        self.listeners.make, self.listeners.make_secured = entrances.open, entrances.open_secured
        self.listeners.start()
        return CallsAdmin(parts.core, parts.shell, self.surroundings, self._nodes).handlers

    def stop(self) -> None:
        """End what runs."""
        self.surroundings.stop()
