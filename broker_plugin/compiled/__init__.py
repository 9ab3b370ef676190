"""The hot path of a node as machine code: which modules that is, and whether a process runs it.

Without ``use``, without a build, or with one of other sources, the plain modules run (``recovery.compiled``).
"""

from __future__ import annotations

from recovery import compiled
from recovery.compiled import SWITCH as SWITCH

MODULES = (
    *(f"txobserver.{name}" for name in ("digest", "ends", "leftovers", "message_size", "observer")),
    *(f"txobserver.{name}" for name in ("tx_buffer", "work_limits")),
    *(f"txobserver.state.{name}" for name in ("applied_content", "contents", "layers", "messages")),
    *(f"txobserver.state.{name}" for name in ("offsets", "page_reading", "queues", "shown")),
    *(f"ha.{name}" for name in ("core", "node", "outside", "role", "roles", "watch")),
    *(f"ha.apply.{name}" for name in ("applied", "applier", "buffers", "checkpointing", "record_gate", "replica")),
    *(f"ha.backup.{name}" for name in ("backup", "progress_reports")),
    *(f"ha.catchup.{name}" for name in ("backpressure", "catch_up_rate", "history", "join_guard", "live_changes")),
    *(f"ha.catchup.{name}" for name in ("queue_replicator", "replicating_subscription", "resync", "snapshot_end")),
    *(f"ha.catchup.{name}" for name in ("throttle", "under_way")),
    *(f"ha.feed.{name}" for name in ("feed", "recent_frames")),
    *(f"ha.membership.{name}" for name in ("candidate", "poll", "record_access", "record_keeper", "record_watch")),
    "ha.messages.sizes",
    *(f"ha.primary.{name}" for name in ("additions", "attachments", "backlog", "backup_session", "backups")),
    *(f"ha.primary.{name}" for name in ("client_ledger", "commit_point", "fanout", "joins", "silence")),
    *(f"ha.primary.{name}" for name in ("primary", "readings", "stream_decisions", "stream_times", "teller")),
    *(f"ha.primary.{name}" for name in ("transactions", "tx_tracker", "writer")),
    *(f"broker_plugin.embedded.{name}" for name in ("broker", "field_table", "memory_budget", "serving")),
    "broker_plugin.embedded.operations.requester",
    *(f"broker_plugin.embedded.channels.{name}" for name in ("channel", "client", "confirms", "mode", "session")),
    *(f"broker_plugin.embedded.queues.{name}" for name in ("consumer", "draining", "durable_queue")),
    *(f"broker_plugin.embedded.queues.{name}" for name in ("given_back", "local_queue", "owner", "pieces", "queue")),
    *(f"broker_plugin.embedded.queues.{name}" for name in ("subscriber", "supply", "turn", "unacked", "windows")),
    *(f"broker_plugin.embedded.transactions.{name}" for name in ("branch", "transaction", "unit_of_work")),
    "broker_plugin.embedded.transactions.work_pieces",
    *(f"broker_plugin.amqp.protocol.{name}" for name in ("answering", "channel", "client_connection", "codec")),
    *(f"broker_plugin.amqp.protocol.{name}" for name in ("connection", "content", "intake")),
    *(f"broker_plugin.amqp.protocol.{name}" for name in ("logging_in", "open_channels")),
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
