"""Handover: a primary that gives its lease up on purpose, to a chosen backup or to anybody."""

from __future__ import annotations

from collections.abc import Callable

from ha.backups import Backups
from ha.primary import Primary
from ha.record_keeper import RecordKeeper
from txobserver.effects import Effect, LogLine
from txobserver.ledger import Host


class Handover:
    """Clients are closed and nothing more is taken, but the node stays primary until the lease is given up."""

    def __init__(self, host: Host, emit: Callable[[Effect], None]) -> None:
        self._host = host
        self._emit = emit
        self._successor: str | None = None

    @property
    def begun(self) -> bool:
        """Whether the clients have been closed."""
        return self._successor is not None

    def begin(self, primary: Primary, successor: str, reason: str) -> None:
        """Close the clients; no ``successor`` means anybody."""
        self._emit(LogLine(reason))
        self._successor = successor
        primary.serving = False
        self._host.on_inactive(reason)

    def end(self) -> None:
        """This node is no longer primary."""
        self._successor = None

    def release_if_quiet(self, backups: Backups, keeper: RecordKeeper, tail: int, now: float) -> None:
        """Give the lease up when the chosen one has everything up to ``tail``, or is gone."""
        if not self._successor:
            return
        session = backups.sessions.get(self._successor)
        if session is None or session.acknowledged >= tail:
            keeper.release(self._successor, now)
