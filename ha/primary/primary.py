"""Primary: makes the stream of one generation, and answers for it.

Promise: nothing is told to any client (delivered, got, counted, confirmed) before it is durable on every node that
counts; no two nodes ever tell different outcomes of a transaction.

API: the broker calls the Ledger; the node core reports what the disk, the backups and the coordination store did; the
answers come as effects and as calls of the Host, in stream order.

Algorithm: ``append`` gives an event its position and puts it into the group that is being gathered. ``flush`` makes one
frame of the group, to be written and synced here; when it is durable it is sent to every backup. The *commit point*
is the sequence that the primary and every member that counts are durable up to; it moves only while the lease holds
and never back. Everything up to it is applied in stream order, and answered.

Why it is right: what is told is below the commit point, so it is on every member of the ready set, and the next
primary is one of them. Who counts can shrink only by a compare-and-set that the coordination store has synced, before
anything is told without the one removed. A transaction's prepare has passed the commit point before its decision is
made, and its answer waits for the decision to pass it too.

What would break a simpler version: ``hidden_commit_versus_later_publish`` (offsets given at apply time instead of by
position), ``paused_primary_acknowledges_late``, ``min_ready_lost_after_decision``, ``recovering_primary_delivers``.
"""

from __future__ import annotations

from collections.abc import Sequence

from ha.apply.checkpointing import behind
from ha.apply.replica import Replica
from ha.effects import LogLine
from ha.log_events import BranchesPrepared, TransactionAborted
from ha.primary.additions import Additions
from ha.primary.attachments import Attachments
from ha.primary.client_ledger import ClientLedger
from ha.primary.commit_point import CommitPoint
from ha.primary.fanout import Fanout
from ha.primary.readings import Readings
from ha.primary.refusals import Refusals
from ha.primary.stream_decisions import StreamDecisions
from ha.primary.teller import Teller
from ha.primary.writer import Emit, Writer
from ha.settings import Settings
from txobserver.events import GenerationStart
from txobserver.ports.ledger import Content, Host


class Primary:
    """The primary of one generation, from its parts. ``emit`` takes effects in order.

    ``writer`` makes the stream and gives each frame to ``fanout``, ``point`` is how far it counts, ``decisions`` end
    transactions, ``ledger`` is what the broker asks, and ``teller`` tells what has been applied.
    """

    def __init__(
        self,
        attachments: Attachments,
        fanout: Fanout,
        replica: Replica,
        host: Host,
        settings: Settings,
        emit: Emit,
    ) -> None:
        self.name = attachments.name
        self.generation = generation = attachments.generation
        self._attachments = attachments
        self._replica = replica
        self._host = host
        self._settings, self._emit = settings, emit
        self._additions = Additions(replica.contents.queues)
        self._opened_to = 0
        refusals = Refusals()
        self.writer = writer = Writer(generation, replica, settings, emit, fanout)
        self.point = point = CommitPoint(replica.applied.sequence)
        self.decisions = StreamDecisions(writer, point, replica, host, settings, self._additions, attachments)
        self.readings = Readings(generation, replica.contents)
        self.ledger = ClientLedger(
            writer, point, self.decisions, self._additions, refusals, self.readings, emit, attachments.lacking
        )
        self.teller = Teller(host, point, self.decisions, refusals, self._additions, attachments, attachments.copies)

    # -- the beginning of a generation

    def start(self, expected: Sequence[str]) -> None:
        """Open the generation: its first event, and the abort of whatever has no decision and is not to stay."""
        self.writer.append(GenerationStart(self.generation, self.name, list(expected)))
        for buffer in sorted(self._replica.undecided(), key=lambda each: each.tx):
            if not buffer.stays:
                self._emit(LogLine(TransactionAborted(buffer.tx)))
                self.decisions.tx_rollback(buffer.tx)
        if in_doubt := self.decisions.branches.inherit():
            self._emit(LogLine(BranchesPrepared(in_doubt)))
        self._opened_to = self._replica.tail.sequence

    @property
    def in_step(self) -> bool:
        """Whether all that stood before this generation has passed the commit point, and the aborts with it."""
        return self.point.sequence >= self._opened_to

    @property
    def may_serve(self) -> bool:
        """Whether it is in step, and not in the middle of a decision, of which clients would be shown half
        (``a_primary_serves_in_the_middle_of_a_decision``).
        """
        return self.in_step and not self._replica.in_parts

    @property
    def congested(self) -> bool:
        """Whether clients should not be read for now: disks or checkpoints are behind, here or where it counts."""
        return self.writer.backlog.full or self._attachments.full or behind(self._replica, self._settings)

    def serve(self, content: Content) -> None:
        """The primary is active: clients may be served."""
        self.ledger.begin_at(content.configuration.last_id)
        self.point.serving = True
        self._host.on_active(self.ledger, content)

    def abandon(self) -> None:
        """No longer primary: what was never written is forgotten."""
        self.point.serving = False
        self.readings.abandon()
        self.writer.abandon()

    # -- the stream

    def flush(self) -> None:
        """Write what has gathered, unless a group is on its way to the disk already; at most a frame of it."""
        if self.writer.due:
            for delivered in self._additions.end(self._host if self.point.serving else None):
                self.writer.append(delivered)
            self.writer.flush()

    def written(self, sequence: int) -> None:
        """The disk has everything up to ``sequence``: a frame of ours, or one of a former role of this node's."""
        self._replica.durable = sequence

    def advance(self, everywhere: int) -> None:
        """The lease holds and all up to ``everywhere`` is durable on every node that counts: apply and answer.

        As much of it as a turn has room for: the commit point moves up to there, and the rest is looked at again in the
        next turn. A decision that has begun was durable everywhere then, and who has come to count since holds it
        (``Backups.grant``): it is finished.
        """
        replica, point = self._replica, self.point
        if everywhere <= point.sequence and not replica.in_parts:
            return
        try:
            replica.apply(everywhere, self.teller, self._settings.apply_steps)
        finally:
            point.sequence = max(point.sequence, replica.applied.sequence)
        self.writer.backlog.passed(point.sequence)
        point.answer_up_to(point.sequence)
        if replica.due(everywhere):
            self.writer.wake()
