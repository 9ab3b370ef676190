"""Who asks: HTTP Basic with the cluster's users, and what their tags allow, as RabbitMQ's management plug-in has it.

The node verifies, and before a change once more. A refused login is told by it and counted there with those of AMQP,
and its answer waits as long as a refusal at AMQP would. Of one network a few logins are verified at a time, so that the
others' are.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request

from broker_plugin.amqp.protocol.logins import network_of
from broker_plugin.http.asking import AskedNode
from broker_plugin.http.errors import login_refused, not_authorised

MOST_OF_A_NETWORK = 4
"""Logins of one network that are verified at a time; the next ones wait."""
LONGEST_CREDENTIALS = 8192
"""Characters of an authorization header; a longer one is refused unread."""
ADMINISTRATOR, MONITORING, POLICYMAKER, MANAGEMENT = "administrator", "monitoring", "policymaker", "management"
TAGS_THAT_ALLOW = {
    MANAGEMENT: ({ADMINISTRATOR, MONITORING, POLICYMAKER, MANAGEMENT}, "Not management user"),
    MONITORING: ({ADMINISTRATOR, MONITORING}, "Not monitor user"),
    POLICYMAKER: ({ADMINISTRATOR, POLICYMAKER}, "User not authorised to access object"),
    ADMINISTRATOR: ({ADMINISTRATOR}, "Not administrator user"),
}
"""By what a route wants: the tags of which one is enough, and what is said where there is none."""


@dataclass(frozen=True)
class Login:
    """A user who has logged in, and from where. ``number``: which user of this name it is, as the node knows them."""

    user: str
    tags: tuple[str, ...]
    address: str
    number: int | None
    password: str = field(repr=False)

    @property
    def by(self) -> dict[str, str]:
        """As the node is told whose change it is."""
        return {"user": self.user, "address": self.address}

    @property
    def let_in(self) -> dict[str, Any]:
        """By what the node judges again, before a change, whether this user would be let in still."""
        return {"password": self.password, "number": self.number, "tags": list(self.tags)}


class DoorLogins:
    """Of all who come to the door."""

    def __init__(self, node: AskedNode) -> None:
        self._node = node
        self._lines: dict[str, _Line] = {}

    async def allow(self, request: Request, needed: str) -> Login:
        """The user, if the login is right and its tags allow what is ``needed``. Raises HttpError."""
        credentials = credentials_of(request)
        if credentials is None:
            raise login_refused()
        user, password = credentials
        address = request.client.host if request.client is not None else "unknown"
        found = await self._verified(user, password, address)
        if not found["right"]:
            await asyncio.sleep(found["delay"])
            raise login_refused() if found["local"] else not_authorised("User can only log in via localhost")
        tags = tuple(found["tags"])
        for each in (MANAGEMENT, needed):
            allowed, refusal = TAGS_THAT_ALLOW[each]
            if not allowed.intersection(tags):
                raise not_authorised(refusal)
        return Login(user, tags, address, found["number"], password)

    async def _verified(self, user: str, password: str, address: str) -> Any:
        network = network_of(address)
        line = self._lines.setdefault(network, _Line())
        line.waiting += 1
        try:
            async with line.room:
                return await self._node.ask("door.login", {"name": user, "password": password, "address": address})
        finally:
            line.waiting -= 1
            if not line.waiting:
                self._lines.pop(network, None)


class _Line:
    """The logins of a network."""

    def __init__(self) -> None:
        self.waiting = 0
        self.room = asyncio.Semaphore(MOST_OF_A_NETWORK)


def credentials_of(request: Request) -> tuple[str, str] | None:
    """User and password of a request; None if it has none that can be read."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic" or len(given) > LONGEST_CREDENTIALS:
        return None
    try:
        user, separator, password = base64.b64decode(given.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return None
    return (user, password) if separator and user else None
