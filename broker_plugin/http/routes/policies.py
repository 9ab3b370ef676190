"""``/api/policies`` and ``/api/operator-policies``, with RabbitMQ's paths and fields.

What one says that has no effect here is refused.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from broker_plugin.embedded.rights.patterns import PatternRefused, matcher
from broker_plugin.http.errors import bad_request, not_found
from broker_plugin.http.login import ADMINISTRATOR, POLICYMAKER
from broker_plugin.http.reading import name_in, read_object
from broker_plugin.http.routes.kept_rules import check_visible, clear, rules, set_rule, visible
from broker_plugin.http.routing import Api, Asking
from txobserver.policies import ALL, LARGEST_PRIORITY, Policy, check_policy
from txobserver.rules import OPERATOR_POLICY, POLICY

KNOWN = frozenset({"vhost", "name", "pattern", "apply-to", "definition", "priority"})
"""What a policy can be given"""
SEES_ALL = frozenset({ADMINISTRATOR})
"""Tags of users who see the policies of all virtual hosts"""


def routes(api: Api) -> list[BaseRoute]:
    """All of them."""
    made: list[BaseRoute] = []
    for path, kind, changes in (
        ("/api/policies", POLICY, POLICYMAKER),
        ("/api/operator-policies", OPERATOR_POLICY, ADMINISTRATOR),
    ):
        one = f"{path}/{{vhost}}/{{name}}"
        made += [
            api.route(path, ["GET"], POLICYMAKER, partial(list_policies, kind)),
            api.route(f"{path}/{{vhost}}", ["GET"], POLICYMAKER, partial(list_policies, kind)),
            api.route(one, ["GET"], POLICYMAKER, partial(get_policy, kind)),
            api.route(one, ["PUT"], changes, partial(put_policy, kind)),
            api.route(one, ["DELETE"], changes, partial(delete_policy, kind)),
        ]
    return made


async def list_policies(kind: str, asking: Asking) -> Response:
    """All, or those of the virtual host that the path names; only those that the user may see."""
    found = await rules(asking, kind)
    if "vhost" in asking.request.path_params:
        vhost = await _vhost(asking)
        found = [rule for rule in found if rule["vhost"] == vhost]
    seen = await visible(asking, SEES_ALL)
    return JSONResponse([_shown(rule) for rule in found if seen is None or rule["vhost"] in seen])


async def get_policy(kind: str, asking: Asking) -> Response:
    """One."""
    return JSONResponse(_shown(await _there(kind, asking)))


async def put_policy(kind: str, asking: Asking) -> Response:
    """Sets one."""
    vhost, name, given = await _vhost(asking), name_in(asking.request, "name"), await read_object(asking.request)
    if unknown := sorted(given.keys() - KNOWN):
        raise bad_request(f"a policy has no {unknown[0]!r}")
    pattern, priority, definition = given.get("pattern"), given.get("priority", 0), given.get("definition")
    apply_to = given.get("apply-to", ALL)
    if not isinstance(pattern, str):
        raise bad_request("pattern must be a text")
    if not isinstance(apply_to, str):
        raise bad_request("apply-to must be a text")
    if not isinstance(definition, dict):
        raise bad_request("definition must be an object")
    try:
        matcher(pattern)
    except PatternRefused as error:
        raise bad_request(f"pattern: {error}") from None
    if type(priority) is not int or abs(priority) > LARGEST_PRIORITY:
        raise bad_request("priority must be a whole number")
    try:
        check_policy(Policy(pattern, priority, definition, apply_to), kind == OPERATOR_POLICY)
    except ValueError as error:
        raise bad_request(str(error)) from None
    rule = {"kind": kind, "vhost": vhost, "name": name, "pattern": pattern, "priority": priority}
    return await set_rule(asking, rule | {"definition": definition, "apply_to": apply_to})


async def delete_policy(kind: str, asking: Asking) -> Response:
    """Clears one."""
    await clear(asking, await _there(kind, asking))
    return Response(status_code=204)


async def _vhost(asking: Asking) -> str:
    """The virtual host that the path names. Raises HttpError if there is none, or the user has nothing to do there."""
    return await check_visible(asking, name_in(asking.request, "vhost"), SEES_ALL)


async def _there(kind: str, asking: Asking) -> dict[str, Any]:
    vhost, name = await _vhost(asking), name_in(asking.request, "name")
    for rule in await rules(asking, kind):
        if (rule["vhost"], rule["name"]) == (vhost, name):
            return rule
    raise not_found()


def _shown(rule: dict[str, Any]) -> dict[str, Any]:
    said = {key: rule[key] for key in ("vhost", "name", "pattern", "definition", "priority")}
    return said | {"apply-to": rule["apply_to"]}
