"""What an action is to a node: how it is run here, what was in force before any call, what a restart does again."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple, Protocol

import msgspec

from txobserver.actions import SetLogLevel


class ActionFailed(Exception):
    """An action has not succeeded on this node; one sentence says why, and what to do."""


class ActionContext(NamedTuple):
    """For which call it runs, by id in hexadecimal digits; ``tnx_id`` 0 before it has a number. ``undo``: what was in
    force is run."""

    call_id: str
    tnx_id: int
    undo: bool


class NodeAction(Protocol):
    """One operation in one version. ``name`` is what a call of it is about."""

    def initial(self, name: str) -> msgspec.Struct:
        """What is in force where no call was made yet. Raises ActionFailed for what is unknown on this node."""

    async def run(self, name: str, arguments: Any, context: ActionContext) -> None:
        """Do it; again, where it was done before. Raises ActionFailed."""

    def restore(self, name: str, arguments: Any) -> None:
        """The node starts, and this was in force: do again what has gone with its former process."""

    def amiss(self) -> dict[str, str]:
        """What of it is in force and is not so here since the node has started: by name, with the reason."""

    def stop(self) -> None:
        """The node ends."""


class LogLevel:
    """NodeAction of ``log_level``. ``configured``: what the node's configuration says."""

    def __init__(self, configured: str) -> None:
        self._configured = configured

    def initial(self, name: str) -> msgspec.Struct:
        """As configured."""
        return msgspec.convert({"level": self._configured}, SetLogLevel)

    async def run(self, name: str, arguments: SetLogLevel, context: ActionContext) -> None:
        """From now on."""
        self.restore(name, arguments)

    def restore(self, name: str, arguments: SetLogLevel) -> None:
        """It counts for more than the configuration."""
        logging.getLogger().setLevel(arguments.level.upper())

    def amiss(self) -> dict[str, str]:
        """A level is always so."""
        return {}

    def stop(self) -> None:
        """Nothing was begun."""


class FlagAction:
    """NodeAction of ``flag``: that it is raised stands in the stream, and a node that takes the call has it."""

    def initial(self, name: str) -> msgspec.Struct:
        """A raised flag is never lowered."""
        raise ActionFailed("a flag cannot be lowered")

    async def run(self, name: str, arguments: Any, context: ActionContext) -> None:
        """It is raised by the record itself."""

    def restore(self, name: str, arguments: Any) -> None:
        """The stream has it."""

    def amiss(self) -> dict[str, str]:
        """A flag stands in the stream."""
        return {}

    def stop(self) -> None:
        """Nothing was begun."""
