"""``/api/policies`` and ``/api/operator-policies``, with RabbitMQ's paths and fields.

What a policy says that has no effect here is refused. Of operator policies nothing has, so there are none.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from broker_plugin.definitions.access_entries import APPLIES_TO
from broker_plugin.embedded.rights.patterns import PatternRefused, matcher
from broker_plugin.http.errors import bad_request, not_found
from broker_plugin.http.login import ADMINISTRATOR, POLICYMAKER
from broker_plugin.http.reading import name_in, read_object
from broker_plugin.http.routes.kept_rules import check_visible, clear, rules, set_rule, visible
from broker_plugin.http.routing import Api, Asking
from txobserver.rules import ALTERNATE_EXCHANGE, LARGEST_LIMIT, POLICY

KNOWN = frozenset({"vhost", "name", "pattern", "apply-to", "definition", "priority"})
"""What a policy can be given"""
SEES_ALL = frozenset({ADMINISTRATOR})
"""Tags of users who see the policies of all virtual hosts"""


def routes(api: Api) -> list[BaseRoute]:
    """All of them."""
    one, operators = "/api/policies/{vhost}/{name}", "/api/operator-policies"
    return [
        api.route("/api/policies", ["GET"], POLICYMAKER, list_policies),
        api.route("/api/policies/{vhost}", ["GET"], POLICYMAKER, list_policies),
        api.route(one, ["GET"], POLICYMAKER, get_policy),
        api.route(one, ["PUT"], POLICYMAKER, put_policy),
        api.route(one, ["DELETE"], POLICYMAKER, delete_policy),
        api.route(operators, ["GET"], POLICYMAKER, no_operator_policies),
        api.route(operators + "/{vhost}", ["GET"], POLICYMAKER, no_operator_policies),
        api.route(operators + "/{vhost}/{name}", ["PUT"], ADMINISTRATOR, refuse_operator_policy),
    ]


async def list_policies(asking: Asking) -> Response:
    """All, or those of the virtual host that the path names; only those that the user may see."""
    found = await rules(asking, POLICY)
    if "vhost" in asking.request.path_params:
        vhost = await _vhost(asking)
        found = [rule for rule in found if rule["vhost"] == vhost]
    seen = await visible(asking, SEES_ALL)
    return JSONResponse([_shown(rule) for rule in found if seen is None or rule["vhost"] in seen])


async def get_policy(asking: Asking) -> Response:
    """One."""
    return JSONResponse(_shown(await _there(asking)))


async def put_policy(asking: Asking) -> Response:
    """Sets one."""
    vhost, name, given = await _vhost(asking), name_in(asking.request, "name"), await read_object(asking.request)
    if unknown := sorted(given.keys() - KNOWN):
        raise bad_request(f"a policy has no {unknown[0]!r}")
    if given.get("apply-to", "all") not in APPLIES_TO:
        raise bad_request("apply-to is all or exchanges: nothing that a policy of queues says has an effect here")
    pattern, priority, definition = given.get("pattern"), given.get("priority", 0), given.get("definition")
    if not isinstance(pattern, str):
        raise bad_request("pattern must be a text")
    try:
        matcher(pattern)
    except PatternRefused as error:
        raise bad_request(f"pattern: {error}") from None
    if type(priority) is not int or abs(priority) > LARGEST_LIMIT:
        raise bad_request("priority must be a whole number")
    rule = {"kind": POLICY, "vhost": vhost, "name": name, "pattern": pattern, "priority": priority}
    return await set_rule(asking, rule | {"definition": _definition(definition)})


async def delete_policy(asking: Asking) -> Response:
    """Clears one."""
    await clear(asking, await _there(asking))
    return Response(status_code=204)


async def no_operator_policies(asking: Asking) -> Response:
    """There are none."""
    return JSONResponse([])


async def refuse_operator_policy(asking: Asking) -> Response:
    """Nothing that one could say has an effect."""
    raise bad_request("nothing that an operator policy can say has an effect here: leave it out")


def _definition(given: Any) -> dict[str, str]:
    if not isinstance(given, dict) or not given:
        raise bad_request(f"definition must be an object with {ALTERNATE_EXCHANGE}")
    if unknown := sorted(given.keys() - {ALTERNATE_EXCHANGE}):
        raise bad_request(f"{unknown[0]!r} would have no effect here: leave it out")
    if not isinstance(given[ALTERNATE_EXCHANGE], str):
        raise bad_request(f"{ALTERNATE_EXCHANGE} must be the name of an exchange")
    return given


async def _vhost(asking: Asking) -> str:
    """The virtual host that the path names. Raises HttpError if there is none, or the user has nothing to do there."""
    return await check_visible(asking, name_in(asking.request, "vhost"), SEES_ALL)


async def _there(asking: Asking) -> dict[str, Any]:
    vhost, name = await _vhost(asking), name_in(asking.request, "name")
    for rule in await rules(asking, POLICY):
        if (rule["vhost"], rule["name"]) == (vhost, name):
            return rule
    raise not_found()


def _shown(rule: dict[str, Any]) -> dict[str, Any]:
    said = {key: rule[key] for key in ("vhost", "name", "pattern", "definition", "priority")}
    return said | {"apply-to": "exchanges"}
