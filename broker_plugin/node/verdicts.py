"""Whether a password that an operator or the HTTP door was given is right, as the node's clients are judged."""

from __future__ import annotations

import asyncio

from broker_plugin.admin.answers import answering
from broker_plugin.admin.server import CommandRefused
from broker_plugin.amqp.protocol.logins import Logins
from broker_plugin.amqp.protocol.sasl import Credentials

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
