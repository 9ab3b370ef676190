"""``/api/user-limits`` and ``/api/vhost-limits``, with RabbitMQ's paths and fields."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from broker_plugin.http.errors import bad_request
from broker_plugin.http.login import ADMINISTRATOR, MANAGEMENT
from broker_plugin.http.reading import name_in, read_object
from broker_plugin.http.routes.kept_rules import check_user, check_vhost, check_visible, clear, rules, set_rule, visible
from broker_plugin.http.routing import Api, Asking
from txobserver.rules import LARGEST_LIMIT, LIMITS, USER_LIMIT, VHOST_LIMIT

Check = Callable[[Asking, str], Awaitable[str]]


def routes(api: Api) -> list[BaseRoute]:
    """All of them."""
    found: list[BaseRoute] = []
    of_users = Limits(USER_LIMIT, "user", check_user, check_user)
    for limits in (of_users, Limits(VHOST_LIMIT, "vhost", check_vhost, check_visible)):
        whole = f"/api/{limits.of}-limits"
        found += [
            api.route(whole, ["GET"], MANAGEMENT, limits.list_all),
            api.route(f"{whole}/{{name}}", ["GET"], MANAGEMENT, limits.list_one),
            api.route(f"{whole}/{{name}}/{{limit}}", ["PUT"], ADMINISTRATOR, limits.put),
            api.route(f"{whole}/{{name}}/{{limit}}", ["DELETE"], ADMINISTRATOR, limits.delete),
        ]
    return found


class Limits:
    """Of users, or of virtual hosts. ``of``: which, in RabbitMQ's word; ``check`` refuses a name that is not there,
    ``look`` also one that the user may not look at."""

    def __init__(self, kind: str, of: str, check: Check, look: Check) -> None:
        self.of = of
        self._kind = kind
        self._check = check
        self._look = look

    async def list_all(self, asking: Asking) -> Response:
        """Of all that have any, and of virtual hosts those that the user sees."""
        seen = await visible(asking) if self._kind == VHOST_LIMIT else None
        found = await rules(asking, self._kind)
        return JSONResponse(self._shown([rule for rule in found if seen is None or rule["name"] in seen]))

    async def list_one(self, asking: Asking) -> Response:
        """Of one."""
        name = await self._look(asking, name_in(asking.request, "name"))
        return JSONResponse(self._shown([rule for rule in await rules(asking, self._kind) if rule["name"] == name]))

    async def put(self, asking: Asking) -> Response:
        """Sets one."""
        given = await read_object(asking.request)
        most = given.get("value")
        if type(most) is not int or not -1 <= most <= LARGEST_LIMIT:
            raise bad_request(f"value must be a whole number: -1 for none, or from 0 to {LARGEST_LIMIT}")
        await set_rule(asking, await self._place(asking) | {"most": most})
        return Response(status_code=204)

    async def delete(self, asking: Asking) -> Response:
        """Takes one away, if there is one."""
        place = await self._place(asking)
        if any(place.items() <= rule.items() for rule in await rules(asking, self._kind)):
            await clear(asking, place)
        return Response(status_code=204)

    async def _place(self, asking: Asking) -> dict[str, Any]:
        limit = name_in(asking.request, "limit")
        if limit not in LIMITS[self._kind]:
            raise bad_request(f"there is no limit {limit!r}: it is one of {', '.join(LIMITS[self._kind])}")
        name = await self._check(asking, name_in(asking.request, "name"))
        vhost = name if self._kind == VHOST_LIMIT else ""
        return {"kind": self._kind, "vhost": vhost, "name": name, "scope": limit}

    def _shown(self, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        values: dict[str, dict[str, int]] = {}
        for rule in found:
            values.setdefault(rule["name"], {})[rule["scope"]] = rule["most"]
        return [{self.of: name, "value": value} for name, value in values.items()]
