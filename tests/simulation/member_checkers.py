"""Who belongs to the cluster, counted here from the record alone: what is removed comes to nothing (P10), and what
``min_ready`` says holds at each commit (P2)."""

from __future__ import annotations

from dataclasses import dataclass, field

from ha.membership.belonging import membership_of
from ha.membership.member_changes import UNKNOWN
from ha.membership.members import ADD, MOVE, REMOVE, MemberChange
from ha.membership.node_state import ACTIVE, CATCHUP, READY, RECOVERING
from ha.membership.record import Record
from tests.simulation.book import Attempt
from tests.simulation.checker import Checker
from tests.simulation.seen import Process
from txobserver.ids import Member


@dataclass(frozen=True)
class Standing:
    """Of one version: the members, those of them that have been ready since they were added, and the stores that were
    removed; how many were ready, and how many must be."""

    nodes: frozenset[str] = frozenset()
    counting: frozenset[str] = frozenset()
    removed: frozenset[Member] = frozenset()
    ready: int = 0
    needed: int = 1


@dataclass
class Known:
    """What the record has shown so far. ``stores``: of each node, the one that it was last ready with."""

    number: int = 0
    stores: dict[str, Member] = field(default_factory=dict)
    counting: set[str] = field(default_factory=set)
    removed: set[Member] = field(default_factory=set)


class Members(Checker):
    """Looks only where the record says who is a member."""

    promise = "P10"

    def __init__(self, truth: object) -> None:
        super().__init__(truth)  # type: ignore[arg-type]
        self.standings: dict[int, Standing] = {}
        self.changes = 0
        self._known: Known | None = None
        self._nodes: frozenset[str] = frozenset()
        self._ports: dict[int, int] = {}
        self._refused: set[int] = set()
        self._last = Standing()
        self._before: Record | None = None

    def record_changed(self, record: Record) -> None:
        """The next version."""
        before, self._before = self._before, record
        membership = membership_of(record)
        if before is not None and record.version <= before.version:  # written anew by an operator
            self._known, self.standings = None, {}
        if membership is None:
            if self._known is not None:
                self.fail(f"version {record.version} says no more who is a member")
            return
        names = frozenset(each.name for each in membership.nodes)
        known = self._known or self._founded(record, before, names)
        if membership.number not in (known.number, known.number + 1):
            self.fail(f"change {membership.number} of the members follows {known.number}")
        if membership.number == known.number and names != self._nodes:
            self.fail(f"the members are {sorted(names)} and not {sorted(self._nodes)}, by no change")
        self.changes += membership.number - known.number
        known.number = membership.number
        for gone in self._nodes - names:
            known.counting.discard(gone)
            if gone in known.stores:
                known.removed.add(known.stores.pop(gone))
        for member in record.ready:
            if member.node not in names:
                self.fail(f"{member} is ready in version {record.version}, and no member")
            if member in known.removed:
                self.fail(f"{member} is ready in version {record.version}, and was removed")
            known.stores[member.node] = member
            known.counting.add(member.node)
        if {each.name for each in membership.nodes if each.counts} != known.counting:
            self.fail(f"{membership} counts others than {sorted(known.counting)}")
        self._look_at_ports(record, [each.port for each in membership.nodes])
        self._stand(record, names, known)

    def _founded(self, record: Record, before: Record | None, names: frozenset[str]) -> Known:
        """The nodes of the files count from the first change on; the one that it has added does not."""
        assert before is not None
        founding = set(self.truth.cluster.founding)
        self._nodes = frozenset(founding)
        stores = {member.node: member for member in before.ready}
        self._known = Known(0, stores, founding & (names | self._nodes))
        return self._known

    def _stand(self, record: Record, names: frozenset[str], known: Known) -> None:
        counting = len(known.counting)
        needed = counting // 2 + 1 if counting > 2 else 1
        if not self.truth.cluster.settings.follow_members:
            needed = self.truth.cluster.settings.min_ready
        before, ready = self._last, len(record.ready)
        changed = names != self._nodes or counting > len(before.counting)
        if changed and before.nodes and before.ready >= before.needed and ready < needed:
            self.fail(f"version {record.version} stops the commits: {ready} are ready, and {needed} must be")
        now = Standing(names, frozenset(known.counting), frozenset(known.removed), ready, needed)
        self._nodes, self._last, self.standings[record.version] = names, now, now

    def _look_at_ports(self, record: Record, ports: list[int]) -> None:
        for port in ports:
            self._ports.setdefault(port, record.version)
            if port in self._refused:
                self.fail(f"the change to port {port} was refused, and stands in version {record.version}")

    def answered(self, process: Process, attempt: Attempt | None, ok: bool) -> None:
        """Nothing is committed while too few are ready, as far as the primary knows."""
        leading = process.core.leading
        standing = self.standings.get(leading.keeper.record.version) if leading is not None else None
        if ok and attempt is not None and standing is not None and standing.ready < standing.needed:
            self.truth.fail("P2", f"{process.name} commits with {standing.ready} ready, and {standing.needed} must be")

    def turned(self, process: Process) -> None:
        """Who knows that it is no member follows no primary and is none; and a primary has no such backup."""
        record = process.core.record
        standing = self.standings.get(record.version) if record is not None else None
        if standing is None or process.core.failed:
            return
        member = process.disk.member
        if _stranger(member, standing) and process.core.state in (CATCHUP, READY, RECOVERING, ACTIVE):
            self.fail(f"{member} is {process.core.state}, and knows that it is no member")
        leading = process.core.leading
        for session in leading.backups.sessions.values() if leading is not None else ():
            if _stranger(session.member, standing):
                self.fail(f"{session.member} is attached to {process.name}, and is no member")

    def member_answered(self, process: Process, change: MemberChange, before: int, error: str | None) -> None:
        """An operator is told what became of a change; ``before``: the version when it was asked for."""
        stands = self._before is not None and membership_of(self._before) is not None
        if error is None and change.kind in (ADD, MOVE) and change.port not in self._ports:
            self.fail(f"{change} is told to be done, and is not")
        if error is None and change.kind == REMOVE and stands and not self._was_out(change.name, before):
            self.fail(f"{change} is told to be done, and {change.name} was a member all the time")
        if error is not None and error != UNKNOWN and change.kind in (ADD, MOVE):
            self._refused.add(change.port)
            if change.port in self._ports:
                self.fail(f"{change} is told not to be done ({error}), and is")

    def _was_out(self, name: str, before: int) -> bool:
        return any(name not in each.nodes for version, each in self.standings.items() if version >= before)


def _stranger(member: Member, standing: Standing) -> bool:
    return member.node not in standing.nodes or member in standing.removed
