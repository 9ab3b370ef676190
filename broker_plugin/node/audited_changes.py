"""How a change that an operator asks for at this node becomes a step of the one stream, and what is answered."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from broker_plugin.admin.answers import answering
from broker_plugin.admin.server import CommandRefused
from broker_plugin.amqp.protocol.logins import Logins
from broker_plugin.logs.events import UserChanged
from broker_plugin.logs.formats import tell
from broker_plugin.node.origins import origin_of
from broker_plugin.node.verdicts import judge_again
from ha.core import NodeCore
from txobserver.access import Access
from txobserver.audited import audited_step
from txobserver.configuration import UnknownStep, check_step
from txobserver.events import Configure
from txobserver.refusal import Refusal

log = logging.getLogger("txha.users")
DEADLINE_SECONDS = 10.0
"""Seconds for which a change may take to pass the commit point before the operator is told that it is not known."""

Report = Callable[[Callable[[], None]], None]
Sentence = Callable[[str], str]
"""Makes a sentence of why a step was refused"""


class AuditedChanges:
    """``logins``: those of this node's clients; None where a host broker serves them, which has users of its own."""

    def __init__(self, core: NodeCore, report: Report, logins: Logins | None) -> None:
        self._core = core
        self._report = report
        self._logins = logins

    def kept(self) -> Access:
        """Who may use the cluster. Raises CommandRefused while it does not keep that itself."""
        self.logins()
        access = self._core.replica.contents.access
        if not access.events:
            raise CommandRefused(
                "the cluster keeps no users yet: its nodes go by their own configurations until a primary serves and "
                "all nodes know users"
            )
        return access

    def logins(self) -> Logins:
        """Those of this node's clients. Raises CommandRefused."""
        if self._logins is None:
            raise CommandRefused("a host broker serves the clients of this node, and has users of its own: ask it")
        return self._logins

    async def change(
        self, name: str, step: Configure, arguments: dict[str, Any], sentence: Sentence, look: str
    ) -> None:
        """Ask for a step, and wait until it has passed the commit point. ``look``: the command that shows what became
        of it. Raises CommandRefused, also if the HTTP door would not let the change's user in any more."""
        self.kept()
        try:
            check_step(step)
        except UnknownStep as error:
            raise CommandRefused(str(error)) from None
        origin = origin_of(arguments, self._core.member.node)
        await judge_again(self.logins(), lambda: self.kept().users, origin, arguments)
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        tell(log, logging.WARNING, UserChanged(step.operation, name, origin.user, origin.address))
        audited = audited_step(step, origin, self._core.settings.calls_kept)
        self._report(lambda: self._core.configure(audited, answering(answer)))
        try:
            refusal = await asyncio.wait_for(answer, DEADLINE_SECONDS)
        except TimeoutError:
            raise CommandRefused(f"not known after {DEADLINE_SECONDS:g} s, look with `{look}`") from None
        if refusal is not None:
            raise CommandRefused(sentence(refusal), refusal if refusal in set(Refusal) else "")


def text_in(arguments: dict[str, Any], key: str) -> str:
    """A text that is not empty. Raises CommandRefused."""
    found = arguments.get(key)
    if not isinstance(found, str) or not found:
        raise CommandRefused(f"the {key} must be a text that is not empty")
    return found
