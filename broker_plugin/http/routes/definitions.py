"""``/api/definitions``, with RabbitMQ's paths and form: all of a file at once, or nothing.

``?partial=true`` leaves out what cannot be honoured here; else that is told, and nothing is imported.
"""

from __future__ import annotations

import asyncio
from importlib import metadata

from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from broker_plugin.definitions.document import MalformedDocument, read_document
from broker_plugin.definitions.found import ImportFound
from broker_plugin.definitions.reading import read_import
from broker_plugin.definitions.state import DefinitionsHeld, packed_steps, unpacked_state
from broker_plugin.definitions.writing import as_json, written, written_vhost
from broker_plugin.http.errors import bad_request
from broker_plugin.http.login import ADMINISTRATOR
from broker_plugin.http.reading import name_in, read_body
from broker_plugin.http.routes.kept_rules import check_vhost
from broker_plugin.http.routing import Api, Asking

MOST_BODY = 16 << 20
"""Bytes of a file"""
MOST_TOLD = 10
"""Of what cannot be honoured, in one answer"""
PARTIAL = {"true": True, "false": False}


def routes(api: Api) -> list[BaseRoute]:
    """All of them."""
    return [
        api.route("/api/definitions", ["GET"], ADMINISTRATOR, get_all),
        api.route("/api/definitions", ["POST"], ADMINISTRATOR, post_all),
        api.route("/api/definitions/{vhost}", ["GET"], ADMINISTRATOR, get_vhost),
        api.route("/api/definitions/{vhost}", ["POST"], ADMINISTRATOR, post_vhost),
    ]


async def get_all(asking: Asking) -> Response:
    """The file of the cluster, with the hashes of passwords in it."""
    state = await _state(asking)
    return _json(await asyncio.to_thread(lambda: as_json(written(state, metadata.version("txha")))))


async def get_vhost(asking: Asking) -> Response:
    """The file of a virtual host."""
    vhost = await check_vhost(asking, name_in(asking.request, "vhost"))
    state = await _state(asking)
    return _json(await asyncio.to_thread(lambda: as_json(written_vhost(state, metadata.version("txha"), vhost))))


async def post_all(asking: Asking) -> Response:
    """Imports the file of a cluster."""
    return await _import(asking, None)


async def post_vhost(asking: Asking) -> Response:
    """Imports the file of a virtual host into the one that the path names."""
    return await _import(asking, await check_vhost(asking, name_in(asking.request, "vhost")))


async def _import(asking: Asking, vhost: str | None) -> Response:
    if unknown := sorted(asking.request.query_params.keys() - {"partial"}):
        raise bad_request(f"there is no {unknown[0]!r} here: an import takes partial, and nothing else")
    partial = PARTIAL.get(asking.request.query_params.get("partial", "false"))
    if partial is None:
        raise bad_request("partial is true or false")
    body, state = await read_body(asking.request, MOST_BODY), await _state(asking)
    try:
        found = await asyncio.to_thread(lambda: read_import(read_document(body), state, vhost))
    except MalformedDocument as error:
        raise bad_request(f"this is no file of definitions: {error}") from None
    if found.left_out and not partial:
        raise bad_request(_told(found))
    if found.steps:
        packed = await asyncio.to_thread(packed_steps, found.steps)
        await asking.change("definitions.load", {"steps": packed})
    if found.left_out:
        return JSONResponse({"left_out": [each._asdict() for each in found.left_out]})
    return Response(status_code=204)


async def _state(asking: Asking) -> DefinitionsHeld:
    answer = await asking.node.ask("definitions.state")
    return await asyncio.to_thread(unpacked_state, answer["state"])


def _told(found: ImportFound) -> str:
    told = "; ".join(f"{each.entry}: {each.why}" for each in found.left_out[:MOST_TOLD])
    more = len(found.left_out) - MOST_TOLD
    rest = f"; and {more} more" if more > 0 else ""
    return f"nothing was imported, partial=true leaves out what cannot be honoured: {told}{rest}"


def _json(text: str) -> Response:
    return Response(text, media_type="application/json")
