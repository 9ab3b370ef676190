"""Metrics in Prometheus' text, of what a node says of itself. The names are listed here, and in docs/metrics.md.

Those that begin with ``rabbitmq_`` are rabbitmq_prometheus' own, with its labels, where they mean the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

PROTOCOL = "amqp091"


class Named(NamedTuple):
    """A metric. ``key``: what the node calls it. A counter's name ends in ``_total`` where it is exported."""

    name: str
    kind: Literal["gauge", "counter"]
    key: str
    help: str

    @property
    def exported(self) -> str:
        """The name as it is exported."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


OF_NODE = (
    Named("rabbitmq_connections", "gauge", "connections", "Connections currently open"),
    Named("rabbitmq_disk_space_available_bytes", "gauge", "disk_free", "Disk space available in bytes"),
    Named("rabbitmq_disk_space_available_limit_bytes", "gauge", "disk_least", "Below it publishers are blocked"),
    Named("rabbitmq_alarms_memory_used_watermark", "gauge", "memory_alarm", "is 1 if the memory alarm is on"),
    Named("rabbitmq_alarms_free_disk_space_watermark", "gauge", "disk_alarm", "is 1 if the disk alarm is on"),
    Named("txha_active", "gauge", "active", "1 while this node is the active primary"),
    Named("txha_ready", "gauge", "ready", "1 while this node is the active primary or a ready backup"),
    Named("txha_generation", "gauge", "generation", "Generation of the primary that this node knows"),
    Named("txha_take_overs", "counter", "take_overs", "How often this node has become primary"),
    Named("txha_commit_point", "gauge", "commit_point", "Sequence up to which the stream counts"),
    Named("txha_applied", "gauge", "applied", "Sequence up to which this node has applied the stream"),
    Named("txha_tail", "gauge", "tail", "Sequence of the last event that this node has"),
    Named("txha_ready_nodes", "gauge", "ready_nodes", "Nodes in the ready set, as this node knows it"),
    Named("txha_min_ready", "gauge", "min_ready", "Nodes that must be ready for anything new to be committed"),
    Named("txha_nodes", "gauge", "nodes", "Nodes that the cluster has by this node's configuration"),
    Named("txha_waits_for_operator", "gauge", "waits_for_operator", "1 while this node stays out until one decides"),
    Named("txha_lease_margin_seconds", "gauge", "lease_margin", "Of a primary: for how long its lease still holds"),
    Named("txha_loop_turns", "counter", "turns", "Turns of the node's event loop in which its core was settled"),
    Named("txha_loop_long_turns", "counter", "long_turns", "Turns of more than 50 ms of processor time"),
    Named("txha_loop_longest_turn_seconds", "gauge", "longest_turn", "The longest turn since the node started"),
    Named("txha_syncs", "counter", "syncs", "Groups of the log that were written and synced"),
    Named("txha_synced_bytes", "counter", "synced_bytes", "Bytes of frames in them"),
    Named("txha_writer_queue_frames", "gauge", "writer_queue", "Frames that wait for the log's writer"),
    Named("txha_calls_behind", "gauge", "calls_behind", "Cluster calls that this node has not run yet"),
    Named(
        "txha_call_fails",
        "gauge",
        "call_fails",
        "1 while a cluster call fails at this node, cannot be undone, or has set what is not so here",
    ),
    Named(
        "txha_certificate_expires_seconds",
        "gauge",
        "certificate_expires",
        "Until the certificate in force at this node expires; less than 0 when it has",
    ),
    Named("txha_transactions_open", "gauge", "transactions_open", "Transactions and branches that are not prepared"),
    Named("txha_transactions_prepared", "gauge", "transactions_prepared", "Those that are, and have not ended"),
    Named("txha_branches_in_doubt", "gauge", "branches_in_doubt", "Branches that are prepared and not decided"),
    Named("txha_branch_oldest_in_doubt_seconds", "gauge", "oldest_in_doubt", "Age of the oldest of them; 0 for none"),
    Named("txha_queues_declared", "gauge", "queues_declared", "Durable queues, at any node"),
    Named("txha_memory_held_bytes", "gauge", "memory_held", "Memory that clients make this node hold"),
    Named("txha_memory_high_bytes", "gauge", "memory_high", "Above it publishers are blocked"),
)
"""From ``values`` of ``metrics.node``."""

_GLOBAL = "rabbitmq_global_messages_"
COUNTED = (
    Named(f"{_GLOBAL}received", "counter", "received", "Messages received from publishers"),
    Named(f"{_GLOBAL}received_confirm", "counter", "received_confirm", "Those of publishers that expect confirms"),
    Named(f"{_GLOBAL}confirmed", "counter", "confirmed", "Messages confirmed to publishers"),
    Named(f"{_GLOBAL}routed", "counter", "routed", "Messages routed to queues"),
    Named(f"{_GLOBAL}unroutable_returned", "counter", "unroutable_returned", "Mandatory messages returned"),
    Named(f"{_GLOBAL}unroutable_dropped", "counter", "unroutable_dropped", "Messages dropped as unroutable"),
    Named(f"{_GLOBAL}delivered", "counter", "delivered", "Messages delivered to consumers"),
    Named(f"{_GLOBAL}delivered_consume_manual_ack", "counter", "delivered_consume_manual", "By basic.consume"),
    Named(f"{_GLOBAL}delivered_consume_auto_ack", "counter", "delivered_consume_auto", "The same, without acks"),
    Named(f"{_GLOBAL}delivered_get_manual_ack", "counter", "delivered_get_manual", "Messages fetched by basic.get"),
    Named(f"{_GLOBAL}delivered_get_auto_ack", "counter", "delivered_get_auto", "The same, without acks"),
    Named(f"{_GLOBAL}get_empty", "counter", "get_empty", "basic.get operations that fetched no message"),
    Named(f"{_GLOBAL}redelivered", "counter", "redelivered", "Messages redelivered to consumers"),
    Named(f"{_GLOBAL}acknowledged", "counter", "acknowledged", "Messages acknowledged by consumers"),
)
"""From ``counted``, with the label ``protocol``."""
OPENED = (
    Named("rabbitmq_connections_opened", "counter", "connections_opened", "Connections opened"),
    Named("rabbitmq_connections_closed", "counter", "connections_closed", "Connections closed or terminated"),
    Named("rabbitmq_channels", "gauge", "channels", "Channels currently open"),
    Named("rabbitmq_channels_opened", "counter", "channels_opened", "Channels opened"),
    Named("rabbitmq_channels_closed", "counter", "channels_closed", "Channels closed"),
    Named("txha_transactions_committed", "counter", "transactions_committed", "tx.commit that succeeded"),
    Named("txha_transactions_failed", "counter", "transactions_failed", "tx.commit that rolled back"),
    Named("txha_transactions_rolled_back", "counter", "transactions_rolled_back", "tx.rollback"),
)
"""From ``counted``."""
OF_BACKUPS = (
    Named("txha_backup_ready", "gauge", "ready", "1 while this backup is in the ready set, at the primary"),
    Named("txha_backup_lag_events", "gauge", "lag_events", "Events that this backup has not acknowledged"),
    Named("txha_backup_lag_bytes", "gauge", "lag_bytes", "Bytes that were sent to it and not acknowledged"),
    Named("txha_backup_lag_seconds", "gauge", "lag_seconds", "For how long there has been what it lacks"),
    Named("txha_backup_trackers", "gauge", "trackers", "Transactions whose end a joiner must see before it is ready"),
)
"""From ``backups``, with the label ``backup``."""
OF_PROCESS = (
    Named("rabbitmq_process_resident_memory_bytes", "gauge", "resident", "Memory used in bytes"),
    Named("rabbitmq_process_open_fds", "gauge", "open_fds", "Open file descriptors"),
    Named("rabbitmq_process_max_fds", "gauge", "max_fds", "Open file descriptors limit"),
)
"""Of the node's process, from /proc."""
TOTALS = (
    Named("rabbitmq_queues", "gauge", "queues", "Queues available, at the primary"),
    Named("rabbitmq_consumers", "gauge", "consumers", "Consumers currently connected"),
    Named("rabbitmq_queue_messages_ready", "gauge", "ready", "Messages ready to be delivered to consumers"),
    Named("rabbitmq_queue_messages_unacked", "gauge", "unacknowledged", "Delivered and not acknowledged yet"),
    Named("rabbitmq_queue_messages", "gauge", "messages", "Sum of ready and unacknowledged messages"),
)
"""From ``metrics.totals``: at the active primary."""
OF_QUEUES = (
    Named("rabbitmq_queue_messages_ready", "gauge", "ready", "Messages ready to be delivered to consumers"),
    Named("rabbitmq_queue_messages_unacked", "gauge", "unacknowledged", "Delivered and not acknowledged yet"),
    Named("rabbitmq_queue_messages", "gauge", "messages", "Sum of ready and unacknowledged messages"),
    Named("rabbitmq_queue_consumers", "gauge", "consumers", "Consumers on a queue"),
)
"""From ``metrics.queues``, with the labels ``vhost`` and ``queue``."""
INFO = Named("rabbitmq_identity_info", "gauge", "identity", "Which node of which cluster this is")
BUILD = Named("txha_build_info", "gauge", "build", "1, with the core that runs: compiled or pure")
ALL = (*OF_NODE, *COUNTED, *OPENED, *OF_BACKUPS, *OF_PROCESS, *TOTALS, INFO, BUILD)
"""What ``/metrics`` may hold."""
DELIVERED = ("delivered_consume_manual", "delivered_consume_auto", "delivered_get_manual", "delivered_get_auto")
Row = tuple[str, int, int, int, str]
"""Of a queue: name, ready, unacknowledged, consumers."""


class _Once(Collector):
    """Gives what it was made of."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """All of it, one after the other."""
        return self._families


def text_of(families: Iterable[Metric]) -> bytes:
    """In Prometheus' text. To be called in a thread where there are many."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once(families))
    return generate_latest(registry)


def node_families(said: dict[str, Any], totals: dict[str, int], process: dict[str, float]) -> Iterator[Metric]:
    """Of a node, which has answered ``metrics.node`` and ``metrics.totals``."""
    counted = dict(said["counted"])
    if counted:
        counted["delivered"] = sum(counted[key] for key in DELIVERED)
        counted["channels"] = counted["channels_opened"] - counted["channels_closed"]
    identity = {
        "rabbitmq_node": said["node"],
        "rabbitmq_cluster": said["cluster"],
        "rabbitmq_cluster_permanent_id": said["cluster_id"],
    }
    yield _family(INFO, [(identity, 1.0)])
    yield _family(BUILD, [({"core": said["core"]}, 1.0)])
    yield from _plain(OF_NODE, said["values"], {})
    yield from _plain(COUNTED, counted, {"protocol": PROTOCOL})
    yield from _plain(OPENED, counted, {})
    yield from _plain(OF_PROCESS, process, {})
    for named in OF_BACKUPS:
        rows = [({"backup": backup}, float(of[named.key])) for backup, of in sorted(said["backups"].items())]
        if rows:
            yield _family(named, rows)
    if said["values"]["active"]:
        summed = {**totals, "messages": totals["ready"] + totals["unacknowledged"]}
        yield from _plain(TOTALS, summed, {})


def queue_families(rows: list[Row]) -> Iterator[Metric]:
    """Of queues, one metric after the other, so that the samples of only one are in memory."""
    for named in OF_QUEUES:
        yield _family(named, [({"vhost": row[4], "queue": row[0]}, float(_of_row(named.key, row))) for row in rows])


def _of_row(key: str, row: Row) -> int:
    _, ready, unacknowledged, consumers, _ = row
    if key == "messages":
        return ready + unacknowledged
    return {"ready": ready, "unacknowledged": unacknowledged, "consumers": consumers}[key]


def _plain(names: Iterable[Named], values: dict[str, Any], labels: dict[str, str]) -> Iterator[Metric]:
    """One sample each; of what is not known, none."""
    for named in names:
        value = values.get(named.key)
        if value is not None:
            yield _family(named, [(labels, float(value))])


def _family(named: Named, rows: list[tuple[dict[str, str], float]]) -> Metric:
    make = CounterMetricFamily if named.kind == "counter" else GaugeMetricFamily
    names = list(rows[0][0]) if rows else []
    family = make(named.name, named.help, labels=names)
    for labels, value in rows:
        family.add_metric(list(labels.values()), value)
    return family


def process_values(pid: int, root: Path = Path("/proc")) -> dict[str, float]:
    """Of the node's process; nothing of what cannot be read."""
    of = root / str(pid)
    found: dict[str, float] = {}
    try:
        status = dict(line.split(":", 1) for line in (of / "status").read_text().splitlines() if ":" in line)
        found["resident"] = 1024.0 * int(status["VmRSS"].split()[0])
        found["open_fds"] = float(sum(1 for _ in (of / "fd").iterdir()))
        limits = [
            line.split() for line in (of / "limits").read_text().splitlines() if line.startswith("Max open files")
        ]
        found["max_fds"] = float(limits[0][3])
    except (OSError, ValueError, KeyError, IndexError):
        return found
    return found
