"""A route of the API: what it wants of the login, and what its handler is given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from broker_plugin.http.asking import AskedNode
from broker_plugin.http.login import DoorLogins, Login


class Asking(NamedTuple):
    """A request of a user who has logged in, and the node that is asked."""

    request: Request
    login: Login
    node: AskedNode

    async def change(self, command: str, arguments: dict[str, Any]) -> Any:
        """Ask the node for a change, as this user. Raises HttpError, also where the user has been deleted or changed
        since the request was let in: its body may have come slowly."""
        whose = {"by": self.login.by, "login": self.login.let_in}
        return await self.node.ask(command, {**arguments, **whose})


Handler = Callable[[Asking], Awaitable[Response]]


class Api:
    """Makes routes for this node."""

    def __init__(self, node: AskedNode) -> None:
        self.node = node
        self.logins = DoorLogins(node)

    def route(self, path: str, methods: list[str], needed: str, handler: Handler) -> Route:
        """One route. ``needed``: see ``login.TAGS_THAT_ALLOW``."""

        async def endpoint(request: Request) -> Response:
            login = await self.logins.allow(request, needed)
            return await handler(Asking(request, login, self.node))

        return Route(path, endpoint, methods=methods)
