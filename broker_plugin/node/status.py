"""What a node says of itself to its administration."""

from __future__ import annotations

from typing import Any

from broker_plugin.compiled import running
from broker_plugin.embedded.unsupported import unsupported_of_queue
from broker_plugin.node.calls.shown import own_standing
from broker_plugin.node.handed_over import handover
from broker_plugin.node.member_admin import members_shown
from broker_plugin.node.readiness import Readiness
from ha.core import NodeCore
from ha.membership.node_state import ACTIVE
from txobserver.ids import Member, id_text
from txobserver.release import VERSION
from txobserver.tx_buffer import TxBuffer
from txobserver.vhosts import shown_name


def status(core: NodeCore, member: Member, readiness: Readiness, complaint: str = "") -> dict[str, Any]:
    """Everything that ``txha status`` shows of one node. ``complaint``: of its coordination store."""
    name = member.node
    replica, record = core.replica, core.record
    ready = [member.node for member in record.ready] if record else []
    primary = record.primary.node if record and record.primary else None
    buffers = list(replica.buffers.values())
    contents = replica.contents
    outcomes = contents.table.outcomes.meta
    return {
        "name": name,
        "state": core.state,
        "version": VERSION,
        "core": running(),
        "generation": core.generation,
        "ready": core.state in ("active", "ready") and name in ready,
        "ready_set": ready,
        "former_store_ready": name in ready and member not in record.ready if record else False,
        "primary": primary,
        "min_ready": readiness.min_ready,
        "members": [each["name"] for each in members_shown(core)["members"]],
        "shortage": readiness.shortage(len(ready)) if core.state == ACTIVE else None,
        "cluster_id": record.cluster_id if record else None,
        "record_version": record.version if record else 0,
        "loss_accepted": record.loss_accepted if record else 0,
        "loss_unknown": record.loss_unknown if record else 0,
        "handover": handover(core),
        "waits_for_operator": core.waits_for_operator,
        "record_error": complaint or None,
        "position": str(replica.tail),
        "commit": core.feed.commit,
        "applied": replica.applied.sequence,
        "config_id": contents.configuration.last_id,
        "open_transactions": sum(buffer.prepared is None for buffer in buffers),
        "prepared_transactions": sum(buffer.prepared is not None for buffer in buffers),
        "calls": own_standing(core),
        "branches_in_doubt": len(contents.table.prepared),
        "outcomes": {"remembered": outcomes.count, "digest": f"{outcomes.digest:016x}"},
        "backups": _backups(core),
        "unsupported": {
            shown_name(spec.name): unmet
            for spec in contents.configuration.queues.values()
            if (unmet := unsupported_of_queue(spec.arguments))
        },
        "left": dict(core.leading.backups.attachments.left) if core.leading else {},
        "queues": {
            shown_name(spec.name): {
                "messages": contents.queues.summary(spec.number).count,
                "digest": f"{contents.queues.summary(spec.number).digest:016x}",
            }
            for spec in contents.configuration.queues.values()
        },
    }


def queue_names(core: NodeCore) -> dict[int, str]:
    """The durable queues by their numbers."""
    return {spec.number: shown_name(spec.name) for spec in core.replica.contents.configuration.queues.values()}


def _backups(core: NodeCore) -> dict[str, Any]:
    """How far each attached backup lags, in events and in bytes that are sent and not acknowledged."""
    leading = core.leading
    if leading is None:
        return {}
    tail = core.replica.tail.sequence
    return {
        node: {
            "state": "ready" if leading.keeper.is_ready(session.member) else "catchup",
            "lag_events": tail - session.acknowledged,
            "lag_bytes": session.lag_bytes,
            "trackers": len(session.trackers),
        }
        for node, session in leading.backups.sessions.items()
    }


def transactions(core: NodeCore) -> list[dict[str, Any]]:
    """Every transaction that has not ended, the oldest first."""
    names = queue_names(core)
    return [_transaction(buffer, names) for buffer in sorted(core.replica.buffers.values(), key=lambda b: b.opened)]


def _transaction(buffer: TxBuffer, names: dict[int, str]) -> dict[str, Any]:
    return {
        "id": id_text(buffer.tx),
        "state": buffer.state,
        "events": len(buffer.events),
        "queues": sorted(names.get(queue, str(queue)) for queue in buffer.queues()),
        "opened": buffer.opened,
        "participants": buffer.participants,
    }
