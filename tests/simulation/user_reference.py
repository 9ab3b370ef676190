"""Users and rules that the one stream leads to, read anew and in the plainest way, as of any position."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec

from txobserver.events import Configure, Event

Users = dict[str, tuple[str, tuple[str, ...]]]
"""Hash and tags, by name"""
Rules = dict[tuple[str, ...], tuple[Any, ...]]
"""Values by kind, virtual host, user and scope"""
Change = tuple[int, str, str, str, str]
"""What is kept of an operator's step: its number, the operation, the name, whose it was, why it was not carried out"""
AUDITED = "access.audited"
KINDS = "permission.", "topic_permission.", "user_limit.", "vhost.", "policy.", "operator_policy."
ABOUT_USERS = "user.", *KINDS, "definitions.load", AUDITED


@dataclass
class UserReference:
    """``results``: of each step, by the label that its arguments have, why it was not carried out, or None. ``labels``:
    in the order of the steps, "" where there is none. ``loads``: of each step with parts, by its number, the same as
    of ``results``; ``loaded``: what such steps have declared, which no other step does.

    ``deletions``: how often an operation that takes something away from a name came to what. ``at``, ``after``,
    ``rules_after``: sequences, and what followed.
    """

    users: Users = field(default_factory=dict)
    rules: Rules = field(default_factory=dict)
    results: dict[str, str | None] = field(default_factory=dict)
    labels: list[str] = field(default_factory=list)
    loads: dict[int, str | None] = field(default_factory=dict)
    loaded: dict[tuple[str, str], bytes] = field(default_factory=dict)
    deletions: Counter[tuple[str, str | None]] = field(default_factory=Counter)
    at: list[int] = field(default_factory=list)
    rules_after: list[Rules] = field(default_factory=list)
    after: list[Users] = field(default_factory=list)
    changes: list[tuple[Change, ...]] = field(default_factory=list)
    kept: list[Change] = field(default_factory=list)
    steps: int = 0

    def apply(self, sequence: int, event: Event) -> None:
        """The next event."""
        if isinstance(event, Configure) and event.operation.startswith(ABOUT_USERS):
            self.labels.append(self._audited(event) if event.operation == AUDITED else self._step(event))
            self.at.append(sequence)
            self.after.append(dict(self.users))
            self.rules_after.append(dict(self.rules))
            self.changes.append(tuple(self.kept))

    def stands_at(self, label: str) -> int:
        """The sequence of the step with this label."""
        return self.at[self.labels.index(label)]

    def as_of(self, sequence: int) -> Users:
        """After the event at this sequence."""
        found = bisect_right(self.at, sequence)
        return self.after[found - 1] if found else {}

    def rules_as_of(self, sequence: int) -> Rules:
        """The same, of what users may do."""
        found = bisect_right(self.at, sequence)
        return self.rules_after[found - 1] if found else {}

    def changes_as_of(self, sequence: int) -> tuple[Change, ...]:
        """The same, of what is kept of operators' steps."""
        found = bisect_right(self.at, sequence)
        return self.changes[found - 1] if found else ()

    def _audited(self, event: Configure) -> str:
        """A step that says whose it is."""
        operation, arguments, user, _, _, _, kept = msgspec.msgpack.decode(event.arguments)
        taken_away = f"{operation} {event.name}"
        deletions = self.deletions[taken_away, "gone"]
        label = self._step(Configure(event.config_id, operation, event.name, arguments))
        refusal = self.results[label] if label else None
        if not label and self.deletions[taken_away, "gone"] > deletions:
            refusal = "gone"
        self.kept = [*self.kept, (event.config_id, operation, event.name, user, refusal or "")][-kept:]
        return label

    def _step(self, event: Configure) -> str:
        self.steps += 1
        return self._load(event) if event.operation == "definitions.load" else self._plain(event)

    def _load(self, event: Configure) -> str:
        """All of its parts, or none. Its label is that of its first part."""
        parts = msgspec.msgpack.decode(event.arguments)
        before = dict(self.users), dict(self.rules), dict(self.loaded)
        label = msgspec.msgpack.decode(parts[0][2])[0]
        refusal = None
        for operation, name, arguments in parts:
            refusal = refusal or self._part(event.config_id, operation, name, arguments)
        if refusal is not None:
            self.users, self.rules, self.loaded = before
        self.results[label] = self.loads[event.config_id] = refusal
        return str(label)

    def _part(self, number: int, operation: str, name: str, arguments: bytes) -> str | None:
        if operation not in ("queue.declare", "exchange.declare", "bind"):
            return self.results[self._plain(Configure(number, operation, name, arguments))]
        if ("vhost", "/", "/", "") not in self.rules:
            return "no virtual host"
        if operation == "bind":
            destination = msgspec.msgpack.decode(arguments)[1]
            return None if ("queue.declare", destination) in self.loaded else "no destination"
        return None if self.loaded.setdefault((operation, name), arguments) == arguments else "exists"

    def _plain(self, event: Configure) -> str:
        name, there = event.name, self.users.get(event.name)
        said: list[Any] = msgspec.msgpack.decode(event.arguments) if event.arguments else []
        if event.operation == "user.delete":
            self._taken_away(event, self.users.pop(name, None) is not None)
            self.rules = {place: value for place, value in self.rules.items() if place[2] != name}
            return ""
        kind, _, what = event.operation.partition(".")
        if kind == "vhost" and what in ("clear", "gone"):
            self._vhost_goes(event, what)
            return ""
        if what == "clear":
            self._taken_away(event, self.rules.pop((kind, said[0], name, said[1]), None) is not None)
            return ""
        if what == "set":
            return self._rule(kind, name, said)
        label, refusal = "", None
        if event.operation == "user.found":
            label = said[1]
            if self.steps > 1:
                refusal = "exists"
            else:
                self.users = {user: (hash_, tuple(tags)) for user, hash_, tags, _ in said[0]}
                self.rules = {("permission", "/", user, ""): (".*", ".*", ".*") for user in self.users}
                self.rules["vhost", "/", "/", ""] = ("Default virtual host", (), False)
        elif event.operation == "user.add":
            label, refusal = said[0], "exists" if there else None
            self.users.setdefault(name, (said[0], tuple(said[1])))
        elif event.operation == "user.put":
            label = said[0]
            self.users[name] = said[0], tuple(said[1])
        elif there is None:
            label, refusal = said[0] if event.operation == "user.password" else said[0][0], "gone"
        elif event.operation == "user.password":
            label, refusal = said[0], "changed meanwhile" if said[1] and said[1] != there[0] else None
            self.users[name] = there if refusal else (said[0], there[1])
        else:
            label = said[0][0]
            self.users[name] = there[0], tuple(said[0])
        self.results[label] = refusal
        return label

    def _taken_away(self, event: Configure, was_there: bool) -> None:
        self.deletions[f"{event.operation} {event.name}", None if was_there else "gone"] += 1

    def _rule(self, kind: str, name: str, said: list[Any]) -> str:
        vhost, scope, (_, *value) = said
        label = str(value[0])
        if kind == "vhost":
            value = [value[0], tuple(value[1]), value[2]]
        if kind == "user_limit":
            label = f"{value[0] // 1_000_000}/{value[0] % 1_000_000}"
        there = self.rules.get(("vhost", vhost, vhost, ""))
        if kind == "vhost":
            refusal = "being deleted" if there and there[2] else None
        elif kind not in ("policy", "operator_policy") and name not in self.users:
            refusal = "gone"
        else:
            refusal = "no virtual host" if vhost and (there is None or there[2]) else None
        if refusal is None:
            self.rules[kind, vhost, name, scope] = tuple(value)
        self.results[label] = refusal
        return label

    def _vhost_goes(self, event: Configure, what: str) -> None:
        """It begins to be deleted, or has gone: nothing is ever declared in it."""
        name = event.name
        there = self.rules.get(("vhost", name, name, ""))
        if there is None or there[2] != (what == "gone"):
            self._taken_away(event, False)
            return
        self.rules = {place: value for place, value in self.rules.items() if place[1] != name}
        if what == "clear":
            self.rules["vhost", name, name, ""] = (there[0], there[1], True)
        self._taken_away(event, True)
