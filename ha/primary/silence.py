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
from ha.primary.fanout import Fanout
from ha.primary.stream_times import StreamTimes
from ha.settings import Settings
from ha.watch import Watch

SLOWEST = 64 << 10
"""Bytes a second: by what is on its way at that rate to a joiner that holds nothing up, it owes nothing yet"""

TIMEOUTS = 3
"""So many timeouts a member may owe one event, beside the time in which all that it owes may come at SLOWEST"""


class Silence:
    """``linked`` tells which peers can be reached now; ``watch``: which part of the time is held against others."""

    def __init__(
        self,
        attachments: Attachments,
        point: CommitPoint,
        replica: Replica,
        keeper: RecordKeeper,
        settings: Settings,
        fanout: Fanout,
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
        self._fanout = fanout
        self._times = StreamTimes()
        self._linked = linked
        self._emit = emit

    def tick(self, now: float) -> None:
        """Time has passed: judge who is silent, and who is gone."""
        self.watch.tick(now)
        if passed_over := self.watch.passed_over:
            self._attachments.pass_over(passed_over, now)
            self._times.pass_over(passed_over, now)
        self._times.note(self._replica.durable, now)
        self._take_out_the_silent(now)
        self._times.forget(self._attachments.durable_everywhere())

    def _take_out_the_silent(self, now: float) -> None:
        tail = self._replica.durable
        for member in sorted(self._keeper.counted()):
            session = self._attachments.sessions.get(member.node)
            if session is None or session.member != member:
                since, had = self._attachments.owed(member, now)
                owes = now - since > self._timeout() or self._owes_an_old_one(had, now)
                if owes or self._absent_too_long(member.node, now):
                    self._keeper.remove(member, now)
            elif session.owes_since(tail, now, self._timeout()) or self._owes_an_old_one(session.had, now):
                self._emit(LogLine(BackupSilent(member.node)))
                self._keeper.remove(member, now)
        for node, session in list(self._attachments.sessions.items()):
            if session.member not in self._keeper.counted() and session.owes_since(tail, now, self._patience(session)):
                self._attachments.refuse(node, session.number, "silent for too long")
                self._attachments.detach(node, now)

    def _owes_an_old_one(self, acknowledged: int, now: float) -> bool:
        """Whether the first event behind that has been owed for too long, whatever progress there was meanwhile."""
        waited = now - self._times.since(acknowledged, now) - TIMEOUTS * self._timeout()
        return waited > 0 and waited > self._fanout.bytes_behind(acknowledged, self._settings.backlog_bytes) / SLOWEST

    def _timeout(self) -> float:
        if self.watch.unread:
            return math.inf
        return self._settings.prepare_timeout if self._point.serving else self._settings.backup_timeout

    def _patience(self, session: BackupSession) -> float:
        """With a joiner. If one that holds nothing up were let go while a large message is on its way to it, it would
        be sent that anew each time, behind what is on its way already (``a_joiner_on_a_slow_network``)."""
        if self._attachments.holds_up(session):
            return self._timeout()
        return self._timeout() + session.lag_bytes / SLOWEST

    def _absent_too_long(self, node: str, now: float) -> bool:
        since = self._attachments.absent_since.setdefault(node, now)
        limit = self._timeout() if node in self._linked else self._settings.link_down_grace
        return now - since >= limit and not self.watch.unread
