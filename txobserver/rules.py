"""Virtual hosts, what users may do there (permissions, limits), and policies of what is declared (seed 000, *state*).

They are RabbitMQ's, with its meaning. A *rule* stands at one place, which its kind, the virtual host, a name and a
scope say, and is set and cleared there as a whole. Patterns are kept as texts; a broker matches names with them.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from txobserver.events import Configure
from txobserver.policies import LONGEST_PATTERN, Policy, check_policy
from txobserver.vhosts import DEFAULT_VHOST, SEPARATOR

PERMISSION: Final = "permission"
"""``name``: the user."""
TOPIC_PERMISSION: Final = "topic_permission"
"""``name``: the user; ``scope``: the exchange."""
POLICY: Final = "policy"
"""Of what is declared in a virtual host; ``name`` is its own."""
OPERATOR_POLICY: Final = "operator_policy"
"""The same, beside the policies."""
POLICIES: Final = frozenset({POLICY, OPERATOR_POLICY})
"""Kinds of rules whose values are policies"""
USER_LIMIT: Final = "user_limit"
"""``name``: the user; ``scope``: which limit. Of no virtual host."""
VHOST_LIMIT: Final = "vhost_limit"
"""``name`` is that of the virtual host; ``scope``: which limit."""
VHOST: Final = "vhost"
"""A virtual host itself. ``name`` is its own."""
MAX_CONNECTIONS: Final = "max-connections"
MAX_CHANNELS: Final = "max-channels"
MAX_QUEUES: Final = "max-queues"
LIMITS: Final = {USER_LIMIT: (MAX_CONNECTIONS, MAX_CHANNELS), VHOST_LIMIT: (MAX_CONNECTIONS, MAX_QUEUES)}
"""The scopes that there are of limits."""
LONGEST_SCOPE: Final = 255
"""Bytes of a name and of a scope"""
LONGEST_DESCRIPTION: Final = 1024
"""Characters of what is said of a virtual host"""
MOST_VHOST_TAGS: Final = 64
"""Of one virtual host"""
LARGEST_LIMIT: Final = 2**31 - 1
"""Of a limit"""
MOST_RULES: Final = 20_000
"""Of one cluster: all of them stand in each checkpoint."""

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


class Vhost(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, tag=4):
    """A virtual host. ``going``: it is being deleted, with all that is declared in it."""

    description: str = ""
    tags: tuple[str, ...] = ()
    going: bool = False


Value = Permission | TopicPermission | Limit | Vhost | Policy
VALUE_OF: Final[dict[str, type[Value]]] = {
    PERMISSION: Permission,
    TOPIC_PERMISSION: TopicPermission,
    USER_LIMIT: Limit,
    VHOST_LIMIT: Limit,
    VHOST: Vhost,
    POLICY: Policy,
    OPERATOR_POLICY: Policy,
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
SETTING_RULES: Final = frozenset(_SETS)
"""Those of the steps about rules that set one."""
OF_POLICIES: Final = frozenset(each for kind in POLICIES for each in (_set(kind), _clear(kind)))
"""The steps about policies"""
SET_VHOST: Final = _set(VHOST)
CLEAR_VHOST: Final = _clear(VHOST)
VHOST_GONE: Final = "vhost.gone"
"""The last step of a deletion: nothing is declared there any more."""
RULES: Final = frozenset({*_SETS, *_CLEARS, VHOST_GONE})
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


def vhost_gone_step(name: str) -> Configure:
    """A virtual host that is being deleted has nothing declared in it, so it goes; NOT_EMPTY if it has."""
    return Configure(0, VHOST_GONE, name, b"")


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
    if step.operation == VHOST_GONE:
        return place(VHOST, step.name, step.name, "")
    cleared = msgspec.msgpack.decode(step.arguments, type=ClearedRule)
    return place(_CLEARS[step.operation], cleared.vhost, step.name, cleared.scope)


def check_rule_step(step: Configure) -> None:
    """Whether a step of ``RULES`` can be, whatever it meets where it is applied. Raises ValueError."""
    kind, vhost, name, scope = _parts(place_of(step))
    for text in (vhost, name, scope):
        if len(text.encode("utf-8", "surrogatepass")) > LONGEST_SCOPE:
            raise ValueError(f"a name takes at most {LONGEST_SCOPE} bytes")
    if step.arguments and step.operation == VHOST_GONE:
        raise ValueError("it has arguments")
    if not name:
        raise ValueError("it has no name")
    if bool(vhost) == (kind == USER_LIMIT) or (kind in (VHOST, VHOST_LIMIT) and vhost != name):
        raise ValueError(f"a {kind} of the virtual host {vhost!r}")
    if (kind in (PERMISSION, VHOST) or kind in POLICIES) and scope:
        raise ValueError(f"a {kind} of {scope!r}")
    if step.operation == CLEAR_VHOST and name == DEFAULT_VHOST:
        raise ValueError("the default virtual host cannot be deleted")
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
    if isinstance(value, Vhost):
        _check_vhost(value)
    elif isinstance(value, Policy):
        check_policy(value, rule.kind == OPERATOR_POLICY)
    elif isinstance(value, Limit):
        if not -1 <= value.most <= LARGEST_LIMIT:
            raise ValueError(f"a limit of {value.most}; it is -1 for none, or from 0 to {LARGEST_LIMIT}")
    elif max(len(pattern) for pattern in msgspec.structs.astuple(value)) > LONGEST_PATTERN:
        raise ValueError(f"a pattern has at most {LONGEST_PATTERN} characters")


def _check_vhost(vhost: Vhost) -> None:
    if vhost.going:
        raise ValueError("no virtual host is added that is being deleted")
    if len(vhost.description) > LONGEST_DESCRIPTION:
        raise ValueError(f"a description has at most {LONGEST_DESCRIPTION} characters")
    if len(vhost.tags) > MOST_VHOST_TAGS or len(set(vhost.tags)) != len(vhost.tags):
        raise ValueError(f"{len(vhost.tags)} tags; there are {MOST_VHOST_TAGS} at most, and none twice")
    if any(not 1 <= len(tag) <= LONGEST_SCOPE for tag in vhost.tags):
        raise ValueError(f"a tag has 1 to {LONGEST_SCOPE} characters")


def shown_rule(rule: Rule | None) -> str:
    """A rule as the history of changes shows it; "" for none."""
    if rule is None:
        return ""
    shown: dict[str, Any] = {"vhost": rule.vhost} if rule.vhost and rule.kind != VHOST else {}
    if rule.scope:
        shown["limit" if rule.kind in LIMITS else "exchange"] = rule.scope
    return msgspec.json.encode(shown | msgspec.structs.asdict(rule.value)).decode()
