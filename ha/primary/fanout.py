"""Fanout: the way of the primary's frames to its backups.

The writer gives each frame once, when it is made. Everything else is decided here: to which backup which frames go,
when, and from where they are read. Who counts, who has acknowledged what, and what follows from it, is decided
elsewhere (``Attachments``, ``CommitPoint``): a fanout may only delay, never acknowledge.

What each fanout must keep:

- *Persist, then send.* No frame leaves before it is durable on the primary (``Replica.durable``).
- Each backup gets the frames in the order of the stream, without a gap, from where its log ends; what it has may come
  again.
- No message carries a commit point that is greater than the one that was given.
- What is in flight to one backup is bounded, and a backup that lags, rests or is gone holds up no other.
- A joiner that copies the queues gets no frames before its copy has ended.

``Star`` is the one there is: the primary sends each frame to each backup.
"""

from __future__ import annotations

from collections.abc import Callable

from ha.apply.replica import Replica
from ha.effects import Effect
from ha.feed.recent_frames import RecentFrames
from ha.primary.attachments import Attachments
from ha.primary.backup_session import BackupSession
from ha.settings import Settings
from txobserver.frames import Frame


class Fanout:
    """Of one generation. This one has no backup to send to. Sequences are those of the stream, times seconds."""

    def take(self, frame: Frame) -> None:
        """The next frame of this generation's stream, which is not durable yet."""

    def send(self, commit: int, now: float) -> bool:
        """At the end of each turn: send what may leave now, with the commit point ``commit``.

        Returns whether a backup that the commits wait for has no room, so that clients should not be read.
        """
        return False

    def tell_commit(self, commit: int, now: float) -> None:
        """At each tick: carry the commit point to backups that no frames carried it to."""

    def bytes_behind(self, sequence: int, most: int) -> int:
        """How much of the stream there is behind this sequence; of what is more than ``most`` only that it is."""
        return 0

    def log_read(self, session: BackupSession, frames: list[Frame], commit: int) -> None:
        """These frames were read from the log, for a backup whose attachment stands; there is one at least."""


class Star(Fanout):
    """The primary sends each frame to each backup, point to point.

    ``recent``: the newest frames, so that backups in step are served without reading the disk; one that lags is served
    from the log.
    """

    def __init__(
        self, attachments: Attachments, replica: Replica, settings: Settings, emit: Callable[[Effect], None]
    ) -> None:
        self.recent = RecentFrames(settings.recent_bytes)
        self._attachments = attachments
        self._replica = replica
        self._settings = settings
        self._emit = emit

    def take(self, frame: Frame) -> None:
        """Keep it until every backup in step has been sent it."""
        self.recent.add(frame)

    def send(self, commit: int, now: float) -> bool:
        """To each backup what it has room for."""
        attachments, recent, durable, full = self._attachments, self.recent, self._replica.durable, False
        tail = self._replica.tail.sequence
        for session in attachments.sessions.values():
            awaited = attachments.awaited(session)
            full = full or (session.full and awaited) or session.outrun(tail)
            for effect in session.pump(recent, durable, commit, self._settings, now, awaited or session.hurried):
                self._emit(effect)
        return full

    def tell_commit(self, commit: int, now: float) -> None:
        """To each backup by itself."""
        for session in self._attachments.sessions.values():
            for effect in session.tell_commit(commit, now, self._settings):
                self._emit(effect)

    def bytes_behind(self, sequence: int, most: int) -> int:
        """Of what is kept in memory."""
        return self.recent.bytes_behind(sequence, most)

    def log_read(self, session: BackupSession, frames: list[Frame], commit: int) -> None:
        """To the backup that lags. What has been written meanwhile and is not durable waits, as everything does
        (``read_beyond_what_is_durable``)."""
        durable = [frame for frame in frames if frame.last <= self._replica.durable]
        for effect in session.log_read(durable, commit):
            self._emit(effect)
