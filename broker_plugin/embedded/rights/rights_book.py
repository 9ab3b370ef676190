"""The rights of all users who are connected, and the virtual hosts that they may connect to."""

from __future__ import annotations

from collections import Counter

from broker_plugin.embedded.errors import AmqpError
from broker_plugin.embedded.rights.rights import Rights, Rules, UserCounts
from txobserver.rule_table import vhost_there, vhosts_going
from txobserver.rules import VHOST
from txobserver.vhosts import DEFAULT_VHOST


class RightsBook:
    """``access``: who may use the cluster. Without it, or while the cluster keeps no users, all may do everything in
    the default virtual host, which is the only one then."""

    def __init__(self) -> None:
        self.access: Rules | None = None
        self._of: dict[tuple[str, str], Rights] = {}
        self._counts: dict[str, UserCounts] = {}
        self._connections: Counter[str] = Counter()

    def open(self, user: str, vhost: str) -> Rights:
        """A connection of this user to a virtual host begins, until ``close``. 530 if it may not."""
        if not self._is_there(vhost):
            raise AmqpError(530, f"vhost {vhost} not found")
        rights = self._of.get((user, vhost))
        if rights is None:
            rights = Rights(user, self.access if user else None, vhost, self._counts.get(user))
        rights.check_open(self._connections[vhost])
        self._of[user, vhost] = rights
        self._counts[user] = rights.counts
        rights.connections += 1
        rights.counts.connections += 1
        self._connections[vhost] += 1
        return rights

    def close(self, rights: Rights) -> None:
        """A connection has ended."""
        rights.connections -= 1
        rights.counts.connections -= 1
        self._connections[rights.vhost] -= 1
        if not rights.connections:
            self._of.pop((rights.user, rights.vhost), None)
        if not rights.counts.connections:
            self._counts.pop(rights.user, None)
        if not self._connections[rights.vhost]:
            del self._connections[rights.vhost]

    def forget(self) -> None:
        """Something about users has changed: what was allowed may not be any more."""
        for rights in self._of.values():
            rights.forget()

    def end_all(self) -> None:
        """This node is no longer the primary, and all connections have ended."""
        self._of = {}
        self._counts = {}
        self._connections = Counter()

    def connections_in(self, vhost: str) -> int:
        """How many connections there are to a virtual host."""
        return self._connections.get(vhost, 0)

    def vhosts(self) -> list[str]:
        """The virtual hosts beside the default one, those among them that are being deleted."""
        if self.access is None:
            return []
        return [r.name for r in self.access().rules.values() if r.kind == VHOST and r.name != DEFAULT_VHOST]

    def vhosts_going(self) -> list[str]:
        """Those that are being deleted."""
        return [] if self.access is None else vhosts_going(self.access().rules)

    def _is_there(self, vhost: str) -> bool:
        if vhost == DEFAULT_VHOST:
            return True
        return self.access is not None and vhost_there(self.access().rules, vhost)
