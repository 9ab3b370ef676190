"""A node as the door sees it: what it answers, and what it was asked."""

from __future__ import annotations

import base64
from typing import Any

from broker_plugin.http.asking import ANSWER_SECONDS
from broker_plugin.http.errors import unavailable

PASSWORDS = {"ada": "secret-of-ada", "mon": "m", "pol": "p", "man": "g", "none": "n"}
TAGS = {"ada": ["administrator"], "mon": ["monitoring"], "pol": ["policymaker"], "man": ["management"], "none": []}
HEALTH = {
    "name": "node-1",
    "cluster": "c",
    "cluster_id": "i",
    "state": "active",
    "generation": 3,
    "primary": "node-1",
    "ready": True,
    "ready_set": ["node-1", "node-2", "node-3"],
    "min_ready": 2,
    "nodes": 3,
    "shortage": None,
    "waits_for_operator": None,
    "alarms": [],
    "others_alarms": {"node-2": [], "node-3": []},
    "amqp_ports": [5672],
}


class FakeNode:
    """AskedNode: with users, and a health that tests change. ``down``: it does not answer."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.health = dict(HEALTH)
        self.users = {name: list(tags) for name, tags in TAGS.items()}
        first = {"kind": "vhost", "vhost": "/", "name": "/", "scope": "", "description": "", "tags": [], "going": False}
        self.rules: dict[tuple[str, ...], dict[str, Any]] = {self._place(first): first}
        self.delay = 0.0
        self.down = False
        self.answers: dict[str, Any] = {"calls.list": [], "calls.status": {"nodes": None}, "changes.list": []}

    async def ask(self, command: str, arguments: dict[str, Any] | None = None, seconds: float = ANSWER_SECONDS) -> Any:
        given = dict(arguments or {})
        self.asked.append((command, given))
        if self.down:
            raise unavailable("the node does not answer")
        match command:
            case "door.login":
                right = PASSWORDS.get(given["name"]) == given["password"]
                local = given["name"] != "guest" or given["address"] == "127.0.0.1"
                tags = TAGS.get(given["name"], []) if right else []
                delay = 0.0 if right else self.delay
                return {"right": right, "tags": tags, "number": 7 if right else None, "delay": delay, "local": local}
            case "door.health":
                return self.health
            case "users.list":
                return [{"name": name, "tags": tags, "limits": {}} for name, tags in sorted(self.users.items())]
            case "users.put":
                added = given["name"] not in self.users
                self.users[given["name"]] = given["tags"]
                return {"name": given["name"], "tags": given["tags"], "added": added}
            case "users.delete":
                del self.users[given["name"]]
                return {"name": given["name"]}
            case "rules.list":
                return [rule for _, rule in sorted(self.rules.items()) if rule["kind"] in given["kinds"]]
            case "rules.set":
                rule = {"scope": "", **{key: value for key, value in given.items() if key not in ("by", "login")}}
                if rule["kind"] == "vhost":
                    rule["going"] = False
                added = self._place(rule) not in self.rules
                self.rules[self._place(rule)] = rule
                return rule | {"added": added}
            case "rules.clear":
                return self.rules.pop(self._place(given))
        return self.answers[command]

    def _place(self, rule: dict[str, Any]) -> tuple[str, ...]:
        return tuple(rule[key] for key in ("kind", "vhost", "name", "scope"))

    def only_default(self) -> bool:
        """Whether there are no rules beside the default virtual host."""
        return len(self.rules) == 1

    def given(self, command: str) -> list[dict[str, Any]]:
        """The arguments of each such question."""
        return [arguments for asked, arguments in self.asked if asked == command]


def let_in(user: str) -> dict[str, Any]:
    """What the node is told of the login whose change it is asked for."""
    return {"password": PASSWORDS[user], "number": 7, "tags": TAGS[user]}


def basic(user: str, password: str | None = None) -> dict[str, str]:
    """The header of a login."""
    text = f"{user}:{PASSWORDS[user] if password is None else password}"
    return {"authorization": "Basic " + base64.b64encode(text.encode()).decode()}
