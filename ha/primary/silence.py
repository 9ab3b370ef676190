"""Silence: takes backups that owe something for too long, or are gone, out of the ready set."""

from __future__ import annotations

import math
from collections.abc import Callable

from ha.apply.replica import Replica
from ha.effects import Effect, LogLine
from ha.log_events import BackupSilent
from ha.membership.record_keeper import RecordKeeper
from ha.primary.attachments import Attachments
from ha.primary.backup_session import BackupSession
from ha.primary.commit_point import CommitPoint
from ha.settings import Settings
from ha.watch import Watch

SLOWEST = 64 << 10
"""Bytes a second: by what is on its way to a joiner at that rate it owes nothing yet"""


class Silence:
    """``linked`` tells which peers can be reached now; ``watch``: which part of the time is held against others."""

    def __init__(
        self,
        attachments: Attachments,
        point: CommitPoint,
        replica: Replica,
        keeper: RecordKeeper,
        settings: Settings,
        linked: set[str],
        emit: Callable[[Effect], None],
        now: float,
    ) -> None:
        self.watch = Watch(settings.longest_counted, now)
        self._attachments = attachments
        self._point = point
        self._replica = replica
        self._keeper = keeper
        self._settings = settings
        self._linked = linked
        self._emit = emit

    def tick(self, now: float) -> None:
        """Time has passed: judge who is silent, and who is gone."""
        self.watch.tick(now)
        if passed_over := self.watch.passed_over:
            self._attachments.pass_over(passed_over, now)
        self._take_out_the_silent(now)

    def _take_out_the_silent(self, now: float) -> None:
        tail = self._replica.durable
        for member in sorted(self._keeper.counted()):
            session = self._attachments.sessions.get(member.node)
            if session is None or session.member != member:
                owes = self._attachments.owes_since(member, now, self._timeout())
                if owes or self._absent_too_long(member.node, now):
                    self._keeper.remove(member, now)
            elif session.owes_since(tail, now, self._timeout()):
                self._emit(LogLine(BackupSilent(member.node)))
                self._keeper.remove(member, now)
        for node, session in list(self._attachments.sessions.items()):
            if session.member not in self._keeper.counted() and session.owes_since(tail, now, self._patience(session)):
                self._attachments.refuse(node, session.number, "silent for too long")
                self._attachments.detach(node, now)

    def _timeout(self) -> float:
        if self.watch.unread:
            return math.inf
        return self._settings.prepare_timeout if self._point.serving else self._settings.backup_timeout

    def _patience(self, session: BackupSession) -> float:
        """With a joiner: no commit waits for it, and if it were let go while a large message is on its way to it, it
        would be sent that anew each time, behind what is on its way already (``a_joiner_on_a_slow_network``)."""
        return self._timeout() + session.lag_bytes / SLOWEST

    def _absent_too_long(self, node: str, now: float) -> bool:
        since = self._attachments.absent_since.setdefault(node, now)
        limit = self._timeout() if node in self._linked else self._settings.link_down_grace
        return now - since >= limit and not self.watch.unread
