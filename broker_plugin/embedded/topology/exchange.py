"""One exchange: what was declared, and its bindings indexed for its type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker_plugin.embedded.topology.routers import ROUTERS, Router
from txobserver.vhosts import DEFAULT_VHOST, beside, full_name

KINDS = tuple(ROUTERS)

TOPIC = "topic"
PREDECLARED = {
    "amq.direct": "direct",
    "amq.fanout": "fanout",
    "amq.topic": TOPIC,
    "amq.headers": "headers",
    "amq.match": "headers",
    "amq.rabbitmq.trace": TOPIC,
}
"""Exchanges that are always there, beside the default exchange ""."""


class Exchange:
    """``name``: the full one. ``durable``: the stream knows it; ``local_bindings``: how many it does not know."""

    def __init__(
        self,
        name: str,
        kind: str,
        durable: bool = True,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.kind = kind
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments = dict(arguments or {})
        self.local_bindings = 0
        self.router: Router = ROUTERS[kind]()
        alternate = self.arguments.get("alternate-exchange")
        self.alternate: str | None = beside(name, alternate) if isinstance(alternate, str) else None


def predeclared(vhost: str = DEFAULT_VHOST) -> dict[str, Exchange]:
    """The exchanges that are there in a virtual host before any client declares one."""
    kinds = {"": "direct", **PREDECLARED}
    made = (Exchange(full_name(vhost, each), kinds[each], internal=each.endswith(".trace")) for each in kinds)
    return {exchange.name: exchange for exchange in made}
