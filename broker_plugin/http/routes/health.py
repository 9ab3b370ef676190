"""``/health/live`` and ``/health/ready`` for whatever starts containers, and RabbitMQ's health checks.

Those of RabbitMQ's checks are here that have a true meaning: certificates are not, of which there are none.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from broker_plugin.http.asking import AskedNode
from broker_plugin.http.errors import HttpError, bad_request
from broker_plugin.http.login import MANAGEMENT
from broker_plugin.http.reading import name_in
from broker_plugin.http.routes.kept_rules import rules
from broker_plugin.http.routing import Api, Asking
from txobserver.rules import VHOST
from txobserver.vhosts import DEFAULT_VHOST

LIVE_SECONDS = 3.0
"""In which the loop of a node that lives has come to answer."""
CHECKS = "/api/health/checks"
PROTOCOLS = ("amqp", "amqp091")
"""What a node speaks, in RabbitMQ's words."""


def open_routes(node: AskedNode) -> list[BaseRoute]:
    """Without a login: they tell that a node lives, or is ready, and no more."""

    async def live(request: Request) -> Response:
        return _plain(await _health(node) is not None, "live")

    async def ready(request: Request) -> Response:
        health = await _health(node)
        return _plain(health is not None and bool(health["ready"]), "ready")

    return [Route("/health/live", live, methods=["GET"]), Route("/health/ready", ready, methods=["GET"])]


def routes(api: Api) -> list[BaseRoute]:
    """RabbitMQ's, with a login."""
    return [
        api.route(f"{CHECKS}/alarms", ["GET"], MANAGEMENT, cluster_alarms),
        api.route(f"{CHECKS}/local-alarms", ["GET"], MANAGEMENT, local_alarms),
        api.route(f"{CHECKS}/node-is-quorum-critical", ["GET"], MANAGEMENT, quorum_critical),
        api.route(f"{CHECKS}/port-listener/{{port}}", ["GET"], MANAGEMENT, port_listener),
        api.route(f"{CHECKS}/protocol-listener/{{protocol}}", ["GET"], MANAGEMENT, protocol_listener),
        api.route(f"{CHECKS}/virtual-hosts", ["GET"], MANAGEMENT, virtual_hosts),
    ]


async def _health(node: AskedNode) -> Any:
    try:
        return await node.ask("door.health", {}, LIVE_SECONDS)
    except HttpError:
        return None


def _plain(well: bool, what: str) -> Response:
    return JSONResponse(
        {"status": "ok" if well else "failed"} | ({} if well else {"reason": f"the node is not {what}"}),
        200 if well else 503,
    )


def _checked(failed: str | None, **more: Any) -> Response:
    """``failed``: why, None where all is well."""
    if failed is None:
        return JSONResponse({"status": "ok", **more})
    return JSONResponse({"status": "failed", "reason": failed, **more}, 503)


async def cluster_alarms(asking: Asking) -> Response:
    """Whether a node is short of memory or of disk: this one, or one that has told this one so.

    ``not_known``, which RabbitMQ does not have, names the nodes that have not, and so do not count: those that cannot
    be reached, those of an older version, and those that serve a host broker.
    """
    health = await asking.node.ask("door.health")
    told = {health["name"]: health["alarms"], **health["others_alarms"]}
    alarms = [each for node, reasons in sorted(told.items()) for each in _alarms(node, reasons or [])]
    unknown = sorted(node for node, reasons in told.items() if reasons is None)
    more = {"not_known": unknown} if unknown else {}
    if alarms:
        return _checked("There are alarms in effect in the cluster", alarms=alarms, **more)
    return _checked(None, **more)


async def local_alarms(asking: Asking) -> Response:
    """Whether this node is short of memory or of disk."""
    health = await asking.node.ask("door.health")
    if alarms := _alarms(health["name"], health["alarms"]):
        return _checked("There are alarms in effect on the node", alarms=alarms)
    return _checked(None)


def _alarms(node: str, reasons: list[str]) -> list[dict[str, str]]:
    return [{"node": node, "resource": each.removeprefix("low on ")} for each in reasons]


async def quorum_critical(asking: Asking) -> Response:
    """Whether without this node fewer would be ready than a commit needs."""
    health = await asking.node.ask("door.health")
    left = [each for each in health["ready_set"] if each != health["name"]]
    if health["name"] in health["ready_set"] and len(left) < health["min_ready"]:
        needed = health["min_ready"]
        return _checked(f"without this node {len(left)} are ready, and a commit needs {needed}", ready=left)
    return _checked(None)


async def port_listener(asking: Asking) -> Response:
    """Whether clients can connect at this port."""
    given = name_in(asking.request, "port")
    if not (given.isascii() and given.isdigit() and 1 <= int(given[:6]) <= 65535):
        raise bad_request("a port is a number from 1 to 65535")
    port, ports = int(given), (await asking.node.ask("door.health"))["amqp_ports"]
    if port in ports:
        return _checked(None, port=port)
    return _checked("No active listener", missing=port, ports=ports)


async def protocol_listener(asking: Asking) -> Response:
    """Whether clients can connect by this protocol."""
    protocol = name_in(asking.request, "protocol")
    if protocol.lower() in PROTOCOLS:
        await asking.node.ask("door.health")
        return _checked(None, protocol=protocol)
    return _checked("No active listener", missing=protocol, protocols=list(PROTOCOLS))


async def virtual_hosts(asking: Asking) -> Response:
    """Whether this node serves what is in the virtual hosts: as primary, or as a backup that is ready for it."""
    health = await asking.node.ask("door.health")
    if health["ready"]:
        return _checked(None)
    try:
        names = [rule["name"] for rule in await rules(asking, VHOST)]
    except HttpError:  # the cluster keeps no users yet, and so one virtual host
        names = [DEFAULT_VHOST]
    return _checked("Some virtual hosts are down", **{"virtual-hosts": names})
