"""RecordGate: which coordination records a node may go by (PROTOCOL, "Who is primary").

A copy of the record that takes its place loses data: it lists members that have been removed since. So a record of
another cluster, of a lower generation than this node's store has seen, or of a lower version than this process has
seen, is refused, in one sentence, and the node waits for an operator (``older_record_restored``,
``empty_node_founds_anew``). An older copy of the same generation cannot be told once all nodes were down: that is why
copies are never restored.
"""

from __future__ import annotations

from collections.abc import Callable

from ha.apply.replica import Replica
from ha.effects import Effect, LogLine
from ha.log_events import RecordRefused
from ha.membership.record import Record

NO_RECORD = (
    "there is no coordination record: write a new one with `txha recover` if it was lost, "
    "or found the cluster with `txha init`"
)


class RecordGate:
    """Of one node, whose store is ``cluster_id``'s. ``refused`` says why the last record was refused, if it was.

    A record that went back is refused for as long as this process runs: what it becomes later has grown from the copy.
    """

    def __init__(self, cluster_id: str, replica: Replica, emit: Callable[[Effect], None]) -> None:
        self.refused: str | None = None
        self._went_back: str | None = None
        self._cluster_id = cluster_id
        self._replica = replica
        self._emit = emit

    def admits(self, record: Record, known: Record | None) -> bool:
        """Whether the node may go by ``record``, having gone by ``known`` until now. What is refused is said once.

        No version is given twice, so another record of the version that is known has grown from an older copy, which
        took the place of the known one unseen (``copy_reaches_the_known_version``). One of a lower generation gives
        itself away by that.
        """
        before = self.refused
        if known is not None and record.cluster_id == self._cluster_id:
            if record.version < known.version:
                self._went_back = self._went_back or _went_back(record.version, known.version)
            elif record.version == known.version and record != known and record.generation >= known.generation:
                self._went_back = self._went_back or _went_back(record.version - 1, known.version)
        seen = self._replica.tail.generation
        self.refused = self._went_back or _objection(record, self._cluster_id, seen)
        if self.refused is not None and self.refused != before:
            self._emit(LogLine(RecordRefused(self.refused), warning=True))
        return self.refused is None

    def admits_own(self, record: Record, known: Record | None) -> bool:
        """Whether the node may go by a proposal of its own that has been stored.

        Not where it knows another record of that version: an older copy had taken that one's place, and the proposal,
        which was made for the copy's version, landed on it (``proposal_lands_on_an_older_record``). Nor where it knows
        a later one, which the next read shows again, or does not.
        """
        if known is not None and known.version == record.version and known != record:
            self._went_back = self._went_back or _went_back(record.version - 1, known.version)
        return (known is None or known.version <= record.version) and self.admits(record, known)


def _objection(record: Record, cluster_id: str, seen: int) -> str | None:
    """Why a node must not go by this record; ``seen`` is the greatest generation in its store."""
    if record.cluster_id != cluster_id:
        return (
            f"the coordination record is of another cluster that is also called {record.cluster}: "
            "point this node to its own record, or stop all nodes and ask `txha recover`"
        )
    if record.generation < seen:
        return (
            f"the coordination record is of generation {record.generation}, and this store has seen generation {seen}: "
            "write a new record with `txha recover`, or discard this store with `txha discard`"
        )
    return None


def _went_back(version: int, known: int) -> str:
    return (
        f"the coordination record went back from version {known} to {version}: "
        "stop all nodes and write a new record with `txha recover`; a copy must never be put in its place"
    )
