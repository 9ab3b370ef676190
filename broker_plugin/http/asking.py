"""NodeClient: the door's side of the node's administration: a connection for each question, few of them at a time."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Protocol

from broker_plugin.http.errors import refused, unavailable
from recovery.reader.node_admin import FILE, MAX_ANSWER

MOST_ASKED = 8
"""Questions at a time: the administration takes 32 connections, and commands need some of them."""
MOST_LOGINS = 8
"""DoorLogins at a time, beside these: who guesses passwords keeps no other request from being answered."""
ANSWER_SECONDS = 15.0
"""For an answer: a change waits for the commit point."""


class AskedNode(Protocol):
    """What answers the door's questions: a node."""

    async def ask(self, command: str, arguments: dict[str, Any] | None = None, seconds: float = ANSWER_SECONDS) -> Any:
        """The answer. Raises HttpError."""
        ...


class NodeClient:
    """AskedNode, of the node with this directory. Where the node listens is read for each question: it may have started
    again."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / FILE
        self._asking = asyncio.Semaphore(MOST_ASKED)
        self._logging_in = asyncio.Semaphore(MOST_LOGINS)

    async def ask(self, command: str, arguments: dict[str, Any] | None = None, seconds: float = ANSWER_SECONDS) -> Any:
        """The node's answer. Raises HttpError where it does not come, or the command is refused."""
        try:
            async with asyncio.timeout(seconds):
                async with self._logging_in if command == "door.login" else self._asking:
                    answer = await self._exchange(command, arguments or {})
        except (TimeoutError, OSError, ValueError, KeyError, TypeError, RecursionError):
            raise unavailable("the node does not answer") from None
        if not isinstance(answer, dict) or "ok" not in answer:
            raise unavailable("the node does not answer")
        if not answer["ok"]:
            raise refused(str(answer.get("error")), str(answer.get("refusal", "")))
        return answer.get("result")

    async def _exchange(self, command: str, arguments: dict[str, Any]) -> Any:
        where = json.loads(self._file.read_text())
        reader, writer = await asyncio.open_connection("127.0.0.1", where["port"], limit=MAX_ANSWER)
        try:
            request = {"token": where["token"], "command": command, "arguments": arguments}
            writer.write(json.dumps(request).encode() + b"\n")
            await writer.drain()
            return json.loads(await reader.readline())
        finally:
            writer.transport.abort()
