"""The node's side: listens on a loopback port of its own choice, and says in ``admin.json`` (mode 0600) which."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import os
import secrets
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from broker_plugin.guard import Guard
from broker_plugin.logs.events import OperatorGone
from broker_plugin.logs.formats import tell
from recovery.reader.node_admin import FILE

log = logging.getLogger("txha.admin")
MAX_LINE = 1 << 20
MAX_CONNECTIONS = 32
"""At a time; beyond them the oldest of those that have not shown the token makes room."""
SILENCE_SECONDS = 10.0
"""Within this time a request comes whole, and its answer is taken; else the connection ends."""

Handler = Callable[[dict[str, Any]], Awaitable[Any]]
Admit = Callable[[asyncio.BaseTransport], bool]
"""Whether a client that has just connected can stay."""


def admit_all(transport: asyncio.BaseTransport) -> bool:
    """Can stay."""
    return True


class CommandRefused(Exception):
    """A command that cannot be carried out; its sentence goes to the operator. ``refusal``: the word for programs, a
    ``Refusal``, where the stream has decided."""

    def __init__(self, sentence: str, refusal: str = "") -> None:
        super().__init__(sentence)
        self.refusal = refusal


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")

    token: str
    command: str
    arguments: dict[str, Any] = {}


class AdminServer:
    """Answers commands with these handlers until it is stopped.

    Whatever connects needs no token before it asks, so those who are here are few, and not for long; and who has shown
    none makes room for the next, so that another user of the machine keeps no operator out.
    """

    def __init__(
        self, guard: Guard, directory: Path, handlers: Mapping[str, Handler], admit: Admit = admit_all
    ) -> None:
        self._guard = guard
        self._path = directory / FILE
        self._handlers = handlers
        self._admit = admit
        self._here: dict[asyncio.StreamWriter, bool] = {}
        """Whether it has shown the token, in the order of their coming"""
        self._token = secrets.token_hex(16)
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen, then say where."""
        self._server = await self._guard.start_server(self._serve, "127.0.0.1", 0, MAX_LINE)
        port = self._server.sockets[0].getsockname()[1]
        temporary = self._path.with_suffix(".new")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump({"port": port, "token": self._token}, file)
        temporary.rename(self._path)

    async def stop(self) -> None:
        """Stop listening; the file goes."""
        self._path.unlink(missing_ok=True)
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._has_room() or not self._admit(writer.transport):
            writer.transport.abort()
            return
        self._here[writer] = False
        try:
            await self._talk(reader, writer)
        except (OSError, ValueError) as error:
            tell(log, logging.DEBUG, OperatorGone(str(error) or type(error).__name__))
        finally:
            self._here.pop(writer, None)
            writer.transport.abort()  # an answer that is not taken does not keep it open

    def _has_room(self) -> bool:
        """Whether one more can stay: the oldest stranger may have to go for it."""
        if len(self._here) < MAX_CONNECTIONS:
            return True
        oldest = next((each for each, known in self._here.items() if not known), None)
        if oldest is None:
            return False
        del self._here[oldest]
        oldest.transport.abort()
        return True

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await asyncio.wait_for(reader.readline(), SILENCE_SECONDS):
            answer = json.dumps(await self._answer(line, writer)).encode() + b"\n"
            if writer.transport.is_closing():  # it had to make room, and what it had asked before still comes
                return
            writer.write(answer)
            await asyncio.wait_for(writer.drain(), SILENCE_SECONDS)
        writer.close()
        await asyncio.wait_for(writer.wait_closed(), SILENCE_SECONDS)

    async def _answer(self, line: bytes, writer: asyncio.StreamWriter | None = None) -> dict[str, Any]:
        try:
            request = _Request.model_validate_json(line)
        except ValidationError:
            return _refused("not a request: it wants token, command and arguments")
        if not hmac.compare_digest(request.token.encode(), self._token.encode()):
            return _refused("the token is wrong")
        if writer is not None and writer in self._here:
            self._here[writer] = True
        handler = self._handlers.get(request.command)
        if handler is None:
            return _refused(f"unknown command {request.command!r}")
        try:
            return {"ok": True, "result": await handler(request.arguments)}
        except CommandRefused as error:
            return _refused(str(error)) | ({"refusal": error.refusal} if error.refusal else {})
        except Exception as error:
            # A request reads only what the node is not in the middle of: what fails here is no fault of the client.
            self._guard.caught(error)
            return _refused(f"the node failed at {request.command}; its log says why")


def _refused(sentence: str) -> dict[str, Any]:
    return {"ok": False, "error": sentence}
