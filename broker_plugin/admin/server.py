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
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from broker_plugin.admin.lines import PIECE, Lines
from broker_plugin.admin.places import ALL_MAY_WAIT, Places, Waits
from broker_plugin.guard import Guard
from broker_plugin.logs.events import OperatorGone
from broker_plugin.logs.formats import tell
from recovery.reader.node_admin import FILE, LONGEST_LINE, MAX_LINE, PROVE

log = logging.getLogger("txha.admin")
MAX_CONNECTIONS = 48
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


class _Asker(NamedTuple):
    lines: Lines
    writer: asyncio.StreamWriter


class AdminServer:
    """Answers commands with these handlers until it is stopped. ``waits``: which of them wait for what others do.

    Whatever connects needs no token before it asks, so those who are here are few, and not for long; and who has shown
    none makes room for the next, so that another user of the machine keeps no operator out. Who goes before the answer
    gives the place back.
    """

    def __init__(
        self,
        guard: Guard,
        directory: Path,
        handlers: Mapping[str, Handler],
        admit: Admit = admit_all,
        waits: Waits = ALL_MAY_WAIT,
    ) -> None:
        self._guard = guard
        self._path = directory / FILE
        self._handlers = handlers
        self._admit = admit
        self._waits = waits
        self._places = Places(waits)
        self._here: dict[asyncio.StreamWriter, bool] = {}
        """Whether it has shown the token, in the order of their coming"""
        self._token = secrets.token_hex(16)
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen, then say where."""
        self._server = await self._guard.start_server(self._serve, "127.0.0.1", 0, PIECE)
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
            await self._talk(_Asker(Lines(reader), writer))
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

    async def _talk(self, asker: _Asker) -> None:
        writer = asker.writer
        while line := await asyncio.wait_for(asker.lines.next(self._longest(writer)), SILENCE_SECONDS):
            answer = json.dumps(await self._answer(line, asker)).encode() + b"\n"
            if writer.transport.is_closing():  # it has gone, or had to make room, and what it had asked before comes
                return
            writer.write(answer)
            await asyncio.wait_for(writer.drain(), SILENCE_SECONDS)
        writer.close()
        await asyncio.wait_for(writer.wait_closed(), SILENCE_SECONDS)

    def _longest(self, writer: asyncio.StreamWriter) -> int:
        """Bytes of the next line: a stranger fills no memory."""
        return LONGEST_LINE if self._here.get(writer) else MAX_LINE

    async def _answer(self, line: bytes, asker: _Asker | None = None) -> dict[str, Any]:
        try:
            request = _Request.model_validate_json(line)
        except ValidationError:
            return _refused("not a request: it wants token, command and arguments")
        if not hmac.compare_digest(request.token.encode(), self._token.encode()):
            return _refused("the token is wrong")
        if asker is not None and asker.writer in self._here:
            self._here[asker.writer] = True
        if request.command == PROVE:
            return {"ok": True, "result": {"longest_line": LONGEST_LINE}}
        handler = self._handlers.get(request.command)
        if handler is None:
            return _refused(f"unknown command {request.command!r}")
        try:
            return {"ok": True, "result": await self._carried_out(request, handler, asker)}
        except CommandRefused as error:
            return _refused(str(error)) | ({"refusal": error.refusal} if error.refusal else {})
        except Exception as error:
            # A request reads only what the node is not in the middle of: what fails here is no fault of the client.
            self._guard.caught(error)
            return _refused(f"the node failed at {request.command}; its log says why")

    async def _carried_out(self, request: _Request, handler: Handler, asker: _Asker | None) -> Any:
        if asker is None or request.command in self._waits.at_once:
            return await handler(request.arguments)
        if (why := self._places.why_none(request.command)) is not None:
            raise CommandRefused(why)
        task = asyncio.current_task() if request.command in self._waits.lasting else None
        with self._places.taken(request.command):
            watching = self._guard.create_task(self._watch(asker, task))
            try:
                return await handler(request.arguments)
            finally:
                watching.cancel()
                await asyncio.wait([watching])

    async def _watch(self, asker: _Asker, task: asyncio.Task[Any] | None) -> None:
        """While it waits for an answer. When it has gone, its place is free, and ``task`` waits no more."""
        await asker.lines.until_gone()
        tell(log, logging.DEBUG, OperatorGone("it has not waited for the answer"))
        self._here.pop(asker.writer, None)
        asker.writer.transport.abort()
        if task is not None:
            task.cancel()


def _refused(sentence: str) -> dict[str, Any]:
    return {"ok": False, "error": sentence}
