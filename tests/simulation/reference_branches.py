"""The branches and outcomes that the stream leads to, computed anew and in the plainest way (see ``reference``)."""

from __future__ import annotations

import zlib
from bisect import bisect_right
from dataclasses import dataclass, field

from txobserver.events import (
    DtxDecision,
    DtxOpen,
    DtxPrepare,
    Event,
    Forget,
    GlobalDecision,
    GlobalForget,
    TxDequeue,
    TxEnqueue,
    TxToken,
)
from txobserver.xid import Global, Xid

Name = Xid | Global | bytes
BRANCH, HEURISTIC, TOKEN, GLOBAL = range(4)


def fingerprint(name: Name, kind: int, commit: bool, sequence: int, at_ms: int) -> int:
    """The product's digest of one outcome (``txobserver.outcomes.Remembered.digest``), written down a second time.

    A wall clock that says 0 counts as 1: where it is stored, 0 means that there is none.
    """
    format_id, gtrid, bqual = (0, name, b"") if isinstance(name, bytes) else (*name, b"")[:3]
    key = bytes([BRANCH if kind == HEURISTIC else kind]) + format_id.to_bytes(4, "big") + bytes([len(gtrid)])
    said = f"{kind} {int(commit)} {sequence} {max(at_ms, 1)} ".encode() + key + gtrid + bqual
    return zlib.crc32(said) << 32 | zlib.crc32(said, 1)


@dataclass
class ReferenceBranches:
    """``prepared``: branches in doubt, with the (queue number, offset) that each holds. ``outcomes``: (commit,
    kind)."""

    prepared: dict[Xid, list[tuple[int, int]]] = field(default_factory=dict)
    outcomes: dict[Name, tuple[bool, int]] = field(default_factory=dict)
    late: Xid | None = None
    """A branch that was prepared behind the decision of its global transaction"""
    _names: dict[int, Xid | bytes] = field(default_factory=dict)
    _digests: dict[Name, int] = field(default_factory=dict)
    _changed_at: list[int] = field(default_factory=list)
    _states: list[tuple[frozenset[Xid], int, int]] = field(default_factory=list)

    def as_of(self, sequence: int) -> tuple[frozenset[Xid], int, int]:
        """(branches in doubt, number and digest of outcomes) after the event at this sequence."""
        at = bisect_right(self._changed_at, sequence)
        return self._states[at - 1] if at else (frozenset(), 0, 0)

    def apply(self, sequence: int, event: Event, parts: dict[int, list[TxEnqueue | TxDequeue]]) -> Xid | bytes | None:
        """The next event; returns the branch that it prepared, or the name of what it decided.

        ``parts``: of transactions that are open.
        """
        named: Xid | bytes | None = None
        if isinstance(event, DtxOpen):
            self._names[event.tx] = event.xid
        elif isinstance(event, TxToken):
            self._names[event.tx] = event.token
        elif isinstance(event, DtxPrepare):
            named = self._prepare(event.tx, parts)
        elif isinstance(event, DtxDecision):
            named = self._names.pop(event.tx)
            kind = TOKEN if isinstance(named, bytes) else HEURISTIC if event.heuristic else BRANCH
            self._remember(named, kind, event.commit, sequence, event.at_ms)
            if isinstance(named, Xid):
                self.prepared.pop(named, None)
        elif isinstance(event, GlobalDecision):
            self._remember(Global(event.format_id, event.gtrid), GLOBAL, event.commit, sequence, event.at_ms)
        elif isinstance(event, Forget):
            self._forget(event.xid)
        elif isinstance(event, GlobalForget):
            self._forget(Global(event.format_id, event.gtrid))
        else:
            return None
        self._changed_at.append(sequence)
        digest = sum(self._digests.values()) % (1 << 63)
        self._states.append((frozenset(self.prepared), len(self.outcomes), digest))
        return named

    def _prepare(self, tx: int, parts: dict[int, list[TxEnqueue | TxDequeue]]) -> Xid:
        xid = self._names[tx]
        assert isinstance(xid, Xid)
        held = [(e.queue, offset) for e in parts.get(tx, []) if isinstance(e, TxDequeue) for offset, _ in e.entries]
        self.prepared[xid] = held
        if xid.globally in self.outcomes:
            self.late = xid
        return xid

    def _remember(self, name: Name, kind: int, commit: bool, sequence: int, at_ms: int) -> None:
        self.outcomes[name] = commit, kind
        self._digests[name] = fingerprint(name, kind, commit, sequence, at_ms)

    def _forget(self, name: Name) -> None:
        self.outcomes.pop(name, None)
        self._digests.pop(name, None)
