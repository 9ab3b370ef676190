"""What a request says: names in its path, and a body of JSON, both taken within bounds."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import unquote

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from broker_plugin.definitions.keys import KeyTwice, checked_json
from broker_plugin.http.errors import HttpError, bad_request, too_large

MOST_BODY = 256 << 10
"""Bytes of a body; a longer one is not read to its end. The administration takes a line of a megabyte at once."""

MOST_THROWN_AWAY = 64 << 20
"""Bytes of a body that is too long, so that its sender comes to read the answer"""
SECONDS_THROWN_AWAY = 5.0
"""For which that may take"""


class RawPaths:
    """Routes see the path as it was sent: ``%2F`` is part of a name, and parts no two of them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "http" and scope.get("raw_path"):
            scope = {**scope, "path": scope["raw_path"].decode("latin-1")}
        await self._app(scope, receive, send)


def name_in(request: Request, part: str) -> str:
    """A part of the path, decoded. Raises HttpError for what is no UTF-8."""
    try:
        return unquote(request.path_params[part], errors="strict")
    except UnicodeDecodeError:
        raise bad_request("a name in the path is not UTF-8") from None


async def read_object(request: Request, may_be_empty: bool = False) -> dict[str, Any]:
    """The body, which must be an object of JSON, or if it may be, nothing. Raises HttpError."""
    body = await read_body(request, MOST_BODY)
    if may_be_empty and not body:
        return {}
    try:
        msgspec.json.decode(body)  # as UTF-8, and as JSON says: the next one takes more
        found = checked_json(body)
    except KeyTwice as error:
        raise bad_request(str(error)) from None
    except (ValueError, RecursionError):
        raise bad_request("not_json") from None
    if not isinstance(found, dict):
        raise bad_request("body_not_json_object")
    return found


async def read_body(request: Request, most: int) -> bytes:
    """The body, as it came. Raises HttpError for one with more bytes than ``most``, once the client may read that."""
    said = request.headers.get("content-length", "")
    announced = int(said[:20]) if said.isascii() and said.isdigit() else 0
    if announced > most and (announced > MOST_THROWN_AWAY or "expect" in request.headers):
        raise _too_large(most)
    body, pieces = bytearray(), request.stream()
    try:
        async for piece in pieces:
            body += piece
            if len(body) > most:
                await _throw_away(pieces)
                raise _too_large(most)
    except ClientDisconnect:
        raise bad_request("the body did not come whole") from None
    return bytes(body)


async def _throw_away(pieces: AsyncIterator[bytes]) -> None:
    """What comes still: who is in the middle of sending reads no answer, and one that is closed to is reset."""
    come = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SECONDS_THROWN_AWAY):
            async for piece in pieces:
                come += len(piece)
                if come > MOST_THROWN_AWAY:
                    return


def _too_large(most: int) -> HttpError:
    return too_large(f"a body has at most {most} bytes", {"connection": "close"})
