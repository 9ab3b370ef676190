"""The door's applications: one that wants a login, and one for metrics."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import BaseRoute

from broker_plugin.http.asking import AskedNode
from broker_plugin.http.errors import HttpError, answer_error, answer_failure, answer_method, answer_not_found
from broker_plugin.http.reading import RawPaths
from broker_plugin.http.routes import (
    definitions,
    health,
    limits,
    metrics,
    nodes,
    permissions,
    policies,
    txha,
    users,
    vhosts,
)
from broker_plugin.http.routing import Api

HANDLERS = {HttpError: answer_error, 404: answer_not_found, 405: answer_method, Exception: answer_failure}


def operators_app(node: AskedNode) -> Starlette:
    """For operators."""
    api = Api(node)
    routes = [
        *health.open_routes(node),
        *health.routes(api),
        *metrics.routes(api),
        *nodes.routes(api),
        *txha.routes(api),
        *users.routes(api),
        *vhosts.routes(api),
        *permissions.routes(api),
        *limits.routes(api),
        *policies.routes(api),
        *definitions.routes(api),
    ]
    return _app(routes)


def metrics_app(node: AskedNode) -> Starlette:
    """For what collects metrics, without a login."""
    return _app([*health.open_routes(node), *metrics.open_routes(node)])


def _app(routes: list[BaseRoute]) -> Starlette:
    app = Starlette(routes=routes, exception_handlers=HANDLERS, middleware=[Middleware(RawPaths)])
    app.router.redirect_slashes = False
    return app
