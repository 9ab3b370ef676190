"""What only txha has: cluster calls, how far each node is, who has changed what, the ready set."""

from __future__ import annotations

from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from broker_plugin.http.login import ADMINISTRATOR, MONITORING
from broker_plugin.http.routing import Api, Asking

READY_SET = ("generation", "primary", "ready_set", "min_ready", "nodes", "shortage")


def routes(api: Api) -> list[BaseRoute]:
    """All of them."""
    return [
        api.route("/api/txha/calls", ["GET"], MONITORING, calls),
        api.route("/api/txha/changes", ["GET"], ADMINISTRATOR, changes),
        api.route("/api/txha/nodes", ["GET"], MONITORING, nodes),
        api.route("/api/txha/ready-set", ["GET"], MONITORING, ready_set),
    ]


async def calls(asking: Asking) -> Response:
    """The cluster calls that are kept, and which nodes lack them."""
    return JSONResponse(await asking.node.ask("calls.list"))


async def changes(asking: Asking) -> Response:
    """What operators have changed; with ``?by=USER``, what that user has."""
    by = asking.request.query_params.get("by")
    return JSONResponse(await asking.node.ask("changes.list", {} if by is None else {"by": by}))


async def nodes(asking: Asking) -> Response:
    """How far each node is with cluster calls, as the primary knows it; null where it does not say so."""
    return JSONResponse((await asking.node.ask("calls.status"))["nodes"])


async def ready_set(asking: Asking) -> Response:
    """Who is ready, and how many a commit needs."""
    health = await asking.node.ask("door.health")
    return JSONResponse({key: health[key] for key in READY_SET})
