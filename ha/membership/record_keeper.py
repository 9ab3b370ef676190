"""RecordKeeper: the primary's hand on the coordination record: its lease, and who is in the ready set.

Only one compare-and-set is on its way at a time. From the sending of an *add* until a later compare-and-set of our own
has succeeded, the added member counts as ready, whatever a read may show: a change that timed out may still land
(``add_cas_in_flight``, ``add_cas_times_out_then_lands``). A success settles the matter, since a change that expected an
earlier version can land no more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import msgspec

from ha.effects import CompareAndSet, Effect
from ha.membership.belonging import objection_to
from ha.membership.lease_length import LeaseLength
from ha.membership.member_changes import MemberChanges
from ha.membership.record import Record
from ha.messages.greeting import NO_PEERS
from ha.settings import Settings
from txobserver.ids import Member


class RecordKeeper:
    """Keeps the lease and carries out changes of the ready set. Times are the shell's monotonic seconds. ``length``
    knows for how long other nodes wait.

    Many methods: one for each thing that is wished of the record, and for each that may become of a change.
    """

    def __init__(
        self,
        record: Record,
        sent_at: float,
        me: Member,
        settings: Settings,
        emit: Callable[[Effect], None],
        length: LeaseLength | None = None,
    ) -> None:
        self.record = record
        self.lost = False
        self._me = me
        self._settings = settings
        self._emit = emit
        self._lease_seconds = settings.lease_seconds
        self._lease_until = sent_at + self._lease_seconds
        self._length = length or LeaseLength(settings, NO_PEERS)
        self._sent_at = sent_at
        self._renewed_at = -math.inf
        self.in_flight: CompareAndSet | None = None
        self._unresolved: set[Member] = set()
        self._counted: frozenset[Member] = frozenset()
        self._counted_by: Record | None = None
        self._adds: set[Member] = set()
        self._holds_back = False
        self._removes: set[Member] = set()
        self._release: str | None = None
        self._leave_to: frozenset[Member] = frozenset()
        self.members = MemberChanges(me, settings, emit)
        self._shorter_by = self._length.shorter_by(self.counted(), sent_at)

    def holds(self, now: float) -> bool:
        """Whether the lease certainly still holds."""
        return not self.releasing and not self.expired(now)

    def expired(self, now: float) -> bool:
        """Whether the lease may be another's: time to step down, also in the middle of a handover."""
        self._shorter_by = self._length.shorter_by(self.counted(), now)
        return self.lost or now >= self._lease_until - self._shorter_by

    @property
    def serves_until(self) -> float:
        """Until then, in the shell's seconds, the lease certainly is this node's; 0 where it is being given up."""
        return 0.0 if self.lost or self.releasing else self._lease_until - self._shorter_by

    @property
    def released(self) -> bool:
        """Whether the lease has been given up, durably."""
        return self.record.released

    @property
    def releasing(self) -> bool:
        """Whether the lease is to be given up: from then on this node only waits for that to be stored."""
        return self._release is not None

    def counted(self) -> frozenset[Member]:
        """Every other node that is, or may be, a member of the ready set. Asked often, and changes rarely."""
        if self._counted_by is not self.record:
            self._counted = (frozenset(self.record.ready) | self._unresolved) - {self._me}
            self._counted_by = self.record
        return self._counted

    def is_ready(self, member: Member) -> bool:
        """Whether the record certainly lists this member."""
        return member in self.record.ready

    def add(self, member: Member, now: float) -> None:
        """Take a member into the ready set; not between another's change of the record and our next one, and none that
        does not belong to the cluster, or is about to leave it."""
        if self.refuses(member) is not None:
            return
        if not self._holds_back and member not in self.record.ready and member not in self._adds:
            self._removes.discard(member)
            self._adds.add(member)
            self.send_if_due(now)

    def refuses(self, member: Member) -> str | None:
        """Why this member cannot be attached, or become ready: the record does not count it among the members."""
        if member.node == self.members.leaving:
            return f"{member.node} is being removed from the cluster"
        return objection_to(self.record, member)

    def forget_add(self, member: Member) -> None:
        """Its attachment has ended: what was wished for is wished no more. What is on its way still counts."""
        self._adds.discard(member)

    def remove(self, member: Member, now: float) -> None:
        """Take a member out; it counts until that is stored."""
        self._adds.discard(member)
        if member in self.counted() and member not in self._removes:
            self._removes.add(member)
            self.send_if_due(now)

    def release(self, preferred: str, now: float, leave_to: Iterable[Member] = ()) -> None:
        """Give the lease up, so that another can take over at once.

        Leave the ready set too, if one of ``leave_to`` stays in it: these hold what has been told, and can be reached.
        """
        self._release = preferred
        self._leave_to = frozenset(leave_to) - {self._me}
        self.send_if_due(now)

    def send_if_due(self, now: float) -> None:
        """Send the next change: at once when something is wanted, else when the lease is due to be renewed."""
        if self.in_flight is not None or self.lost or self.released:
            return
        wanted = self._adds or self._removes or self.releasing or self.members.wanted
        if not wanted and now - self._sent_at < self._length.renew_every(self._shorter_by):
            return
        ready = [m for m in self.record.ready if m not in self._removes]
        ready += sorted(m for m in self._adds if m not in ready)
        if not self._leave_to.isdisjoint(ready):
            ready = [m for m in ready if m != self._me]
        if self._adds:
            self._unresolved |= self._adds
            self._counted_by = None
        renewed = msgspec.structs.replace(
            self.record,
            version=self.record.version + 1,
            ready=tuple(ready),
            released=self.releasing,
            preferred=self._release or "",
        )
        wished = self.members.carried_by(renewed)
        self._sent_at = now
        self.in_flight = CompareAndSet(self.record.version, wished)
        self._emit(self.in_flight)

    def stored(self, record: Record) -> None:
        """Our change has been made, and synced."""
        self.in_flight = None
        self.record = record
        self._lease_until = max(self._sent_at, self._renewed_at) + self._lease_seconds
        self._unresolved.clear()
        self._counted_by = None
        self._holds_back = False
        self._adds -= set(record.ready)
        self._removes &= set(record.ready)
        self._settle_members()

    def renewed(self, begun_at: float) -> None:
        """The coordination store has renewed this generation's lease unasked, and begun with that at this time.

        Such a renewal changes nothing else, so the record that is known here stays (``ha.membership.watchdog``).
        """
        self._renewed_at = max(self._renewed_at, begun_at)
        self._lease_until = max(self._lease_until, self._renewed_at + self._lease_seconds)

    def conflict(self, current: Record | None) -> None:
        """The version had moved: by an earlier change of our own that was thought lost, or by another primary.

        Or an operator has discarded the store of a node that had ended, and made sure before that it is not listed.
        That it has ended may not have been heard here yet, so no node is added before our next change, a round of the
        loop later at least (``discarded_while_an_addition_is_on_its_way``).
        """
        self.in_flight = None
        if current is not None and self._continues(current):
            self.record = current
            self._adds.clear()
            self._holds_back = True
            self._settle_members()
        else:
            self.lost = True

    def farewell(self, current: Record | None) -> str:
        """Why the role of the primary ends with this record, for people."""
        if self.released:
            return "the lease was handed over"
        if current is None:
            return "the coordination record is gone"
        known = self.record
        if current.cluster_id != known.cluster_id or current.generation < known.generation:
            return "the coordination record was replaced"
        return "another node is primary" if current.primary else "the lease is not ours any more"

    def _continues(self, current: Record) -> bool:
        """Whether it came about by changes of ours, or by a removal.

        A lower version is an older copy that took the record's place.
        """
        mine = self.record
        ours = (current.primary, current.generation, current.cluster_id) == (self._me, mine.generation, mine.cluster_id)
        return ours and current.version >= mine.version

    def _settle_members(self) -> None:
        """A change of the members has landed, or not: who does not belong any more is not added."""
        self.members.settle(self.record)
        self._adds = {each for each in self._adds if objection_to(self.record, each) is None}

    def failed(self) -> None:
        """The outcome is unknown; the lease runs on and the next change goes out when it is due."""
        self.in_flight = None
