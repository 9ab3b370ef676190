"""What the nodes have stored: their logs, event by event, against each other and against what clients were told.

P7: two logs that hold an event of the same sequence hold the same event there, up to where both are known to be
decided; and nodes that have applied the same event have the same digests of their queues. P6: no log holds a decision
other than another one's, and none holds a decision that a client was told otherwise. Which transaction of the log is
which of a client is read off the messages: a message begins with its id.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from python_tests.harness.failover import Clients
from python_tests.harness.history import FAILED, OK, ROLLED_BACK, UNKNOWN, History
from python_tests.harness.load import message_of
from python_tests.harness.stress.cluster import StressCluster
from python_tests.harness.stress.results import Result
from python_tests.harness.waiting import wait_until
from recovery.reader.log_reader import LogReader
from recovery.reader.log_reading import LogCut
from recovery.store.log import LogReclaimed
from txobserver.events import DtxDecision, Event, TxDecision, TxEnqueue
from txobserver.ports.store import StoreDamaged

QUIET_SECONDS = 30.0
ENOUGH = 20
"""So many disagreements are told; the rest says nothing new"""
READINGS = 5
"""So often a log is read that its node cuts or reclaims meanwhile: each time from the beginning"""


@dataclass
class NodeLog:
    """What one node's log holds from some sequence on."""

    name: str
    marks: dict[int, int] = field(default_factory=dict)
    """Sequence -> checksum of the event and its generation"""
    decisions: dict[int, bool] = field(default_factory=dict)
    """Transaction -> whether it was committed"""
    attempts: dict[int, str] = field(default_factory=dict)
    """Transaction -> the client's name for it"""

    def read(self, directory: Path, first: int) -> None:
        """Every event from ``first`` on, or from where the log begins if that is later. Its node may run.

        Raises StoreDamaged; LogCut or LogReclaimed if its node cut or reclaimed it during each of so many readings.
        """
        for reading in range(1, READINGS + 1):
            try:
                self._read_once(directory, first)
                return
            except (LogCut, LogReclaimed):
                if reading == READINGS:
                    raise
                for found in (self.marks, self.decisions, self.attempts):
                    found.clear()  # some of it may be of what is gone

    def _read_once(self, directory: Path, first: int) -> None:
        encode = msgspec.msgpack.Encoder().encode
        for generation, sequence, event in _events(LogReader(directory), first):
            self.marks[sequence] = zlib.crc32(encode(event), generation)
            if isinstance(event, TxDecision | DtxDecision):
                self.decisions[event.tx] = event.commit
            elif isinstance(event, TxEnqueue) and event.tx not in self.attempts:
                self.attempts[event.tx] = message_of(event.message.body).rpartition("/")[0]


def _events(reader: LogReader, first: int) -> Iterator[tuple[int, int, Event]]:
    begins = min((segment.first for segment in reader.segments()), default=first)
    for position, event in reader.events(max(first, begins)):
        yield position.generation, position.sequence, event


class ClusterStores:
    """The stores of a cluster of ours that runs."""

    def __init__(self, cluster: StressCluster) -> None:
        self._cluster = cluster
        self._next = 1

    def compare(self, clients: Clients, result: Result) -> None:
        """Everything stored since the last time; what disagrees goes into ``result``. The queues are drained."""
        try:
            wait_until(self._in_step, QUIET_SECONDS, "the nodes' being in step after the drain", every=0.2)
        except TimeoutError as error:
            result.stalled.append(str(error))
        result.disagreements += different_digests(self._cluster.status())
        logs = []
        for name in self._cluster.names:
            logs.append(NodeLog(name))
            try:
                logs[-1].read(self._cluster.directory / name, self._next)
            except (StoreDamaged, LogCut, LogReclaimed) as error:
                result.disagreements.append(f"the log of {name} cannot be read: {error}")
        result.disagreements += [*different_logs(logs), *told_otherwise(logs, clients.history)]
        shared = [sequence for sequence in logs[0].marks if all(sequence in log.marks for log in logs)]
        for what, number in (
            ("events in the log of each node", len(shared)),
            ("decisions", len({tx for log in logs for tx in log.decisions})),
        ):
            result.stores[what] = result.stores.get(what, 0) + number
        self._next = max((max(log.marks, default=0) for log in logs), default=0) + 1

    def _in_step(self) -> bool:
        found = self._cluster.status()
        return len({node.get("applied") for node in found}) == 1 and all(node["state"] != "down" for node in found)


def different_digests(nodes: list[dict[str, Any]]) -> list[str]:
    """P7: nodes that have applied the same event, and show different queues or remember different outcomes."""
    found = []
    for place, node in enumerate(nodes):
        for other in nodes[place + 1 :]:
            if "applied" not in node or node["applied"] != other.get("applied"):
                continue
            found += [
                f"disagreement: {node['name']} and {other['name']} have both applied {node['applied']}, "
                f"and their {what} differ"
                for what in ("queues", "outcomes")
                if node[what] != other[what]
            ]
    return found


def different_logs(logs: list[NodeLog]) -> list[str]:
    """P6, P7: events and decisions that two logs hold differently. The logs are at rest."""
    found: list[str] = []
    for place, log in enumerate(logs):
        for other in logs[place + 1 :]:
            differ = [seq for seq, mark in log.marks.items() if other.marks.get(seq, mark) != mark]
            if differ:
                found.append(
                    f"disagreement: the logs of {log.name} and {other.name} hold different events at {len(differ)} "
                    f"positions, first at {min(differ)}"
                )
            for tx, commit in log.decisions.items():
                if other.decisions.get(tx, commit) != commit:
                    found.append(f"two decisions: {log.name} and {other.name} differ on transaction {tx:#x}")
    return found[:ENOUGH]


def told_otherwise(logs: list[NodeLog], history: History) -> list[str]:
    """P6: decisions that are not what the client was told, or what was seen of them."""
    outcomes = {attempt.id: attempt for attempt in history.attempts if not attempt.plain and attempt.messages}
    seen = {sighting.id for sighting in history.sightings}
    found: list[str] = []
    for log in logs:
        for tx, name in log.attempts.items():
            attempt = outcomes.get(name)
            if attempt is None or tx not in log.decisions:
                continue
            commit = log.decisions[tx]
            was_seen = any(message in seen for message in attempt.messages)
            if (attempt.outcome == OK and not commit) or (attempt.outcome in (FAILED, ROLLED_BACK) and commit):
                found.append(f"two decisions: {name} was answered {attempt.outcome}; {log.name} has commit={commit}")
            elif attempt.outcome == UNKNOWN and was_seen != commit:
                found.append(f"two decisions: {name} is unknown, seen: {was_seen}; {log.name} has commit={commit}")
    return found[:ENOUGH]
