"""Whether a password that an operator or the HTTP door was given is right, as the node's clients are judged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from broker_plugin.admin.answers import LET_IN_NO_MORE, answering
from broker_plugin.admin.server import CommandRefused
from broker_plugin.amqp.protocol.logins import Logins
from broker_plugin.amqp.protocol.sasl import Credentials
from txobserver.access import User
from txobserver.audited import Origin

MECHANISM = "PLAIN"
"""As which a login by HTTP is told."""
VERDICT_SECONDS = 10.0
"""For which a login may wait for its verification."""


async def verdict_on(logins: Logins, credentials: Credentials, address: str) -> bool:
    """The verdict. What is not waited for any more is not verified. Raises CommandRefused where it does not come."""
    verdict: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    logins.verify(credentials, address, answering(verdict), lambda: not verdict.done())
    try:
        return await asyncio.wait_for(verdict, VERDICT_SECONDS)
    except TimeoutError:
        raise CommandRefused("passwords of many logins are being verified; try again") from None


class LetIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """With what the HTTP door had let a user in: the password, and which user it was, with which tags."""

    password: str
    number: int | None
    tags: tuple[str, ...]


async def judge_again(
    logins: Logins, users: Callable[[], Mapping[str, User]], origin: Origin, arguments: dict[str, Any]
) -> None:
    """Judge a change's user again, whom the door had let in before the request had come whole. Raises CommandRefused.

    ``login`` in the arguments is what the door says of that; without it the operator is at the machine. What holds when
    this returns holds for the rest of the turn.
    """
    if "login" not in arguments:
        return
    try:
        let_in = msgspec.convert(arguments["login"], type=LetIn)
    except msgspec.ValidationError:
        raise CommandRefused("login says password, number and tags") from None
    if not await _lets_in(logins, users, origin, let_in):
        logins.refused(origin.user, origin.address, MECHANISM, "the user has changed since its request was let in")
        raise CommandRefused("the user has changed since this request was let in; nothing was done", LET_IN_NO_MORE)


async def _lets_in(logins: Logins, users: Callable[[], Mapping[str, User]], origin: Origin, let_in: LetIn) -> bool:
    """Begins anew where something of the user has changed while its password was verified."""
    same = let_in.number, let_in.tags
    while (there := users().get(origin.user)) is not None and (there.number, there.tags) == same:
        if not await verdict_on(logins, Credentials(origin.user, let_in.password), origin.address):
            return False
        if users().get(origin.user) == there:
            return True
    return False
