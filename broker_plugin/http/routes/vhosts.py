"""``/api/vhosts``, with RabbitMQ's paths and fields."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from broker_plugin.definitions.access_entries import QUEUE_TYPES
from broker_plugin.definitions.document import tags_between_commas
from broker_plugin.http.errors import bad_request, not_found
from broker_plugin.http.login import ADMINISTRATOR, MANAGEMENT
from broker_plugin.http.reading import name_in, read_object
from broker_plugin.http.routes.kept_rules import clear, rules, set_rule, visible
from broker_plugin.http.routing import Api, Asking
from txobserver.rules import LONGEST_SCOPE, VHOST
from txobserver.vhosts import DEFAULT_VHOST

KNOWN = frozenset({"name", "vhost", "description", "tags", "tracing", "default_queue_type"})
"""What a virtual host can be given. ``vhost`` is said by rabbitmqadmin whatever it declares."""


def routes(api: Api) -> list[BaseRoute]:
    """All of them."""
    one = "/api/vhosts/{vhost}"
    return [
        api.route("/api/vhosts", ["GET"], MANAGEMENT, list_vhosts),
        api.route(one, ["GET"], ADMINISTRATOR, get_vhost),
        api.route(one, ["PUT"], ADMINISTRATOR, put_vhost),
        api.route(one, ["DELETE"], ADMINISTRATOR, delete_vhost),
    ]


async def list_vhosts(asking: Asking) -> Response:
    """All of them that the user may connect to, but for those that are being deleted; others see them all."""
    found = [rule for rule in await rules(asking, VHOST) if not rule["going"]]
    seen = await visible(asking)
    return JSONResponse([_shown(rule) for rule in found if seen is None or rule["name"] in seen])


async def get_vhost(asking: Asking) -> Response:
    """One."""
    return JSONResponse(_shown(await _there(asking)))


async def put_vhost(asking: Asking) -> Response:
    """Adds one, or gives it another description and other tags; what is not said stays as it is."""
    name = name_in(asking.request, "vhost")
    if not 1 <= len(name.encode()) <= LONGEST_SCOPE or "\0" in name:
        raise bad_request(f"a virtual host's name has 1 to {LONGEST_SCOPE} bytes, and no zero")
    given = await read_object(asking.request, may_be_empty=True)
    if unknown := sorted(given.keys() - KNOWN):
        raise bad_request(f"a virtual host has no {unknown[0]!r}")
    if given.get("tracing"):
        raise bad_request("there is no tracing here: leave it out")
    if given.get("default_queue_type") not in QUEUE_TYPES:
        raise bad_request("there is one kind of queue here: leave default_queue_type out")
    there = next((rule for rule in await rules(asking, VHOST) if rule["name"] == name), None)
    kept = {} if there is None else {"description": there["description"], "tags": there["tags"]}
    given = {**kept, **{key: value for key, value in given.items() if value is not None}}
    description, tags = given.get("description", ""), _tags(given)
    if not isinstance(description, str):
        raise bad_request("description must be a text")
    rule = {"kind": VHOST, "vhost": name, "name": name, "description": description, "tags": tags}
    return await set_rule(asking, rule)


async def delete_vhost(asking: Asking) -> Response:
    """Begins to delete one, with all that is in it."""
    found = await _there(asking)
    if found["name"] == DEFAULT_VHOST:
        raise bad_request("the default virtual host cannot be deleted")
    await clear(asking, found)
    return Response(status_code=204)


async def _there(asking: Asking) -> dict[str, Any]:
    name = name_in(asking.request, "vhost")
    for rule in await rules(asking, VHOST):
        if rule["name"] == name and not rule["going"]:
            return rule
    raise not_found()


def _tags(given: dict[str, Any]) -> list[str]:
    """A list, or texts between commas."""
    tags = given.get("tags") or []
    if isinstance(tags, str):
        tags = tags_between_commas(tags)
    if not isinstance(tags, list) or not all(isinstance(each, str) and each for each in tags):
        raise bad_request("tags are a list of texts, or texts between commas")
    return tags


def _shown(rule: dict[str, Any]) -> dict[str, Any]:
    said = {"description": rule["description"], "tags": rule["tags"]}
    return {"name": rule["name"], **said, "metadata": said, "tracing": False}
