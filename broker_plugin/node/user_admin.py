"""What an operator asks of the cluster's users, at any node (``txha users``). Passwords come as hashes.

Only ``users.authenticate`` is told a password, over the loopback port of the node's administration; it goes no further.
"""

from __future__ import annotations

from typing import Any

from broker_plugin.admin.server import CommandRefused, Handler
from broker_plugin.amqp.protocol.passwords import is_hash
from broker_plugin.amqp.protocol.sasl import Credentials
from broker_plugin.node.audited_changes import AuditedChanges, text_in
from broker_plugin.node.verdicts import verdict_on
from txobserver.access import (
    add_user_step,
    delete_user_step,
    put_user_step,
    set_password_step,
    set_tags_step,
)
from txobserver.events import Configure
from txobserver.refusal import Refusal
from txobserver.rules import USER_LIMIT, Limit


class UserAdmin:
    """``changes``: how what is asked for here comes into the stream."""

    def __init__(self, changes: AuditedChanges) -> None:
        self._changes = changes

    @property
    def handlers(self) -> dict[str, Handler]:
        """By the names of the commands."""
        return {
            "users.list": self._list,
            "users.add": self._add,
            "users.put": self._put,
            "users.delete": self._delete,
            "users.passwd": self._passwd,
            "users.set_tags": self._set_tags,
            "users.authenticate": self._authenticate,
        }

    async def _list(self, arguments: dict[str, Any]) -> Any:
        access = self._changes.kept()
        limits: dict[str, dict[str, int]] = {}
        for rule in access.rules.values():
            if rule.kind == USER_LIMIT and isinstance(rule.value, Limit):
                limits.setdefault(rule.name, {})[rule.scope] = rule.value.most
        return [
            {"name": name, "tags": list(access.users[name].tags), "limits": limits.get(name, {})}
            for name in sorted(access.users)
        ]

    async def _add(self, arguments: dict[str, Any]) -> Any:
        name = text_in(arguments, "name")
        await self._change(name, add_user_step(name, _hash(arguments), _tags(arguments)), arguments)
        return {"name": name, "tags": list(_tags(arguments))}

    async def _put(self, arguments: dict[str, Any]) -> Any:
        name = text_in(arguments, "name")
        there = name in self._changes.kept().users
        await self._change(name, put_user_step(name, _hash(arguments), _tags(arguments)), arguments)
        return {"name": name, "tags": list(_tags(arguments)), "added": not there}

    async def _delete(self, arguments: dict[str, Any]) -> Any:
        name = text_in(arguments, "name")
        await self._change(name, delete_user_step(name), arguments)
        return {"name": name}

    async def _passwd(self, arguments: dict[str, Any]) -> Any:
        name = text_in(arguments, "name")
        await self._change(name, set_password_step(name, _hash(arguments)), arguments)
        return {"name": name}

    async def _set_tags(self, arguments: dict[str, Any]) -> Any:
        name = text_in(arguments, "name")
        await self._change(name, set_tags_step(name, _tags(arguments)), arguments)
        return {"name": name, "tags": list(_tags(arguments))}

    async def _authenticate(self, arguments: dict[str, Any]) -> Any:
        logins = self._changes.logins()
        credentials = Credentials(text_in(arguments, "name"), text_in(arguments, "password"))
        return {"name": credentials.user, "right": await verdict_on(logins, credentials, "")}

    # -- inside

    async def _change(self, name: str, step: Configure, arguments: dict[str, Any]) -> None:
        await self._changes.change(name, step, arguments, lambda error: _sentence(name, error), "txha users list")


def _sentence(name: str, error: str) -> str:
    if error == Refusal.EXISTS:
        return f"user {name!r} exists already; give another password with `txha users passwd`"
    if error == Refusal.GONE:
        return f"there is no user {name!r}; see `txha users list`"
    if error == Refusal.TOO_MANY:
        return "the cluster has as many users as it can keep; delete one first"
    return error


def _hash(arguments: dict[str, Any]) -> str:
    found = text_in(arguments, "hash")
    if not is_hash(found):
        raise CommandRefused("the hash of the password is of no kind that this node knows: see `txha users add --help`")
    return found


def _tags(arguments: dict[str, Any]) -> tuple[str, ...]:
    found = arguments.get("tags", [])
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise CommandRefused("tags are a list of texts")
    return tuple(sorted(set(found)))
