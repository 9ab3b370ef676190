"""``/api/permissions`` and ``/api/topic-permissions``: what users may do, with RabbitMQ's paths and fields."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from broker_plugin.embedded.rights.patterns import PatternRefused, matcher
from broker_plugin.http.errors import NotFound, bad_request, not_found
from broker_plugin.http.login import ADMINISTRATOR
from broker_plugin.http.reading import name_in, read_object
from broker_plugin.http.routes.kept_rules import check_user, check_vhost, clear, rules, set_rule
from broker_plugin.http.routing import Api, Asking
from txobserver.rules import PERMISSION, TOPIC_PERMISSION

PATTERNS = {PERMISSION: ("configure", "write", "read"), TOPIC_PERMISSION: ("write", "read")}
SAID_ANYWAY = frozenset({"user", "username", "vhost", "name"})
"""What the path has said already, and tools such as rabbitmqadmin say again"""


def routes(api: Api) -> list[BaseRoute]:
    """All of them."""
    one, topics = "/api/permissions/{vhost}/{user}", "/api/topic-permissions/{vhost}/{user}"
    return [
        api.route("/api/permissions", ["GET"], ADMINISTRATOR, list_permissions),
        api.route(one, ["GET"], ADMINISTRATOR, get_permission),
        api.route(one, ["PUT"], ADMINISTRATOR, put_permission),
        api.route(one, ["DELETE"], ADMINISTRATOR, delete_permission),
        api.route("/api/users/{user}/permissions", ["GET"], ADMINISTRATOR, list_permissions),
        api.route("/api/vhosts/{vhost}/permissions", ["GET"], ADMINISTRATOR, list_permissions),
        api.route("/api/topic-permissions", ["GET"], ADMINISTRATOR, list_topics),
        api.route(topics, ["GET"], ADMINISTRATOR, get_topics),
        api.route(topics, ["PUT"], ADMINISTRATOR, put_topic),
        api.route(topics, ["DELETE"], ADMINISTRATOR, delete_topics),
        api.route(topics + "/{exchange}", ["DELETE"], ADMINISTRATOR, delete_topics),
        api.route("/api/users/{user}/topic-permissions", ["GET"], ADMINISTRATOR, list_topics),
        api.route("/api/vhosts/{vhost}/topic-permissions", ["GET"], ADMINISTRATOR, list_topics),
    ]


async def list_permissions(asking: Asking) -> Response:
    """All, or those of the user or of the virtual host that the path names."""
    return JSONResponse([_shown(rule) for rule in await _named(asking, PERMISSION)])


async def get_permission(asking: Asking) -> Response:
    """One."""
    found = await _named(asking, PERMISSION)
    if not found:
        raise not_found()
    return JSONResponse(_shown(found[0]))


async def put_permission(asking: Asking) -> Response:
    """Sets one."""
    return await _put(asking, PERMISSION, "")


async def delete_permission(asking: Asking) -> Response:
    """Clears one."""
    return await _delete(asking, await _named(asking, PERMISSION))


async def list_topics(asking: Asking) -> Response:
    """All, or those of the user or of the virtual host that the path names."""
    return JSONResponse([_shown_topic(rule) for rule in await _named(asking, TOPIC_PERMISSION)])


async def get_topics(asking: Asking) -> Response:
    """Those of a user in a virtual host; 404 if there are none, as with RabbitMQ."""
    found = await _named(asking, TOPIC_PERMISSION)
    if not found:
        raise not_found()
    return JSONResponse([_shown_topic(rule) for rule in found])


async def put_topic(asking: Asking) -> Response:
    """Sets the one for an exchange, which the body names."""
    given = await read_object(asking.request)
    exchange = given.pop("exchange", None)
    if not isinstance(exchange, str):
        raise bad_request("exchange must be a text")
    return await _put(asking, TOPIC_PERMISSION, exchange, given)


async def delete_topics(asking: Asking) -> Response:
    """Clears those of a user in a virtual host, or the one for the exchange that the path names."""
    found = await _named(asking, TOPIC_PERMISSION)
    if "exchange" in asking.request.path_params:
        exchange = name_in(asking.request, "exchange")
        found = [rule for rule in found if rule["scope"] == exchange]
    return await _delete(asking, found)


async def _named(asking: Asking, kind: str) -> list[dict[str, Any]]:
    """The rules of the user and virtual host that the path names. Raises HttpError if one of them is not there."""
    found = await rules(asking, kind)
    if "user" in asking.request.path_params:
        user = await check_user(asking, name_in(asking.request, "user"))
        found = [rule for rule in found if rule["name"] == user]
    if "vhost" in asking.request.path_params:
        vhost = await check_vhost(asking, name_in(asking.request, "vhost"))
        found = [rule for rule in found if rule["vhost"] == vhost]
    return found


async def _put(asking: Asking, kind: str, scope: str, given: dict[str, Any] | None = None) -> Response:
    given = await read_object(asking.request) if given is None else given
    try:
        user = await check_user(asking, name_in(asking.request, "user"))
        vhost = await check_vhost(asking, name_in(asking.request, "vhost"))
    except NotFound:
        raise bad_request("vhost_or_user_not_found") from None
    patterns = PATTERNS[kind]
    if missing := [each for each in patterns if not isinstance(given.get(each), str)]:
        raise bad_request(f"{missing[0]} must be a text, the pattern of the names")
    if unknown := sorted(given.keys() - SAID_ANYWAY - set(patterns)):
        raise bad_request(f"a permission has no {unknown[0]!r}")
    for each in patterns:
        try:
            matcher(given[each])
        except PatternRefused as error:
            raise bad_request(f"{each}: {error}") from None
    place = {"kind": kind, "vhost": vhost, "name": user, "scope": scope}
    return await set_rule(asking, place | {each: given[each] for each in patterns})


async def _delete(asking: Asking, found: list[dict[str, Any]]) -> Response:
    if not found:
        raise not_found()
    for rule in found:
        await clear(asking, rule)
    return Response(status_code=204)


def _shown(rule: dict[str, Any]) -> dict[str, Any]:
    return {"user": rule["name"], "vhost": rule["vhost"], **{each: rule[each] for each in PATTERNS[PERMISSION]}}


def _shown_topic(rule: dict[str, Any]) -> dict[str, Any]:
    patterns = {each: rule[each] for each in PATTERNS[TOPIC_PERMISSION]}
    return {"user": rule["name"], "vhost": rule["vhost"], "exchange": rule["scope"], **patterns}
