"""Users, virtual hosts, what users may do there, limits and policies, as a file of definitions says them."""

from __future__ import annotations

import secrets
from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Any, Final

from broker_plugin.amqp.protocol.passwords import RABBITMQ_HASHES, RABBITMQ_SHA256, SALT_BYTES, is_hash, new_hash
from broker_plugin.definitions.document import (
    GlobalParameterEntry,
    Limits,
    NewVhost,
    ParameterEntry,
    PermissionEntry,
    PolicyEntry,
    Tags,
    TopicPermissionEntry,
    UserEntry,
    tags_between_commas,
)
from broker_plugin.definitions.found import ImportFound, titled
from broker_plugin.definitions.state import DefinitionsHeld
from broker_plugin.embedded.rights.patterns import PatternRefused, matcher
from txobserver.access import put_user_step
from txobserver.policies import Policy, check_policy
from txobserver.rules import (
    LIMITS,
    OPERATOR_POLICY,
    PERMISSION,
    POLICY,
    TOPIC_PERMISSION,
    USER_LIMIT,
    VHOST,
    VHOST_LIMIT,
    Limit,
    Permission,
    Rule,
    TopicPermission,
    Value,
    Vhost,
    set_rule_step,
)

OWN_HASHES: Final = "txha_password_hash"
"""The hash says itself of which kind it is; it stands in a file as base64."""
VHOST_LIMITS: Final = "vhost-limits"
DESCRIBES_THE_CLUSTER: Final = ("cluster_name", "cluster_tags", "internal_cluster_id")
"""Global parameters that are about the cluster that wrote the file, and not to be taken over"""
QUEUE_TYPES: Final = (None, "", "undefined", "classic")
"""Kinds of queues that may be the default: there is one kind here, which stands for all of these."""
SECTIONS: Final = {POLICY: "policies", OPERATOR_POLICY: "operator policies"}
"""Under which name policies are counted"""
NO_EFFECT: Final = "it would have no effect here"


class AccessEntries:
    """``found``: where steps go; ``state``: what is there already."""

    def __init__(self, found: ImportFound, state: DefinitionsHeld) -> None:
        self._found = found
        self._users = {user.name for user in state.users}
        self._vhosts = {rule.name: rule.value for rule in state.rules if isinstance(rule.value, Vhost)}

    def users(self, entries: Iterable[UserEntry]) -> None:
        """Each takes the place of one with its name, as in RabbitMQ. One with a password in clear takes 50 ms."""
        for entry in entries:
            title = titled("user", entry.name)
            kept = kept_hash(entry.password_hash, entry.hashing_algorithm)
            if entry.password and not entry.password_hash:
                kept = new_hash(entry.password, secrets.token_bytes(SALT_BYTES))
            if kept is None or (entry.password and entry.password_hash):
                self._found.leave_out(title, _no_hash(entry))
            elif self._take_user(title, entry, kept):
                self._users.add(entry.name)
                for limit, most in _limits(entry.limits):
                    self._rule("user limits", f"limit {limit!r} of {title}", USER_LIMIT, "", entry.name, limit, most)

    def _take_user(self, title: str, entry: UserEntry, kept: str) -> bool:
        return self._found.take("users", title, lambda: put_user_step(entry.name, kept, tags_of(entry.tags)))

    def vhosts(self, entries: Iterable[NewVhost]) -> set[str]:
        """The names of those that will be there."""
        there = set()
        for entry in entries:
            title = titled("virtual host", entry.name)
            about = entry.metadata
            kind = entry.default_queue_type or (about.default_queue_type if about else None)
            if entry.tracing or (about is not None and about.tracing):
                self._found.leave_out(title, "there is no tracing here")
            elif entry.protected_from_deletion or (about is not None and about.protected_from_deletion):
                self._found.leave_out(title, "no virtual host is protected from deletion here")
            elif kind not in QUEUE_TYPES:
                self._found.leave_out(title, f"there is one kind of queue here, so none is {kind!r} by default")
            elif self._vhost(title, entry):
                there.add(entry.name)
        return there

    def _vhost(self, title: str, entry: NewVhost) -> bool:
        about, there = entry.metadata, self._vhosts.get(entry.name, Vhost())
        description = entry.description or (about.description if about else None)
        tags = entry.tags if entry.tags is not None else (about.tags if about else None)
        value = Vhost(
            there.description if description is None else description, there.tags if tags is None else tags_of(tags)
        )
        if not self._found.take("vhosts", title, lambda: set_rule_step(Rule(VHOST, entry.name, entry.name, "", value))):
            return False
        self._limit_vhost(entry.name, entry.limits)
        return True

    def permission(self, entry: PermissionEntry, vhost: str) -> None:
        """One permission."""
        title = titled("permission of", entry.user, vhost)
        if self._fits(title, entry.user, entry.configure, entry.write, entry.read):
            value = Permission(entry.configure, entry.write, entry.read)
            self._rule("permissions", title, PERMISSION, vhost, entry.user, "", value)

    def topic_permission(self, entry: TopicPermissionEntry, vhost: str) -> None:
        """One topic permission."""
        title = titled(f"topic permission for {entry.exchange!r} of", entry.user, vhost)
        if self._fits(title, entry.user, entry.write, entry.read):
            value = TopicPermission(entry.write, entry.read)
            self._rule("topic_permissions", title, TOPIC_PERMISSION, vhost, entry.user, entry.exchange, value)

    def parameter(self, entry: ParameterEntry, vhost: str) -> None:
        """Limits of a virtual host, or an operator policy; nothing else that a parameter says has an effect here."""
        title = titled(f"parameter of {entry.component!r}", entry.name, vhost)
        if entry.component == OPERATOR_POLICY:
            self._operator_policy(entry, vhost)
        elif entry.component != VHOST_LIMITS:
            self._found.leave_out(title, NO_EFFECT)
        elif not isinstance(entry.value, dict | list):
            self._found.leave_out(title, "limits are numbers by their names")
        else:
            self._limit_vhost(vhost, entry.value)

    def global_parameters(self, entries: Iterable[GlobalParameterEntry]) -> None:
        """What the cluster that wrote the file is called is not taken over."""
        for entry in entries:
            if entry.name not in DESCRIBES_THE_CLUSTER:
                self._found.leave_out(titled("global parameter", entry.name), NO_EFFECT)

    def policy(self, entry: PolicyEntry, vhost: str) -> None:
        """One policy. All that it says has an effect, or none of it is taken."""
        self._policy(POLICY, entry, vhost)

    # -- inside

    def _operator_policy(self, entry: ParameterEntry, vhost: str) -> None:
        try:
            said = PolicyEntry.model_validate(entry.value | {"name": entry.name})
        except (TypeError, ValueError):
            self._found.leave_out(titled("operator policy", entry.name, vhost), "it is not written as one is")
        else:
            self._policy(OPERATOR_POLICY, said, vhost)

    def _policy(self, kind: str, entry: PolicyEntry, vhost: str) -> None:
        title = titled(kind.replace("_", " "), entry.name, vhost)
        value = Policy(entry.pattern, entry.priority, entry.definition, entry.apply_to)
        try:
            check_policy(value, kind == OPERATOR_POLICY)
        except ValueError as error:
            self._found.leave_out(title, str(error))
        else:
            if self._matches(title, entry.pattern):
                self._rule(SECTIONS[kind], title, kind, vhost, entry.name, "", value)

    def _limit_vhost(self, vhost: str, limits: Any) -> None:
        for limit, most in _limits(limits):
            title = f"limit {limit!r} of {titled('virtual host', vhost)}"
            self._rule("vhost limits", title, VHOST_LIMIT, vhost, vhost, limit, most)

    def _rule(self, section: str, title: str, kind: str, vhost: str, name: str, scope: str, value: Value) -> None:
        if kind in LIMITS and scope not in LIMITS[kind]:
            self._found.leave_out(title, "there is no such limit here")
        else:
            self._found.take(section, title, lambda: set_rule_step(Rule(kind, vhost, name, scope, value)))

    def _fits(self, title: str, user: str, *patterns: str) -> bool:
        if user not in self._users:
            self._found.leave_out(title, "there is no such user")
            return False
        return all(self._matches(title, each) for each in patterns)

    def _matches(self, title: str, pattern: str) -> bool:
        try:
            matcher(pattern)
        except PatternRefused as error:
            self._found.leave_out(title, str(error))
            return False
        return True


def kept_hash(hashed: str | None, algorithm: str | None) -> str | None:
    """What is kept of a password whose hash a file says; None if it cannot be verified here."""
    algorithm = algorithm or RABBITMQ_SHA256
    if not hashed or algorithm not in (*RABBITMQ_HASHES, OWN_HASHES):
        return None
    kept = _own(hashed) if algorithm == OWN_HASHES else f"{algorithm}${hashed}"
    return kept if is_hash(kept) else None


def written_hash(kept: str) -> tuple[str, str]:
    """The algorithm and the hash as a file says them. RabbitMQ takes no hash that is not base64."""
    algorithm, _, digest = kept.partition("$")
    if algorithm in RABBITMQ_HASHES:
        return algorithm, digest
    return OWN_HASHES, b64encode(kept.encode()).decode()


def _own(hashed: str) -> str:
    try:
        return b64decode(hashed, validate=True).decode()
    except ValueError:
        return hashed


def _no_hash(entry: UserEntry) -> str:
    if entry.password and entry.password_hash:
        return "it has a password and a password_hash: leave one out"
    if not entry.password_hash:
        return "it has no password, and no user is without one here"
    if entry.hashing_algorithm not in (None, *RABBITMQ_HASHES, OWN_HASHES):
        return f"hashes of {entry.hashing_algorithm!r} cannot be verified here: give the user another password"
    return f"its password_hash is no hash of {entry.hashing_algorithm or RABBITMQ_SHA256}: salt and digest, in base64"


def tags_of(tags: Tags) -> tuple[str, ...]:
    """A list, or texts between commas."""
    each = tags_between_commas(tags) if isinstance(tags, str) else [tag.strip() for tag in tags]
    return tuple(sorted({tag for tag in each if tag}))


def _limits(limits: Limits | Any) -> list[tuple[str, Limit]]:
    """By names, whichever way they are written. What is no number is none that a rule can be."""
    pairs = limits.items() if isinstance(limits, dict) else [each for each in limits if len(each) == 2]
    return [(str(name), Limit(most if type(most) is int else -2)) for name, most in pairs]
