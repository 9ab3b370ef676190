"""NodeClient: the door's side of the node's administration: a connection for each question, few of them at a time."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Protocol

from broker_plugin.http.errors import refused, too_large, unavailable
from recovery.reader.node_admin import FILE, MAX_ANSWER, RequestTooLong, request_lines

MOST_LOGINS = 8
"""Logins at a time"""
MOST_HEALTH = 2
"""Questions after the node's health at a time; the node's loop answers each within a turn"""
MOST_READ = 6
"""Other questions that change nothing, at a time"""
MOST_CHANGES = 6
"""Changes at a time; each may wait for the commit point for as long as an answer may take"""
CHANGES = frozenset({"users.put", "users.delete", "rules.set", "rules.clear", "definitions.load"})
"""The commands by which the door changes something"""
ANSWER_SECONDS = 15.0
"""For an answer: a change waits for the commit point."""


class AskedNode(Protocol):
    """What answers the door's questions: a node."""

    async def ask(self, command: str, arguments: dict[str, Any] | None = None, seconds: float = ANSWER_SECONDS) -> Any:
        """The answer. Raises HttpError."""
        ...


class NodeClient:
    """AskedNode, of the node with this directory. Where the node listens is read for each question: it may have started
    again.

    Promise: while changes wait, others are read for and log in, and whatever waits, the node's health is told. So each
    kind of question has places of its own among the 48 connections that the administration takes; commands need some.
    """

    def __init__(self, directory: Path) -> None:
        self._file = directory / FILE
        self._changes = asyncio.Semaphore(MOST_CHANGES)
        self._reads = asyncio.Semaphore(MOST_READ)
        self._own = {"door.login": asyncio.Semaphore(MOST_LOGINS), "door.health": asyncio.Semaphore(MOST_HEALTH)}

    async def ask(self, command: str, arguments: dict[str, Any] | None = None, seconds: float = ANSWER_SECONDS) -> Any:
        """The node's answer. Raises HttpError where it does not come, or the command is refused."""
        try:
            async with asyncio.timeout(seconds):
                async with self._places(command):
                    answer = await self._exchange(command, arguments or {})
        except RequestTooLong as error:
            raise too_large(str(error)) from None
        except (TimeoutError, OSError, ValueError, KeyError, TypeError, RecursionError):
            raise unavailable("the node does not answer") from None
        if not isinstance(answer, dict) or "ok" not in answer:
            raise unavailable("the node does not answer")
        if not answer["ok"]:
            raise refused(str(answer.get("error")), str(answer.get("refusal", "")))
        return answer.get("result")

    def _places(self, command: str) -> asyncio.Semaphore:
        return self._own.get(command) or (self._changes if command in CHANGES else self._reads)

    async def _exchange(self, command: str, arguments: dict[str, Any]) -> Any:
        where = json.loads(self._file.read_text())
        reader, writer = await asyncio.open_connection("127.0.0.1", where["port"], limit=MAX_ANSWER)
        try:
            proof, request = request_lines(where["token"], command, arguments)
            if proof:
                writer.write(proof)
                answer = json.loads(await reader.readline())
                if not isinstance(answer, dict) or not answer.get("ok"):
                    return answer
            writer.write(request)
            await writer.drain()
            return json.loads(await reader.readline())
        finally:
            writer.transport.abort()
