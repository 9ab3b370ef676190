"""What an operator asks of the cluster's users, at any node (``txha users``). Passwords come as hashes.

Only ``users.authenticate`` is told a password, over the loopback port of the node's administration; it goes no further.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from broker_plugin.admin.answers import answering
from broker_plugin.admin.server import CommandRefused, Handler
from broker_plugin.amqp.protocol.logins import Logins
from broker_plugin.amqp.protocol.passwords import is_hash
from broker_plugin.amqp.protocol.sasl import Credentials
from broker_plugin.logs.events import UserChanged
from broker_plugin.logs.formats import tell
from broker_plugin.node.origins import origin_of
from ha.core import NodeCore
from txobserver.access import (
    Access,
    add_user_step,
    delete_user_step,
    put_user_step,
    set_password_step,
    set_tags_step,
)
from txobserver.audited import audited_step
from txobserver.events import Configure
from txobserver.refusal import Refusal

log = logging.getLogger("txha.users")
DEADLINE_SECONDS = 10.0
"""Seconds for which a change may take to pass the commit point before the operator is told that it is not known."""

Report = Callable[[Callable[[], None]], None]


class UserAdmin:
    """``logins``: those of this node's clients; None where a host broker serves them, which has users of its own."""

    def __init__(self, core: NodeCore, report: Report, logins: Logins | None) -> None:
        self._core = core
        self._report = report
        self._logins = logins

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
        access = self._kept()
        return [{"name": name, "tags": list(access.users[name].tags)} for name in sorted(access.users)]

    async def _add(self, arguments: dict[str, Any]) -> Any:
        name = _text(arguments, "name")
        await self._change(name, add_user_step(name, _hash(arguments), _tags(arguments)), arguments)
        return {"name": name, "tags": list(_tags(arguments))}

    async def _put(self, arguments: dict[str, Any]) -> Any:
        name = _text(arguments, "name")
        there = name in self._kept().users
        await self._change(name, put_user_step(name, _hash(arguments), _tags(arguments)), arguments)
        return {"name": name, "tags": list(_tags(arguments)), "added": not there}

    async def _delete(self, arguments: dict[str, Any]) -> Any:
        name = _text(arguments, "name")
        await self._change(name, delete_user_step(name), arguments)
        return {"name": name}

    async def _passwd(self, arguments: dict[str, Any]) -> Any:
        name = _text(arguments, "name")
        await self._change(name, set_password_step(name, _hash(arguments)), arguments)
        return {"name": name}

    async def _set_tags(self, arguments: dict[str, Any]) -> Any:
        name = _text(arguments, "name")
        await self._change(name, set_tags_step(name, _tags(arguments)), arguments)
        return {"name": name, "tags": list(_tags(arguments))}

    async def _authenticate(self, arguments: dict[str, Any]) -> Any:
        logins = self._checked()
        credentials = Credentials(_text(arguments, "name"), _text(arguments, "password"))
        verdict: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        logins.verify(credentials, "", answering(verdict))
        return {"name": credentials.user, "right": await asyncio.wait_for(verdict, DEADLINE_SECONDS)}

    # -- inside

    def _kept(self) -> Access:
        self._checked()
        access = self._core.replica.contents.access
        if not access.events:
            raise CommandRefused(
                "the cluster keeps no users yet: its nodes go by their own configurations until a primary serves and "
                "all nodes know users"
            )
        return access

    def _checked(self) -> Logins:
        if self._logins is None:
            raise CommandRefused("a host broker serves the clients of this node, and has users of its own: ask it")
        return self._logins

    async def _change(self, name: str, step: Configure, arguments: dict[str, Any]) -> None:
        """Ask for a step, and wait until it has passed the commit point. Raises CommandRefused."""
        self._kept()
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        origin = origin_of(arguments, self._core.member.node)
        tell(log, logging.WARNING, UserChanged(step.operation, name, origin.user, origin.address))
        audited = audited_step(step, origin, self._core.settings.calls_kept)
        self._report(lambda: self._core.configure(audited, answering(answer)))
        try:
            error = await asyncio.wait_for(answer, DEADLINE_SECONDS)
        except TimeoutError:
            raise CommandRefused(f"not known after {DEADLINE_SECONDS:g} s, look with `txha users list`") from None
        if error is not None:
            raise CommandRefused(_sentence(name, error))


def _sentence(name: str, error: str) -> str:
    if error == Refusal.EXISTS:
        return f"user {name!r} exists already; give another password with `txha users passwd`"
    if error == Refusal.GONE:
        return f"there is no user {name!r}; see `txha users list`"
    if error == Refusal.TOO_MANY:
        return "the cluster has as many users as it can keep; delete one first"
    return error


def _text(arguments: dict[str, Any], key: str) -> str:
    found = arguments.get(key)
    if not isinstance(found, str) or not found:
        raise CommandRefused(f"the {key} must be a text that is not empty")
    return found


def _hash(arguments: dict[str, Any]) -> str:
    found = _text(arguments, "hash")
    if not is_hash(found):
        raise CommandRefused("the hash of the password is of no kind that this node knows: see `txha users add --help`")
    return found


def _tags(arguments: dict[str, Any]) -> tuple[str, ...]:
    found = arguments.get("tags", [])
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise CommandRefused("tags are a list of texts")
    return tuple(sorted(set(found)))
