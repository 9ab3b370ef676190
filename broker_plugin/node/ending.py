"""How the process of a node ends when threads of it still wait for a disk."""

from __future__ import annotations

import logging
import os
import threading

from broker_plugin.logs.events import NodeFailed
from broker_plugin.logs.formats import tell
from recovery.store.store import CLOSE_SECONDS

log = logging.getLogger("txha.node")


def ended(failure: str | None, hung: str | None) -> int:
    """Say what the node has failed with; its exit status. Where its disk hangs, this is the end."""
    if failure:
        tell(log, logging.ERROR, NodeFailed(failure))
    if hung:
        end_at_once(hung)
    return 1 if failure else 0


def end_in_time() -> None:
    """Let this process end by itself, or at once when threads of it still wait for a disk after CLOSE_SECONDS."""
    reason = f"a thread of this node has waited for its disk for {CLOSE_SECONDS:g} s, so the node ends without it"
    timer = threading.Timer(CLOSE_SECONDS, end_at_once, [f"{reason}; look at the disk before you start it again"])
    timer.daemon = True
    timer.start()


def end_at_once(reason: str) -> None:
    """End this process with status 1, also while threads of it wait for a disk: its usual end would wait for them.

    Nothing that was acknowledged needs what they write, or it would not have been acknowledged.
    """
    tell(log, logging.ERROR, NodeFailed(reason))
    logging.shutdown()
    os._exit(1)
