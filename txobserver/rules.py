"""What the users of a cluster may do, and how much of it: permissions, topic permissions, limits (seed 000, *state*).

They are RabbitMQ's, with its meaning. A *rule* stands at one place, which its kind, the virtual host, a name and a
scope say, and is set and cleared there as a whole. Patterns are kept as texts; a broker matches names with them.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from txobserver.events import Configure

PERMISSION: Final = "permission"
"""``name``: the user."""
TOPIC_PERMISSION: Final = "topic_permission"
"""``name``: the user; ``scope``: the exchange."""
USER_LIMIT: Final = "user_limit"
"""``name``: the user; ``scope``: which limit. Of no virtual host."""
VHOST_LIMIT: Final = "vhost_limit"
"""``name`` is that of the virtual host; ``scope``: which limit."""
DEFAULT_VHOST: Final = "/"
"""Always there."""
MAX_CONNECTIONS: Final = "max-connections"
MAX_CHANNELS: Final = "max-channels"
MAX_QUEUES: Final = "max-queues"
LIMITS: Final = {USER_LIMIT: (MAX_CONNECTIONS, MAX_CHANNELS), VHOST_LIMIT: (MAX_CONNECTIONS, MAX_QUEUES)}
"""The scopes that there are of limits."""
LONGEST_PATTERN: Final = 1024
"""Characters of a pattern"""
LONGEST_SCOPE: Final = 255
"""Bytes of a virtual host's name, and of a scope"""
LARGEST_LIMIT: Final = 2**31 - 1
"""Of a limit"""
MOST_RULES: Final = 20_000
"""Of one cluster: all of them stand in each checkpoint."""
SEPARATOR: Final = "\0"
"""Stands between the parts of a place, and in none of them."""

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class Permission(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, tag=1):
    """What a user may configure, write and read in a virtual host: patterns of the names."""

    configure: str
    write: str
    read: str


class TopicPermission(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, tag=2):
    """By which routing keys a user may write to a topic exchange, and with which it may bind: patterns of them."""

    write: str
    read: str


class Limit(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, tag=3):
    """How many there may be. -1: as many as there come."""

    most: int


Value = Permission | TopicPermission | Limit
VALUE_OF: Final[dict[str, type[Value]]] = {
    PERMISSION: Permission,
    TOPIC_PERMISSION: TopicPermission,
    USER_LIMIT: Limit,
    VHOST_LIMIT: Limit,
}
"""What stands at the places of a kind"""
OF_USERS: Final = frozenset({PERMISSION, TOPIC_PERMISSION, USER_LIMIT})
"""Kinds of rules that go with the user whose they are."""


class Rule(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A rule at its place."""

    kind: str
    vhost: str
    name: str
    scope: str
    value: Value

    @property
    def place(self) -> str:
        """Where it stands: one rule does at each place."""
        return place(self.kind, self.vhost, self.name, self.scope)


class NewRule(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The arguments of a step that sets a rule."""

    vhost: str
    scope: str
    value: Value


class ClearedRule(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The arguments of a step that clears a rule."""

    vhost: str
    scope: str


def _set(kind: str) -> str:
    return f"{kind}.set"


def _clear(kind: str) -> str:
    return f"{kind}.clear"


_SETS: Final = {_set(kind): kind for kind in VALUE_OF}
_CLEARS: Final = {_clear(kind): kind for kind in VALUE_OF}
RULES: Final = frozenset({*_SETS, *_CLEARS})
"""The steps of configuration that are about rules."""


def place(kind: str, vhost: str, name: str, scope: str) -> str:
    """Where a rule stands, as one text."""
    return SEPARATOR.join((kind, vhost, name, scope))


def set_rule_step(rule: Rule) -> Configure:
    """Sets a rule, in place of the one that stands there. GONE without its user, NO_VHOST without its virtual host."""
    return Configure(0, _set(rule.kind), rule.name, _encode(NewRule(rule.vhost, rule.scope, rule.value)))


def clear_rule_step(kind: str, vhost: str, name: str, scope: str = "") -> Configure:
    """Clears the rule at this place; GONE if there is none."""
    return Configure(0, _clear(kind), name, _encode(ClearedRule(vhost, scope)))


def rule_of(step: Configure) -> Rule | None:
    """The rule that a step sets; None for one that clears. Raises ValueError."""
    kind = _SETS.get(step.operation)
    if kind is None:
        return None
    new = msgspec.msgpack.decode(step.arguments, type=NewRule)
    return Rule(kind, new.vhost, step.name, new.scope, new.value)


def place_of(step: Configure) -> str:
    """The place that a step sets or clears. Raises ValueError."""
    rule = rule_of(step)
    if rule is not None:
        return rule.place
    cleared = msgspec.msgpack.decode(step.arguments, type=ClearedRule)
    return place(_CLEARS[step.operation], cleared.vhost, step.name, cleared.scope)


def check_rule_step(step: Configure) -> None:
    """Whether a step of ``RULES`` can be, whatever it meets where it is applied. Raises ValueError."""
    kind, vhost, name, scope = _parts(place_of(step))
    for text in (vhost, name, scope):
        if len(text.encode("utf-8", "surrogatepass")) > LONGEST_SCOPE:
            raise ValueError(f"a name takes at most {LONGEST_SCOPE} bytes")
    if not name:
        raise ValueError("it has no name")
    if bool(vhost) == (kind == USER_LIMIT) or (kind == VHOST_LIMIT and vhost != name):
        raise ValueError(f"a {kind} of the virtual host {vhost!r}")
    if kind == PERMISSION and scope:
        raise ValueError(f"a permission of {scope!r}")
    if kind in LIMITS and scope not in LIMITS[kind]:
        raise ValueError(f"there is no limit {scope!r}; limits are {', '.join(LIMITS[kind])}")
    rule = rule_of(step)
    if rule is not None:
        _check_value(rule)


def _parts(text: str) -> list[str]:
    parts = text.split(SEPARATOR)
    if len(parts) != 4:
        raise ValueError("a name with a zero in it")
    return parts


def _check_value(rule: Rule) -> None:
    value = rule.value
    if type(value) is not VALUE_OF[rule.kind]:
        raise ValueError(f"a {rule.kind} that is none")
    if isinstance(value, Limit):
        if not -1 <= value.most <= LARGEST_LIMIT:
            raise ValueError(f"a limit of {value.most}; it is -1 for none, or from 0 to {LARGEST_LIMIT}")
    elif max(len(pattern) for pattern in msgspec.structs.astuple(value)) > LONGEST_PATTERN:
        raise ValueError(f"a pattern has at most {LONGEST_PATTERN} characters")


def shown_rule(rule: Rule | None) -> str:
    """A rule as the history of changes shows it; "" for none."""
    if rule is None:
        return ""
    shown: dict[str, Any] = {"vhost": rule.vhost} if rule.vhost else {}
    if rule.scope:
        shown["limit" if rule.kind in LIMITS else "exchange"] = rule.scope
    return msgspec.json.encode(shown | msgspec.structs.asdict(rule.value)).decode()
