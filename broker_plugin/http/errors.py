"""What is answered where a request cannot be carried out, in RabbitMQ's form: ``error`` and ``reason``."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from broker_plugin.admin.answers import LET_IN_NO_MORE
from broker_plugin.logs.formats import tell
from broker_plugin.logs.http_events import HttpDoorFailed
from txobserver.refusal import Refusal

log = logging.getLogger("txha.http")
REALM = {"www-authenticate": 'Basic realm="txha"'}


class HttpError(Exception):
    """``error`` is a word for programs, ``reason`` a sentence, or RabbitMQ's word."""

    def __init__(self, status: int, error: str, reason: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.error = error
        self.reason = reason
        self.headers = headers

    def response(self) -> Response:
        """As it is sent."""
        return JSONResponse({"error": self.error, "reason": self.reason}, self.status, self.headers)


class NotFound(HttpError):
    """There is no such object."""


def bad_request(reason: str) -> HttpError:
    """The request itself is wrong."""
    return HttpError(400, "bad_request", reason)


def too_large(reason: str, headers: Mapping[str, str] | None = None) -> HttpError:
    """The request has more than may be."""
    return HttpError(413, "bad_request", reason, headers)


def not_found() -> HttpError:
    """There is no such object."""
    return NotFound(404, "Object Not Found", "Not Found")


def not_authorised(reason: str) -> HttpError:
    """The login is right, and its tags do not allow this; RabbitMQ says 401 for it."""
    return HttpError(401, "not_authorised", reason)


def login_refused() -> HttpError:
    """It does not say why."""
    return HttpError(401, "not_authorized", "Not_Authorized", REALM)


def unavailable(reason: str) -> HttpError:
    """The node does not answer, or cannot do this now."""
    return HttpError(503, "unavailable", reason)


def refused(sentence: str, refusal: str) -> HttpError:
    """The node refuses. ``refusal`` says what the stream has decided, by which what was there before has gone, or what
    was not there has come, since the door looked; without one the node cannot do this now."""
    if refusal == LET_IN_NO_MORE:
        return not_authorised(sentence)
    if refusal in (Refusal.GONE, Refusal.NO_VHOST):
        return NotFound(404, "Object Not Found", sentence)
    return bad_request(sentence) if refusal else unavailable(sentence)


async def answer_error(request: Request, error: Exception) -> Response:
    """Of an ``HttpError`` that a route has raised."""
    assert isinstance(error, HttpError)
    return error.response()


async def answer_not_found(request: Request, error: Exception) -> Response:
    """No route has this path."""
    return not_found().response()


async def answer_method(request: Request, error: Exception) -> Response:
    """The path has no such method."""
    headers = getattr(error, "headers", None)
    return HttpError(405, "Method Not Allowed", f"{request.method} cannot be done here", headers).response()


async def answer_failure(request: Request, error: Exception) -> Response:
    """A fault of ours. Its kind and where it was raised stand in the log; its text may hold what a client has sent."""
    where = traceback.extract_tb(error.__traceback__)[-1:]
    at = "".join(f" at {Path(each.filename).name}:{each.lineno}" for each in where)
    tell(log, logging.ERROR, HttpDoorFailed(request.method, type(error).__name__ + at))
    return HttpError(500, "internal_error", "the door failed at this request; the node's log says why").response()
