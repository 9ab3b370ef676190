"""What the active primary says of the handover by which it became it, if the former one has told of it."""

from __future__ import annotations

from typing import Any

from ha.core import NodeCore
from ha.membership.node_state import ACTIVE


def handover(core: NodeCore) -> dict[str, Any] | None:
    """Who handed over, how many clients it closed, for how many of them an outcome may be unknown, and two times.

    Seconds: ``drained``, from when nothing more was begun until clients were closed; ``pause``, all in all until this
    node served. None unless this node is active, and was handed the role by the primary before it.
    """
    found = core.handed_over
    if found is None or found.active_at is None or core.state != ACTIVE:
        return None
    if found.clients.generation + 1 != core.generation:
        return None
    closed = found.clients
    return {
        "from": found.former,
        "clients": closed.clients,
        "undecided": closed.undecided,
        "drained": round(closed.drained, 6),
        "pause": round(closed.drained + found.active_at - found.heard_at, 6),
    }
