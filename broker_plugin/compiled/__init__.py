"""The hot path of a node as machine code: which modules that is, and whether a process runs it.

Without ``use``, without a build, or with one of other sources, the plain modules run (``recovery.compiled``).
"""

from __future__ import annotations

from recovery import compiled
from recovery.compiled import SWITCH as SWITCH

MODULES = (
    *(f"txobserver.{name}" for name in ("contents", "digest", "observer", "places", "reading", "shown", "tx_buffer")),
    *(f"ha.{name}" for name in ("applied", "backlog", "backup", "backups", "candidate", "checkpointing", "history")),
    *(f"ha.{name}" for name in ("node_core", "pace", "primary", "queue_guard", "queue_replicator", "readings")),
    *(f"ha.{name}" for name in ("additions", "ends", "recent_frames", "record_gate", "sizes", "snapshot_end")),
    *(f"ha.{name}" for name in ("record_keeper", "replica", "replicating_subscription", "resync", "session")),
    *(f"ha.{name}" for name in ("record_access", "transactions", "tx_tracker", "watch")),
    *(f"broker_plugin.embedded.{name}" for name in ("broker", "channel", "confirms", "consumer", "durable_queue")),
    *(f"broker_plugin.embedded.{name}" for name in ("local_queue", "queue", "session", "transaction", "turn")),
    *(f"broker_plugin.embedded.{name}" for name in ("branch", "unit_of_work")),
    *(f"broker_plugin.amqp.{name}" for name in ("channel", "codec", "connection")),
)
"""What a message passes on its way, and whatever those classes inherit from."""

APART = ("recovery.pipeline.rows.walker",)
"""What is built as well, and used without the others."""


def available() -> bool:
    """Whether a node that is started now would run compiled."""
    return compiled.available(MODULES)


def use() -> None:
    """Let this process run the compiled modules, if they are there. RuntimeError if it has loaded a plain one."""
    compiled.use(MODULES)


def running() -> str:
    """What this process runs: ``compiled`` or ``pure``."""
    return "compiled" if compiled.in_use(MODULES) else "pure"
