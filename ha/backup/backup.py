"""Backup: a node's end of the stream while another one is primary (seeds 001 and 003, PROTOCOL "A joiner").

It asks to be attached, cuts what its log has and the primary's has not, persists every frame before it acknowledges
it, votes on prepares, and applies what has passed the commit point.

It refuses to be overwritten by a primary that lacks what this node knows to have passed the commit point, unless an
operator has accepted the loss of data since; then it waits for an operator (``older_record_restored``). So it does when
the primary writes what this version of txha does not know.
"""

from __future__ import annotations

from collections.abc import Callable

from ha.apply.checkpointing import behind
from ha.apply.replica import UNHEARD, GapInStream, Replica, UnknownEvents
from ha.backup.progress_reports import ProgressReports
from ha.catchup.history import common_sequence
from ha.catchup.queue_replicator import QueueReplicator, SnapshotMismatch
from ha.effects import Acknowledge, Effect, LogLine, Persist, ResetLog, Send, Truncate
from ha.log_events import Detached, EventsDiscarded, OverwritingRefused, ResyncBegun
from ha.messages.attaching import Follow, Join, Leave
from ha.messages.copying import ResyncBegin, SnapshotPart
from ha.messages.stream import Cancel, Commit, Entries
from ha.messages.wire import Peer
from ha.settings import Settings
from txobserver.events import DtxPrepare, Event, TxPrepare
from txobserver.frames import FrameError, UnknownFormat, decode_frame
from txobserver.ids import Member

LONGEST_PATIENCE = 8
"""Times ``rejoin_every``: how long a backup waits at most for an answer before it asks again"""


class Backup:
    """The backup's side of its attachment to one primary of one generation.

    Many methods: one for each message of the primary, and for each report of its node.
    """

    def __init__(
        self,
        primary: str,
        generation: int,
        member: Member,
        replica: Replica,
        settings: Settings,
        emit: Callable[[Effect], None],
        checkpoint: Callable[[Acknowledge], None],
        loss_accepted: int = 0,
    ) -> None:
        self.primary = primary
        self.generation = generation
        self.session = 0  # nothing has been asked
        self.attached = False
        self.refusal: str | None = None
        self._member = member
        self._replica = replica
        self._settings = settings
        self._emit = emit
        self._asked_at: float | None = None
        self._patience = 1
        self._heard_at = 0.0
        self._commit = 0
        self._room = settings.apply_steps
        self._checkpoint = checkpoint
        self._replicator: QueueReplicator | None = None
        self._reset: ResetLog | None = None
        self.progress = ProgressReports(primary, generation, replica, settings, emit)
        self._loss_accepted = loss_accepted

    def take(self, message: Peer, now: float) -> None:
        """A message of the primary; what it does not concern itself with is the node's business."""
        current = getattr(message, "session", None) == self.session
        if current:
            self._heard_at = now
        if isinstance(message, Follow):
            self.follow(message)
        elif isinstance(message, ResyncBegin):
            self.resync(message)
        elif not current or not self.attached:
            return  # of an attachment that has ended
        elif isinstance(message, Entries):
            self.entries(message)
        elif isinstance(message, Commit):
            self.commit(message.commit)
        elif isinstance(message, SnapshotPart):
            self.replicate(message)

    def silent(self, now: float) -> bool:
        """Whether the primary has been silent for so long that the attachment must have ended.

        The word that it has ended may have been lost (``refusal_lost``).
        """
        return self.attached and now - self._heard_at > self._settings.silence

    def tick(self, may_ask: bool, session: int, now: float) -> None:
        """Ask to be attached, again and again until an answer comes; ``session`` is a number never used before.

        An answer to what was asked before counts no more, so each time it is waited for twice as long: on a network
        that is slower than ``rejoin_every`` none would ever count (``answered_later_than_it_is_asked_again``).

        A node whose snapshot is whole in memory, and not on its disk yet, is neither whole nor resynchronising: it
        waits for its checkpoint (``ready_before_the_snapshot_is_durable``). So does one whose checkpoints are behind:
        it would hold the commits up. One that has something to apply waits until that is done, also where that waits
        for a checkpoint: it could not cut its log before a decision that has begun meanwhile
        (``decision_begun_behind_a_rest``). Who is attached says once in a while that it is alive.
        """
        replica = self._replica
        if self.attached:
            self._work()
            self.progress.speak(self.session, now)
            return
        if self.refusal is not None or not may_ask or replica.durable != replica.tail.sequence:
            return
        if (not replica.resyncing and not replica.whole) or behind(replica, self._settings):
            return
        if self.due or replica.rests:
            return
        if self._asked_at is not None and now - self._asked_at < self._settings.rejoin_every * self._patience:
            return
        self._patience = min(2 * self._patience, LONGEST_PATIENCE) if self.session else 1
        self._asked_at = now
        self.session = session
        join = Join(
            self.generation,
            session,
            self._member,
            list(replica.history),
            replica.tail,
            replica.applied.sequence,
            replica.resyncing,
        )
        self._emit(Send(self.primary, join))

    def ask_anew(self) -> None:
        """The primary has only now begun to be that: what it was asked before, it does not answer."""
        if not self.attached:
            self.session, self._patience, self._asked_at = 0, 1, None

    def detach(self, retry_at_once: bool) -> None:
        """The attachment has ended; ask for another."""
        self.attached = False
        self.session = 0
        self._patience = 1
        self.progress.ended()
        self._replicator = None
        self._reset = None
        if retry_at_once:
            self._asked_at = None

    def follow(self, message: Follow) -> bool:
        """Attached. Cuts the log where it leaves the primary's; False if this answers nothing that was asked."""
        if not self.session or message.session != self.session or self.attached:
            return False
        replica = self._replica
        if replica.resyncing or not replica.begun <= message.keep <= replica.tail.sequence:
            self._leave(f"a log that is applied up to {replica.begun} cannot be cut after {message.keep}")
            return False
        if message.keep < replica.tail.sequence:
            self._emit(LogLine(EventsDiscarded(message.keep)))
            replica.truncate(message.keep)
        self.attached = True
        self._emit(Truncate(message.keep, self._acknowledge(message.keep)))
        self.commit(message.commit)
        return True

    def entries(self, message: Entries) -> None:
        """The next frame of the stream: persist, then acknowledge."""
        try:
            frame, _ = decode_frame(message.frame)
            if frame.generation > self.generation:
                raise GapInStream(f"generation {frame.generation} has not begun")
            events = self._replica.receive(frame)
        except (UnknownFormat, UnknownEvents) as error:
            self._cannot_follow(str(error))
            return
        except (FrameError, GapInStream) as error:
            self._leave(str(error))
            return
        self._emit(Persist(frame, self._acknowledge(frame.last)))
        self._vote(events)
        self.commit(message.commit)

    # -- queue by queue

    def resync(self, message: ResyncBegin) -> bool:
        """The primary's snapshot will overwrite this node; False if this answers nothing that was asked."""
        if not self.session or message.session != self.session or self.attached:
            return False
        if self._lacks_what_has_passed(message):
            self._refuse(message)
            return False
        self.attached = True
        self._emit(LogLine(ResyncBegun()))
        self._replica.begin_resync()
        self._replicator = QueueReplicator(self.primary, self.session, self._replica, self._emit)
        self._checkpoint(self._acknowledge(0))
        return True

    def _lacks_what_has_passed(self, message: ResyncBegin) -> bool:
        """Whether the primary's log lacks something that this node has applied, and no operator has accepted its
        loss."""
        replica = self._replica
        if not replica.whole or replica.applied.generation < self._loss_accepted:
            return False
        ours, theirs = replica.tail.sequence, message.tail.sequence
        return common_sequence(message.history, theirs, replica.history, ours) < replica.applied.sequence

    def _refuse(self, message: ResyncBegin) -> None:
        """Stay out, untouched, until the record changes or an operator decides which of the two logs counts."""
        self.refusal = (
            f"this store holds events up to {self._replica.applied} that had passed the commit point, and the primary "
            f"{self.primary} at {message.tail} lacks some of them: stop all nodes and choose with `txha recover`, "
            "or discard this store with `txha discard`"
        )
        self._leave("it refuses to be overwritten", LogLine(OverwritingRefused(self.refusal), warning=True))

    def replicate(self, message: SnapshotPart) -> None:
        """A part of the snapshot."""
        if self._replicator is not None:
            self._replicator.take(message)
            self._work()

    def _work(self) -> None:
        """Do some of what a snapshot left to be done."""
        replicator = self._replicator
        if replicator is None or self._reset is not None:
            return
        try:
            replicator.work()
        except SnapshotMismatch as error:
            self._leave(f"the snapshot does not match, beginning anew: {error}")
            return
        end = replicator.ended
        if end is not None:
            self._reset = ResetLog(end.position.sequence + 1, tuple(end.history))
            self._emit(self._reset)
        self.progress.took(self.session, replicator.taken)

    def log_reset(self, asked: ResetLog) -> int | None:
        """The former log is gone: the snapshot may be made durable, and acknowledged. Returns its sequence.

        None if an earlier attachment asked for it (``reset_of_an_earlier_attachment``).
        """
        if self._reset is not asked:
            return None
        assert self._replicator is not None
        sequence = self._replicator.finish()
        self._replicator = self._reset = None
        self._checkpoint(self._acknowledge(sequence))
        return sequence

    # -- the commit point

    def commit(self, commit: int) -> None:
        """The commit point has been told: apply what is also durable here, as far as this turn has room."""
        self._commit = max(self._commit, commit)
        self._apply()
        if self.attached:
            self.progress.tell_fullness(self.session)

    def turn(self) -> None:
        """A turn of the loop: there is room again for what is due."""
        self._room = self._settings.apply_steps
        self._apply()

    @property
    def due(self) -> bool:
        """Whether something could be applied now, and there was no room for it."""
        return self._replica.due(min(self._commit, self._replica.durable))

    def _apply(self) -> None:
        self._room -= self._replica.apply(min(self._commit, self._replica.durable), UNHEARD, self._room)

    def written(self, sequence: int) -> None:
        """This node's log is durable up to there."""
        self._replica.durable = max(self._replica.durable, min(sequence, self._replica.tail.sequence))
        self.commit(self._commit)

    def store_failed(self, reason: str) -> None:
        """This node's store is the reason: vote against what is prepared and undecided, and leave the ready set."""
        for buffer in self._replica.undecided():
            if buffer.prepared is not None:
                self._emit(Send(self.primary, Cancel(self.generation, self.session, buffer.tx, reason)))
        self._emit(Send(self.primary, Leave(self.generation, self.session, reason)))

    def _vote(self, events: list[Event]) -> None:
        """The acknowledgement of a prepare is a vote for it; a node that lacks an event of it votes against."""
        for event in events:
            if (type(event) is TxPrepare or type(event) is DtxPrepare) and not self._replica.buffers[event.tx].complete:
                held = len(self._replica.buffers[event.tx].events)
                reason = f"{self._member.node} holds {held} of its {event.count} events"
                self._emit(Send(self.primary, Cancel(self.generation, self.session, event.tx, reason)))

    def _leave(self, reason: str, line: LogLine | None = None) -> None:
        """End the attachment and ask for another after a while: the primary is told why, and people by ``line``."""
        self._emit(line or LogLine(Detached(self.primary, reason)))
        self._emit(Send(self.primary, Leave(self.generation, self.session, reason)))
        self.detach(retry_at_once=False)

    def _cannot_follow(self, reason: str) -> None:
        """The primary writes what this version of txha cannot apply: nothing of it is persisted or acknowledged.

        It would come again after every attachment, so the node stays out until it is upgraded, or another one leads
        (``what_a_backup_does_not_know_is_persisted``).
        """
        self.refusal = f"{reason}: upgrade this node, whose store holds everything before"
        self._leave(f"{reason}: upgrade that node", LogLine(Detached(self.primary, self.refusal), warning=True))

    def _acknowledge(self, sequence: int) -> Acknowledge:
        return Acknowledge(self.primary, self.generation, self.session, sequence)
