"""``/metrics`` and ``/metrics/per-object``, behind a login or at a port of their own."""

from __future__ import annotations

import asyncio

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from broker_plugin.http.asking import AskedNode
from broker_plugin.http.login import MONITORING
from broker_plugin.http.metrics import Row, node_families, process_values, queue_families, text_of
from broker_plugin.http.routing import Api, Asking

PATHS = ("/metrics", "/metrics/per-object")


class Scrapes:
    """One is rendered at a time: those of many queues take memory, and a second of a processor."""

    def __init__(self, node: AskedNode) -> None:
        self._node = node
        self._one = asyncio.Lock()

    async def node(self) -> Response:
        """Of the node, and of all queues together."""
        async with self._one:
            said = await self._node.ask("metrics.node")
            totals = await self._node.ask("metrics.totals")
            process = await asyncio.to_thread(process_values, said["pid"])
            return _answer(text_of(node_families(said, totals, process)))

    async def queues(self) -> Response:
        """Of each queue; at the active primary."""
        async with self._one:
            rows: list[Row] = []
            walk, at = 0, 0
            while at is not None:
                page = await self._node.ask("metrics.queues", {"walk": walk, "at": at})
                rows += [(name, ready, out, consumers, vhost) for name, ready, out, consumers, vhost in page["rows"]]
                walk, at = page["walk"], page["next"]
            return _answer(await asyncio.to_thread(lambda: text_of(queue_families(rows))))


def routes(api: Api) -> list[BaseRoute]:
    """With a login."""
    scrapes = Scrapes(api.node)

    async def node(asking: Asking) -> Response:
        return await scrapes.node()

    async def queues(asking: Asking) -> Response:
        return await scrapes.queues()

    return [api.route(path, ["GET"], MONITORING, call) for path, call in zip(PATHS, (node, queues), strict=True)]


def open_routes(of: AskedNode) -> list[BaseRoute]:
    """Without one."""
    scrapes = Scrapes(of)

    async def node(request: Request) -> Response:
        return await scrapes.node()

    async def queues(request: Request) -> Response:
        return await scrapes.queues()

    return [Route(path, call, methods=["GET"]) for path, call in zip(PATHS, (node, queues), strict=True)]


def _answer(text: bytes) -> Response:
    return Response(text, media_type=CONTENT_TYPE_PLAIN_0_0_4)
