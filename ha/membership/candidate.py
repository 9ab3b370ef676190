"""Candidate: when a backup may become primary, and which one should (PROTOCOL, "Who is primary").

A version of the record that stands still for a whole lease, timed on our own clock, has no primary. A step of the clock
that is longer than ``Settings.longest_step`` does not count: the node was not watching, or the clock has jumped. A node
whose steps are all that long never stands, and says so. Then every reachable member of its ready set is asked how far
its log goes, and the greatest position wins, names breaking ties, so that what reached any survivor is kept. A member
that has reason to think that it cannot stand gives its precedence up (``ha.membership.record_access``), so that among
such members the name alone decides, and behind ``DEADLINE_LEASES`` precedence ends altogether: what was acknowledged is
on every candidate. The compare-and-set demands the very version that was judged: a promotion on a stale ready set
cannot succeed (``promote_on_stale_ready_read``), and the loss of data that an operator accepted is accepted for the
version that it was granted for, and for no other (``accept_data_loss_races_a_new_primary``).

A node whose store is being overwritten by a snapshot never stands, whatever the record says: it holds no state that
any prefix of the stream leads to (``ready_before_the_snapshot_is_durable``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection

import msgspec

from ha.effects import CompareAndSet, Effect, LogLine
from ha.log_events import ForcingOutdated, GenerationsUsedUp, NobodyTakesOver
from ha.membership.belonging import with_ready_bound
from ha.membership.poll import Poll
from ha.membership.record import Record
from ha.membership.record_access import RecordAccess
from ha.membership.record_watch import RecordWatch
from ha.messages.election import ProbeReply
from ha.settings import Settings
from txobserver.ends import END_OF_GENERATIONS
from txobserver.ids import LAST_GENERATION, Member, Position

DEADLINE_LEASES = 4
"""After so many lease times in which no node has acted on a record without a primary, a candidate stands though another
member's log goes further: that one may be unable to, and not know it."""
TOLD_LEASES = 2
"""After so many, a candidate says whom it waits for."""


class Candidate:
    """Watches the record while this node is no primary. Times are the shell's monotonic seconds."""

    def __init__(self, me: Member, settings: Settings, emit: Callable[[Effect], None]) -> None:
        self.record: Record | None = None
        self.in_flight: CompareAndSet | None = None
        self._unresolved = 0
        self.sent_at = 0.0
        self._me = me
        self._settings = settings
        self._emit = emit
        self.watch = RecordWatch(settings)
        self.poll = Poll(me, settings, emit)
        self._rest_until = 0.0
        self._forcing_at: float | None = None
        self._granted_for = 0
        self._heard = 0
        self._told_end = False
        self._retired = False
        self._told_waiting = self._told_overdue = False
        self.access = RecordAccess(settings.lease_ttl)

    def observe(self, record: Record, now: float) -> bool:
        """A read of the record; returns whether it is another version than before."""
        self.access.read(now)
        if self.record is not None and record.version <= self.record.version:
            return False
        self.record = record
        self.watch.begin(now)
        self.poll.end()
        self._told_waiting = self._told_overdue = False
        return True

    def refuses(self, accept_data_loss: bool, version: int) -> str | None:
        """Why an operator cannot have a promotion now, as far as the record says.

        ``version``: for which the loss of data is accepted, or 0 for the one that is known.
        """
        assert self.record is not None
        known = self.record.version
        if self._retired:
            return "this node is being stopped; choose another one"
        if self.record.generation >= LAST_GENERATION:
            return END_OF_GENERATIONS
        if not accept_data_loss:
            return None
        if version not in (0, known):
            return f"the record is at version {known} and not at {version}: look again what would be lost"
        if not self.vacant(self.record):
            return "the primary is alive; hand over with a ready backup instead of losing data"
        return None

    def cannot_succeed(self, now: float) -> str | None:
        """Why a primary should not hand over to this node: it would close its clients, and no node would serve them."""
        if not self._doubts_itself(now):
            return None
        text = "this node has not read the coordination record lately, or not changed it in time"
        return f"{text}; choose another one, or ask again later"

    def force(self, linked: Collection[str], now: float) -> None:
        """An operator accepts the loss of what only other nodes hold: ask each node that can be reached for its
        generation."""
        assert self.record is not None
        self._forcing_at = now
        self._granted_for = self.record.version
        self._heard = self.record.generation
        self.poll.ask(linked, self.record)

    def retire(self) -> None:
        """This node is about to stop: it does not stand any more."""
        self._retired = True

    def heard(self, generation: int) -> None:
        """A node knows this generation."""
        self._heard = max(self._heard, generation)

    def _force(self, tail: Position, now: float) -> None:
        """ready = {self}, in a generation above every reachable one, on the version that it was granted for."""
        assert self.record is not None
        self._forcing_at = None
        if self.record.version != self._granted_for:
            self._emit(LogLine(ForcingOutdated(self._granted_for, self.record.version)))
            return
        generation = max(self.record.generation, tail.generation, self._heard)
        if generation >= LAST_GENERATION:
            self._emit(LogLine(GenerationsUsedUp()))
            return
        record = msgspec.structs.replace(
            self.record,
            version=self.record.version + 1,
            generation=generation + 1,
            primary=self._me,
            ready=(self._me,),
            released=False,
            preferred="",
            loss_accepted=generation + 1,
        )
        self._propose(CompareAndSet(self.record.version, with_ready_bound(record)), now)

    def tick(self, tail: Position, linked: Collection[str], now: float, whole: bool = True) -> None:
        """Ask, wait for replies, propose, as far as each may be done now; ``whole``: the store holds a state.

        A primary that stops has given its lease up, and is vacant itself: it would be the next one
        (``lone_primary_stands_again_while_it_stops``).
        """
        record = self.record
        if (told := self.watch.tick(now, self.access.reads(now))) is not None:
            self._emit(LogLine(told))
        if not whole or self._retired:
            self.poll.end()
            self._forcing_at = None
            return
        if (
            self._forcing_at is not None
            and not self.in_flight
            and now - self._forcing_at >= self._settings.probe_timeout
        ):
            self._force(tail, now)
        if record is None or self.in_flight or not self.vacant(record) or not self.may_stand(record):
            return
        if not self.poll.under_way and now >= self._rest_until:
            self.poll.begin(record, linked, now)
        if self.poll.under_way and self.poll.over(now):
            self.poll.end()
            before = self.poll.before(record, self.precedence(tail, True, now))
            if not before or self._is_past_deadline(before, now):
                self._stand(record, now)
            else:
                self._rest_until = now + self._settings.renew_every

    def may_stand(self, record: Record) -> bool:
        """Whether this node is a member of the ready set of that record, and there can be another generation."""
        if self._me not in record.ready or record.generation < LAST_GENERATION:
            return self._me in record.ready
        if not self._told_end:
            self._emit(LogLine(GenerationsUsedUp()))
        self._told_end = True
        return False

    def reply(self, message: ProbeReply) -> None:
        """A ready member says how far its log goes."""
        self.poll.reply(message, self.record)

    @property
    def proposing(self) -> bool:
        """Whether a proposal of ours may still land: it was not answered, and no later version has been seen."""
        return self.record is not None and self.record.version <= self._unresolved

    def settled(self, now: float, unknown: bool = False, made: bool = False) -> None:
        """The proposal on its way has been answered, since it was ``made`` or met another version, or is ``unknown``.

        An answer that comes when the lease that it is about would be over is as good as none. By one that was made in
        time, an operator who has accepted the loss of data meanwhile has a primary: that word must not be found again
        when this node is a backup once more (``operator_s_word_behind_a_promotion``).
        """
        self.in_flight = None
        if not unknown:
            self._unresolved = 0
        if unknown or now - self.sent_at >= self._settings.lease_seconds:
            self.access.failed(now)
        elif made:
            self._forcing_at = None

    def precedence(self, tail: Position, may_stand: bool, now: float) -> Position:
        """The position that this node ranks with: ``tail``, or that of an empty log if it would not, or may not, stand.

        ``may_stand``: as far as its store and its record go. In a role of its own it has no proposal on its way.
        """
        too_busy = self.record is not None and not self.vacant(self.record) and self.watch.busy_for_a_lease
        if not may_stand or self._retired or too_busy or self._doubts_itself(now):
            return Position(0, 0)
        return tail

    def _doubts_itself(self, now: float) -> bool:
        """Whether it has reason to think that it cannot change the record."""
        return self.access.doubtful(self.sent_at if self.in_flight else math.inf, now)

    def _is_past_deadline(self, before: list[str], now: float) -> bool:
        """Whether to stand all the same; says once for each version whom it waits for, and that it does so no more."""
        leases = self.watch.seen_to_stand / self._settings.lease_ttl
        if not self.access.reads(now) or leases < TOLD_LEASES:
            return False
        overdue = leases >= DEADLINE_LEASES
        if overdue > self._told_overdue or not self._told_waiting:
            self._emit(LogLine(NobodyTakesOver(self.watch.seen_to_stand, tuple(before), overdue)))
        self._told_waiting, self._told_overdue = True, overdue
        return overdue

    def vacant(self, record: Record) -> bool:
        """Whether the record has certainly no primary any more."""
        if record.released and record.preferred in ("", self._me.node):
            return True
        return self.watch.lease_over

    def _stand(self, record: Record, now: float) -> None:
        promoted = msgspec.structs.replace(
            record,
            version=record.version + 1,
            generation=record.generation + 1,
            primary=self._me,
            released=False,
            preferred="",
        )
        self._propose(CompareAndSet(record.version, promoted), now)

    def _propose(self, proposal: CompareAndSet, now: float) -> None:
        self.in_flight = proposal
        self._unresolved = proposal.expected
        self.sent_at = now
        self._emit(proposal)
