"""Rules as the node keeps them: how routes read, set and clear one."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from broker_plugin.http.errors import not_authorised, not_found
from broker_plugin.http.login import ADMINISTRATOR, MONITORING
from broker_plugin.http.routing import Asking
from txobserver.rules import PERMISSION, VHOST

SEES_ALL = frozenset({ADMINISTRATOR, MONITORING})
"""Tags of users who see all virtual hosts"""


async def rules(asking: Asking, kind: str) -> list[dict[str, Any]]:
    """All of a kind."""
    found: list[dict[str, Any]] = await asking.node.ask("rules.list", {"kinds": [kind]})
    return found


async def set_rule(asking: Asking, rule: dict[str, Any]) -> Response:
    """Sets a rule."""
    done = await asking.change("rules.set", rule)
    return Response(status_code=201 if done["added"] else 204)


async def clear(asking: Asking, rule: dict[str, Any]) -> None:
    """Clears a rule."""
    place = {key: rule[key] for key in ("kind", "vhost", "name", "scope")}
    await asking.change("rules.clear", place)


async def visible(asking: Asking, sees_all: frozenset[str] = SEES_ALL) -> set[str] | None:
    """The virtual hosts in which the user has permissions; None for one with a tag that shows all."""
    if not sees_all.isdisjoint(asking.login.tags):
        return None
    return {rule["vhost"] for rule in await rules(asking, PERMISSION) if rule["name"] == asking.login.user}


async def check_visible(asking: Asking, name: str, sees_all: frozenset[str] = SEES_ALL) -> str:
    """The name. Raises HttpError if there is no such virtual host, or the user has nothing to do there."""
    await check_vhost(asking, name)
    seen = await visible(asking, sees_all)
    if seen is not None and name not in seen:
        raise not_authorised("User not authorised to access virtual host")
    return name


async def check_user(asking: Asking, name: str) -> str:
    """The name. Raises HttpError if there is no such user."""
    if all(each["name"] != name for each in await asking.node.ask("users.list")):
        raise not_found()
    return name


async def check_vhost(asking: Asking, name: str) -> str:
    """The name. Raises HttpError if there is no such virtual host."""
    if all(each["name"] != name or each["going"] for each in await rules(asking, VHOST)):
        raise not_found()
    return name
