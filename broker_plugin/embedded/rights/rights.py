"""What a user may do on this broker, as RabbitMQ has it: permissions, topic permissions, limits of connections.

What has been allowed is remembered until the next change of who may do what, so that a change holds at once, also on
connections that are open.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker_plugin.embedded.errors import AmqpError, located, refused
from broker_plugin.embedded.rights.patterns import fits, literal
from txobserver.access import Access
from txobserver.rules import (
    MAX_CHANNELS,
    MAX_CONNECTIONS,
    MAX_QUEUES,
    PERMISSION,
    TOPIC_PERMISSION,
    USER_LIMIT,
    VHOST_LIMIT,
    Limit,
    Permission,
    Rule,
    TopicPermission,
    place,
)
from txobserver.vhosts import DEFAULT_VHOST

CONFIGURE: Final = "configure"
WRITE: Final = "write"
READ: Final = "read"
QUEUE: Final = "queue"
EXCHANGE: Final = "exchange"
DEFAULT_EXCHANGE: Final = "amq.default"
"""What the exchange without a name is called where its permission is looked for"""
REMEMBERED: Final = 1000
"""Names of exchanges, and answers, that are remembered of a user at a time"""

Rules = Callable[[], Access]


class Rights:
    """Of one user; of a client in this process, who has no name, everything is allowed.

    ``writable``: exchanges that the user may publish to with any routing key, as far as that is known.
    """

    def __init__(self, user: str = "", access: Rules | None = None, vhost: str = DEFAULT_VHOST) -> None:
        self.user = user
        self.vhost = vhost
        self.connections = self.channels = 0
        self.writable: set[str] = set()
        self._access = access
        self._allowed: set[tuple[str, str, str]] = set()

    def forget(self) -> None:
        """Something about users has changed."""
        self.writable.clear()
        self._allowed.clear()

    def check(self, what: str, kind: str, name: str) -> None:
        """Whether the user may configure, write or read a queue or an exchange. 403 if not."""
        if (what, kind, name) in self._allowed:
            return
        if not self._may(what, name or DEFAULT_EXCHANGE):
            shown = located(kind, name or DEFAULT_EXCHANGE)
            raise refused(f"{what} access to {shown} refused for user '{self.user}'")
        if len(self._allowed) >= REMEMBERED:
            self._allowed.clear()
        self._allowed.add((what, kind, name))

    def check_topic(self, what: str, exchange: str, key: str) -> None:
        """Whether the user may publish to a topic exchange, or bind to it, with this routing key. 403 if not."""
        rule = self._rule(TOPIC_PERMISSION, self.vhost, self.user, exchange)
        if rule is None or not isinstance(rule.value, TopicPermission):
            return
        pattern = rule.value.write if what == WRITE else rule.value.read
        for variable, value in (("{username}", self.user), ("{vhost}", self.vhost)):
            pattern = pattern.replace(variable, literal(value))
        if not fits(pattern, key):
            where = f"topic '{key}' in {located(EXCHANGE, exchange)}"
            raise refused(f"{what} access to {where} refused for user '{self.user}'")

    def check_publish(self, exchange: str, key: str, topic: bool) -> None:
        """Whether the user may publish this. ``topic``: whether the exchange is one. 403 if not."""
        self.check(WRITE, EXCHANGE, exchange)
        if topic:
            self.check_topic(WRITE, exchange, key)
        if self._rule(TOPIC_PERMISSION, self.vhost, self.user, exchange) is None:
            if len(self.writable) >= REMEMBERED:
                self.writable.clear()
            self.writable.add(exchange)

    def check_open(self, connections_here: int) -> None:
        """Whether the user may open one more connection. ``connections_here``: of all users. 530 if not."""
        here = self._limit(VHOST_LIMIT, self.vhost, self.vhost, MAX_CONNECTIONS)
        refusal = f"access to vhost '{self.vhost}' refused for user '{self.user}'"
        if 0 <= here <= connections_here:
            raise AmqpError(530, f"{refusal}: connection limit ({here}) is reached")
        own = self._limit(USER_LIMIT, "", self.user, MAX_CONNECTIONS)
        if 0 <= own <= self.connections:
            raise AmqpError(530, f"connection refused for user '{self.user}': user connection limit ({own}) is reached")
        if not self._everything and self._rule(PERMISSION, self.vhost, self.user, "") is None:
            raise AmqpError(530, refusal)

    def check_channel(self) -> None:
        """Whether the user may open one more channel. 530 if not."""
        most = self._limit(USER_LIMIT, "", self.user, MAX_CHANNELS)
        if 0 <= most <= self.channels:
            reached = f"has reached the maximum allowed user limit of ({most})"
            raise AmqpError(530, f"number of channels opened for user '{self.user}' {reached}")

    def most_queues(self) -> int:
        """How many queues there may be in the virtual host; -1 for as many as there come."""
        return self._limit(VHOST_LIMIT, self.vhost, self.vhost, MAX_QUEUES)

    @property
    def _everything(self) -> bool:
        """Whether no rules hold: for a client in this process, and while the cluster keeps no users."""
        return self._access is None or not self._access().events

    def _may(self, what: str, name: str) -> bool:
        if self._everything:
            return True
        rule = self._rule(PERMISSION, self.vhost, self.user, "")
        return rule is not None and isinstance(rule.value, Permission) and fits(getattr(rule.value, what), name)

    def _limit(self, kind: str, vhost: str, name: str, which: str) -> int:
        rule = self._rule(kind, vhost, name, which)
        return rule.value.most if rule is not None and isinstance(rule.value, Limit) else -1

    def _rule(self, kind: str, vhost: str, name: str, scope: str) -> Rule | None:
        return None if self._access is None else self._access().rules.get(place(kind, vhost, name, scope))


class RightsBook:
    """The rights of all users who are connected. Without ``access`` all may do everything."""

    def __init__(self) -> None:
        self.access: Rules | None = None
        self._of: dict[str, Rights] = {}
        self._connections = 0

    def open(self, user: str) -> Rights:
        """A connection of this user begins, until ``close``. 530 if it may not."""
        if not user:
            return Rights()
        rights = self._of.get(user) or Rights(user, self.access)
        rights.check_open(self._connections)
        self._of[user] = rights
        rights.connections += 1
        self._connections += 1
        return rights

    def close(self, rights: Rights) -> None:
        """A connection has ended."""
        if rights.user:
            rights.connections -= 1
            self._connections -= 1
            if not rights.connections and self._of.get(rights.user) is rights:
                del self._of[rights.user]

    def forget(self) -> None:
        """Something about users has changed: what was allowed may not be any more."""
        for rights in self._of.values():
            rights.forget()

    def end_all(self) -> None:
        """This node is no longer the primary, and all connections have ended."""
        self._of = {}
        self._connections = 0
