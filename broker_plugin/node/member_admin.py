"""What an operator asks of the cluster's members, at any node (``txha member``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from broker_plugin.admin.server import CommandRefused, Handler
from ha.core import NodeCore
from ha.membership.belonging import membership_of, needed
from ha.membership.members import KINDS, REMOVE, ClusterNode, MemberChange, wrong_in

LOOK = "txha member list"


class MemberAdmin:
    """``report``: how the core is told of something; it settles then. ``complaint``: of the coordination store."""

    def __init__(
        self, core: NodeCore, report: Callable[[Callable[[], None]], None], complaint: Callable[[], str]
    ) -> None:
        self._core = core
        self._report = report
        self._complaint = complaint

    @property
    def handlers(self) -> dict[str, Handler]:
        """By the names of the commands."""
        return {"members.list": self._list, "members.change": self._change}

    async def _list(self, arguments: dict[str, Any]) -> Any:
        return {**members_shown(self._core), "record_error": self._complaint() or None}

    async def _change(self, arguments: dict[str, Any]) -> Any:
        change = _change_in(arguments)
        told: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

        def tell(error: str | None) -> None:
            if not told.done():
                told.set_result(error)

        self._report(lambda: self._core.change_members(change, tell))
        if (error := await told) is not None:
            raise CommandRefused(error)
        return {"kind": change.kind, "name": change.name, **({} if change.kind == REMOVE else _at(change))}


def others_of(core: NodeCore) -> list[str]:
    """The other members, by name: by the record, or by this node's own file where the record does not say."""
    return [each.name for each in _nodes_of(core) if each.name != core.member.node]


def _nodes_of(core: NodeCore) -> Sequence[ClusterNode]:
    membership = membership_of(core.record)
    return core.founding if membership is None else membership.nodes


def members_shown(core: NodeCore) -> dict[str, Any]:
    """Who is a member, as this node knows it: by the record, or by its own file where the record does not say.

    ``change``: the number of the last change of the members, 0 where there was none. ``reached``: from this node.
    """
    record, membership = core.record, membership_of(core.record)
    ready = dict(record.ready) if record is not None else {}
    primary = record.primary.node if record is not None and record.primary is not None else None

    def row(node: ClusterNode) -> dict[str, Any]:
        counts = membership is None or node.counts
        reached = node.name in core.linked or node.name == core.member.node
        return {"name": node.name, **_at(node), "reached": reached, "ready": node.name in ready, "counts": counts}

    return {
        "in_record": membership is not None,
        "change": 0 if membership is None else membership.number,
        "members": [row(each) | {"primary": each.name == primary} for each in _nodes_of(core)],
        "min_ready": needed(record, core.settings) if record is not None else core.settings.min_ready,
        "removed_stores": [] if membership is None else [str(each) for each in membership.removed],
    }


def _at(node: ClusterNode | MemberChange) -> dict[str, Any]:
    return {"host": node.host, "port": node.port}


def _change_in(arguments: dict[str, Any]) -> MemberChange:
    """Raises CommandRefused."""
    kind, name = arguments.get("kind"), arguments.get("name")
    host, port = arguments.get("host", ""), arguments.get("port", 0)
    if not isinstance(kind, str) or not isinstance(name, str) or not isinstance(host, str) or type(port) is not int:
        raise CommandRefused(f"a change of the members is {', '.join(KINDS)}, a name, and a host and port")
    change = MemberChange(kind, name, host, port)
    if (wrong := wrong_in(change)) is not None:
        raise CommandRefused(wrong)
    return change
