"""What a user may do on this broker, as RabbitMQ has it: permissions, topic permissions, limits of connections.

What has been allowed is remembered until the next change of who may do what, so that a change holds at once, also on
connections that are open. An operation asks when it comes and, where it has waited for others, again when its turn has
come (``allowed_when_it_came``).
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
from txobserver.vhosts import DEFAULT_VHOST, beside, full_name, local_name

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


class UserCounts:
    """What a user has open, in all virtual hosts."""

    def __init__(self) -> None:
        self.connections = self.channels = 0


class Rights:
    """Of one user in one virtual host; of a client in this process, who has no name, everything is allowed.

    ``connections``: how many there are of the user in this virtual host; ``counts``: in all of them. ``writable``: the
    full names of exchanges that the user may publish to with any routing key, by their names, as far as that is known.
    """

    def __init__(
        self,
        user: str = "",
        access: Rules | None = None,
        vhost: str = DEFAULT_VHOST,
        counts: UserCounts | None = None,
    ) -> None:
        self.user = user
        self.vhost = vhost
        self.counts = counts or UserCounts()
        self.connections = 0
        self.writable: dict[str, str] = {}
        self._access = access
        self._allowed: set[tuple[str, str, str]] = set()

    def forget(self) -> None:
        """Something about users has changed."""
        self.writable.clear()
        self._allowed.clear()

    def check(self, what: str, kind: str, full: str) -> None:
        """Whether the user may configure, write or read a queue or an exchange, by its full name. 403 if not."""
        if (what, kind, full) in self._allowed:
            return
        if not self._may(what, local_name(full) or DEFAULT_EXCHANGE):
            shown = located(kind, full if local_name(full) else beside(full, DEFAULT_EXCHANGE))
            raise refused(f"{what} access to {shown} refused for user '{self.user}'")
        if len(self._allowed) >= REMEMBERED:
            self._allowed.clear()
        self._allowed.add((what, kind, full))

    def check_topic(self, what: str, exchange: str, key: str) -> None:
        """Whether the user may publish to a topic exchange, or bind to it, with this routing key. 403 if not."""
        rule = self._topic_rule(exchange)
        if rule is None or not isinstance(rule.value, TopicPermission):
            return
        pattern = rule.value.write if what == WRITE else rule.value.read
        for variable, value in (("{username}", self.user), ("{vhost}", self.vhost)):
            pattern = pattern.replace(variable, literal(value))
        if not fits(pattern, key):
            where = f"topic '{key}' in {located(EXCHANGE, exchange)}"
            raise refused(f"{what} access to {where} refused for user '{self.user}'")

    def check_publish(self, name: str, key: str, topic: Callable[[str], bool]) -> str:
        """The full name of an exchange that the user may publish to with this key. ``topic`` tells of a full name
        whether it is that of a topic exchange. 403 if the user may not."""
        full = full_name(self.vhost, name)
        self.check(WRITE, EXCHANGE, full)
        if topic(full):
            self.check_topic(WRITE, full, key)
        if self._topic_rule(full) is None:
            if len(self.writable) >= REMEMBERED:
                self.writable.clear()
            self.writable[name] = full
        return full

    def check_open(self, connections_here: int) -> None:
        """Whether the user may open one more connection. ``connections_here``: of all users. 530 if not."""
        here = self._limit(VHOST_LIMIT, self.vhost, self.vhost, MAX_CONNECTIONS)
        refusal = f"access to vhost '{self.vhost}' refused for user '{self.user}'"
        if 0 <= here <= connections_here:
            raise AmqpError(530, f"{refusal}: connection limit ({here}) is reached")
        own = self._limit(USER_LIMIT, "", self.user, MAX_CONNECTIONS)
        if 0 <= own <= self.counts.connections:
            raise AmqpError(530, f"connection refused for user '{self.user}': user connection limit ({own}) is reached")
        if not self._everything and self._rule(PERMISSION, self.vhost, self.user, "") is None:
            raise AmqpError(530, refusal)

    def check_channel(self) -> None:
        """Whether the user may open one more channel. 530 if not."""
        most = self._limit(USER_LIMIT, "", self.user, MAX_CHANNELS)
        if 0 <= most <= self.counts.channels:
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

    def _topic_rule(self, exchange: str) -> Rule | None:
        return self._rule(TOPIC_PERMISSION, self.vhost, self.user, local_name(exchange))

    def _rule(self, kind: str, vhost: str, name: str, scope: str) -> Rule | None:
        return None if self._access is None else self._access().rules.get(place(kind, vhost, name, scope))
