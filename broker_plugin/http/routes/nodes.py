"""``/api/nodes``: this node with what it takes, and which others it reaches, with the alarms that they have told it.

Others say more at their own doors.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from broker_plugin.http.errors import not_found
from broker_plugin.http.login import MONITORING
from broker_plugin.http.reading import name_in
from broker_plugin.http.routing import Api, Asking


def routes(api: Api) -> list[BaseRoute]:
    """All of them."""
    return [
        api.route("/api/nodes", ["GET"], MONITORING, list_nodes),
        api.route("/api/nodes/{name}", ["GET"], MONITORING, get_node),
    ]


async def list_nodes(asking: Asking) -> Response:
    """All nodes of the cluster."""
    return JSONResponse(await _nodes(asking))


async def get_node(asking: Asking) -> Response:
    """One of them."""
    name = name_in(asking.request, "name")
    for each in await _nodes(asking):
        if each["name"] == name:
            return JSONResponse(each)
    raise not_found()


async def _nodes(asking: Asking) -> list[dict[str, Any]]:
    found = await asking.node.ask("door.nodes")
    memory, disk, clients = found["memory"], found["disk"], found["clients"]
    own = {
        "name": found["name"],
        "type": "disc",
        "running": True,
        "os_pid": str(found["pid"]),
        "uptime": int(1000 * found["uptime"]),
        "mem_used": memory.get("held"),
        "mem_limit": memory.get("high_bytes"),
        "disk_free": disk.get("free"),
        "disk_free_limit": disk.get("least"),
        "sockets_used": clients.get("connected"),
        "sockets_total": clients.get("most"),
        **_alarms(found["alarms"]),
    }
    told = found["others_alarms"]
    others = [
        {"name": name, "type": "disc", "running": linked, **_alarms(told[name])}
        for name, linked in found["others"].items()
    ]
    return sorted([own, *others], key=lambda each: str(each["name"]))


def _alarms(reasons: list[str] | None) -> dict[str, bool]:
    """Nothing where they are not known."""
    if reasons is None:
        return {}
    return {"mem_alarm": "low on memory" in reasons, "disk_free_alarm": "low on disk" in reasons}
