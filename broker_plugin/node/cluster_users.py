"""The users of a cluster, as a node's logins go by them, and how those of a node's own file become the cluster's.

Until the stream holds users, each node goes by its own configuration. The first active primary all of whose nodes know
users hashes its own, and appends them as one step; from then on no node reads its configuration for them. What stands
there still is tolerated as long as it is what was taken over, so a node that starts again needs no change of its files;
anything else there would have no effect, and is refused.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Callable, Mapping
from functools import partial

from broker_plugin.amqp.hash_renewals import Renewed, Taken
from broker_plugin.amqp.protocol.passwords import SALT_BYTES, is_hash, matches, new_hash
from broker_plugin.guard import Guard
from broker_plugin.logs.events import UsersTakenOver, UsersUnread
from broker_plugin.logs.formats import tell
from broker_plugin.node.config import Amqp, ConfigError
from ha.core import NodeCore
from ha.membership.node_state import ACTIVE
from txobserver.access import USERS_FEATURE, Access, User, found_users_step, set_password_step
from txobserver.events import Configure

log = logging.getLogger("txha.users")
ADMINISTRATOR = "administrator"
"""The tag of who may do everything at the HTTP door"""
LOOK_SECONDS = 0.2
"""Between two looks of a primary whether all nodes know users"""

Report = Callable[[Callable[[], None]], None]


class ClusterUsers:
    """NumberedBook of a node: the users of the applied stream, or of the node's configuration while there are none."""

    def __init__(self, access: Callable[[], Access], own: Mapping[str, str]) -> None:
        self._access = access
        self._own = own

    def get(self, name: str, /) -> str | None:
        """What is kept of the user's password."""
        access = self._access()
        if not access.events:
            return self._own.get(name)
        user = access.users.get(name)
        return None if user is None else user.hash

    def number(self, name: str, /) -> int | None:
        """Who has been deleted and is added anew under the name has another one."""
        access = self._access()
        if not access.events:
            return 0 if name in self._own else None
        user = access.users.get(name)
        return None if user is None else user.number


class UsersTakeOver:
    """Of one node. ``own``: the users of its configuration; ``named``: whether they were named there, or are the one
    that a node has which was not set up. ``report`` hands the core what happens."""

    def __init__(self, guard: Guard, core: NodeCore, own: Mapping[str, str], named: bool, report: Report) -> None:
        self._guard = guard
        self._core = core
        self._own = own
        self._named = named
        self._report = report
        self._over = self._under_way = False
        self._next = 0.0

    def look(self) -> None:
        """At the end of a turn: whether it is time."""
        if self._over:
            return
        if self._core.replica.contents.access.events:
            self._over = True
            if self._named:
                self._guard.run_in_executor(None, self._still_true, self._told)
            return
        now = self._guard.loop.time()
        if not self._under_way and now >= self._next:
            self._next = now + LOOK_SECONDS
            if self._may():
                self._under_way = True
                self._guard.run_in_executor(None, partial(hashed_users, self._own, self._named), self._hashed)

    def _may(self) -> bool:
        leading = self._core.leading
        return (
            leading is not None
            and self._core.state == ACTIVE
            and not leading.backups.attachments.lacking(USERS_FEATURE)
        )

    def _hashed(self, future: asyncio.Future[Configure]) -> None:
        if self._may():
            step = future.result()
            self._report(lambda: self._core.configure(step, self._appended))
        else:
            self._under_way = False

    def _appended(self, error: str | None) -> None:
        self._under_way = False
        if error is None:
            tell(log, logging.INFO, UsersTakenOver(len(self._own)))

    def _still_true(self) -> str | None:
        return untrue(self._core.replica.contents.access, self._own)

    def _told(self, future: asyncio.Future[str | None]) -> None:
        if (why := future.result()) is not None:
            tell(log, logging.WARNING, UsersUnread(why))


def hashed_users(own: Mapping[str, str], named: bool) -> Configure:
    """The step that makes these the users of the cluster. Takes about 50 ms for each, so it belongs into a thread.

    The user of a node that was not set up may do at the HTTP door what RabbitMQ's may, and comes from loopback only.
    """
    tags = () if named else (ADMINISTRATOR,)
    users = [User(name, kept if is_hash(kept) else _hash(kept), tags) for name, kept in sorted(own.items())]
    return found_users_step(users, _hash(_text(own)) if named else "")


def untrue(access: Access, own: Mapping[str, str]) -> str | None:
    """Why what the configuration says of users is not so, in one sentence; None if it was taken over as it stands."""
    if not access.events or (access.source and matches(access.source, _text(own))):
        return None
    return (
        "amqp.users and amqp.users_file have no effect: the cluster keeps its users itself; "
        "remove the key, and change users with `txha users`"
    )


def check_own_users(access: Access, amqp: Amqp, own: Mapping[str, str]) -> None:
    """Refuse users in a node's configuration that it would not go by. Raises ConfigError."""
    if names_users(amqp) and (why := untrue(access, own)) is not None:
        raise ConfigError(why)


def names_users(amqp: Amqp) -> bool:
    """Whether a configuration names users, or has the one of a node that was not set up."""
    return amqp.users_file is not None or "users" in amqp.model_fields_set


def renewed_hash(core: NodeCore, report: Report) -> Renewed:
    """What is done when a login has shown the password of a weak hash: the strong one takes its place.

    Unless the password was changed meanwhile; then there is nothing to be done any more. While there is no primary, and
    while users are those of the node's own configuration, it is not taken.
    """

    def renewed(user: str, kept: str, fresh: str, taken: Taken) -> None:
        access = core.replica.contents.access
        there = access.users.get(user)
        if not access.events:
            taken(False)
        elif there is None or there.hash != kept:
            taken(True)
        else:
            step = set_password_step(user, fresh, kept)
            report(lambda: core.configure(step, lambda error: taken(error is None)))

    return renewed


def _hash(text: str) -> str:
    return new_hash(text, secrets.token_bytes(SALT_BYTES))


def _text(own: Mapping[str, str]) -> str:
    return json.dumps(sorted(own.items()))
