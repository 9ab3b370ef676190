"""What an audit has found, as data: for the terminal, for ``--json``, and for the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from recovery.pipeline.audit.course import Course
from recovery.pipeline.audit.facts import Chapter
from recovery.pipeline.audit.findings import Finding
from recovery.pipeline.audit.names import BREACHES
from recovery.pipeline.audit.stream import Stream


@dataclass(frozen=True)
class NodeView:
    """One node's log: where it begins and ends, what of it was compared, and how far it is behind the stream's end.

    ``tail``: events that a later generation overwrote elsewhere, and which were left out. ``lag_seconds`` is by the
    times of frames."""

    name: str
    generation: int
    first: int
    last: int
    compared_to: int
    tail: int
    lag_events: int
    lag_seconds: float


@dataclass(frozen=True)
class QueueView:
    """A queue over the whole stream. ``apart``: differing events of it, by node."""

    queue: str
    put: int
    taken: int
    apart: dict[str, int]


@dataclass(frozen=True)
class Doubt:
    """A branch that is prepared and not decided. ``word``: how it will end, as far as anything says so."""

    transaction: int
    xid: str
    events: int
    position: int
    since: datetime
    word: str | None


@dataclass(frozen=True)
class Operated:
    """A branch that an operator decided. ``against``: what says otherwise, if anything does; it is *mixed* then."""

    transaction: int
    xid: str
    committed: bool
    position: int
    at: datetime
    against: str | None


@dataclass
class AuditReport:
    """``found``: how many breaches of each name; ``findings``: some of each, with evidence. ``notes``: what was left
    out, and why."""

    nodes: list[NodeView] = field(default_factory=list)
    totals: dict[str, int] = field(default_factory=dict)
    found: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    in_doubt: list[Doubt] = field(default_factory=list)
    operated: list[Operated] = field(default_factory=list)
    queues: list[QueueView] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    course: Course = field(default_factory=Course)

    @property
    def clean(self) -> bool:
        """Whether no promise was seen broken."""
        return not self.found

    def as_dict(self) -> dict[str, Any]:
        """Everything, of types that JSON has."""
        found = [
            {"name": name, "promise": BREACHES[name].promise, "meaning": BREACHES[name].meaning, "count": count}
            for name, count in self.found.items()
        ]
        told: dict[str, Any] = _plain({**asdict(self), "clean": self.clean, "found": found})
        return told


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="replace")
    return value


def node_views(chapters: Sequence[Chapter], stream: Stream) -> list[NodeView]:
    """Every log beside the stream."""
    newest = max(each.ended for each in chapters)
    views = []
    for node in sorted({each.span.node for each in chapters}):
        mine = sorted(each.span for each in chapters if each.span.node == node)
        reach = next((each for each in stream.reaches if each.node == node), None)
        last = mine[-1]
        compared_to = reach.last if reach else mine[0].first - 1
        lag = (newest - max(each.ended for each in chapters if each.span.node == node)).total_seconds()
        views.append(
            NodeView(
                node, last.generation, mine[0].first, last.last, compared_to, last.last - compared_to,
                stream.last - compared_to, lag,
            )
        )  # fmt: skip
    return views


def notes_on(views: list[NodeView], stream: Stream, with_history: bool) -> list[str]:
    """What was not compared, and why."""
    notes = []
    for view in views:
        if view.first > stream.first:
            notes.append(f"{view.name} begins at {view.first}: what stands before is read from other logs")
        if view.tail:
            notes.append(
                f"{view.name} ends in {view.tail} events of generation {view.generation} that a later generation has "
                "overwritten; they are left out"
            )
        if view.lag_events:
            notes.append(f"{view.name} ends {view.lag_events} events before the stream does")
    for at in stream.broken_at:
        notes.append(f"no log shows that what stands before {at} belongs to what stands behind")
    if stream.first > 1:
        notes.append(f"the stream begins at {stream.first}: of transactions that began before, only a part is known")
    if not with_history:
        notes.append("without a history of the clients, P2, P4, P5 and P8 are judged as far as the logs alone show")
    return notes
