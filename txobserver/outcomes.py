"""Outcomes: what is remembered of transactions that have a name, for how long, and what a question is answered with.

A name is the xid of a branch, a token that a client gave to a plain transaction, or a global transaction, which its
decision makes known. Nodes remember the same: what is forgotten follows from the stream alone, from the number of
outcomes and from the times that primaries wrote into decisions.

Those times are of wall clocks, which jump, and of several primaries, whose clocks differ. So age is measured on a clock
of the stream's own. From one decision to the next it goes on by what their times differ, but by no more than
``LONGEST_STEP_MS``, and never back. A jump makes outcomes older by one such step at most, and a clock that is set right
again counts from there on (``clock_jump_forgets_outcomes``). Where decisions are rarer than that, outcomes live longer.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Iterable
from enum import IntEnum
from typing import Annotated, NamedTuple

import msgspec

from txobserver.xid import Bqual, FormatId, Global, Gtrid, Xid

Name = Xid | bytes
"""What a transaction goes by. A ``bytes`` is a token."""

HIGHEST = (1 << 63) - 1

KEPT = 100_000
KEPT_MS = 86_400_000
"""How many outcomes of each kind are kept, and for how many milliseconds, unless ``keep`` says otherwise."""

Number = Annotated[int, msgspec.Meta(ge=0, le=HIGHEST)]

LONGEST_STEP_MS = 60_000
"""By how much one decision can make all outcomes older; a tenth of the time for which they are kept, if that is less.
"""


class BranchOutcome(IntEnum):
    """What has become of a branch, of a plain transaction with a token or of a global one, or what is to become of it.

    The one word for that at every component: a node answers ``dtx.outcome`` with it, by these numbers; a database's
    branch is described by it; a recovery plan says by it how a branch should end. Reports in JSON use ``word``.
    """

    UNKNOWN = 0
    """Never heard of, and not forgotten either. Of a resource that keeps no trace: it does not know any more, so of a
    rollback nothing has to be remembered, and of a commit it is no success. Of a plan: an operator has to find out."""
    PENDING = 1
    """Something of it is on its way to the commit point: ask again."""
    COMMITTED = 2
    ROLLED_BACK = 3
    HEURISTICALLY_COMMITTED = 4
    HEURISTICALLY_ROLLED_BACK = 5
    MIXED = 6
    EXPIRED = 7
    """Not remembered, which may be because it has been forgotten by age or by number."""
    PREPARED = 8
    ACTIVE = 9
    """Begun, and not closed."""

    @property
    def word(self) -> str:
        """The name in reports and sentences, as ``rolled back``."""
        return self.name.lower().replace("_", " ")

    @classmethod
    def of_word(cls, word: str) -> BranchOutcome:
        """The outcome that has this ``word``. Raises ValueError."""
        for each in cls:
            if each.word == word:
                return each
        raise ValueError(f"{word!r} is no outcome")

    def contradicts(self, commit: bool) -> bool:
        """Whether that is known to be something else than what was decided."""
        return self is BranchOutcome.MIXED or self._committed is (not commit)

    def confirms(self, commit: bool) -> bool:
        """Whether that is known to be what was decided."""
        return self._committed is commit

    @property
    def _committed(self) -> bool | None:
        if self in (BranchOutcome.COMMITTED, BranchOutcome.HEURISTICALLY_COMMITTED):
            return True
        return False if self in (BranchOutcome.ROLLED_BACK, BranchOutcome.HEURISTICALLY_ROLLED_BACK) else None

    @property
    def heuristic(self) -> bool:
        """Whether it was decided without the coordinator."""
        return self is BranchOutcome.MIXED or self.name.startswith("HEURISTICALLY")


class XaStatus(IntEnum):
    """What start, end, prepare, commit and rollback are answered with (AMQP 0-10, dtx.xa-status)."""

    OK = 0
    ROLLED_BACK = 1
    TIMED_OUT = 2
    HEURISTIC_HAZARD = 3
    HEURISTICALLY_COMMITTED = 4
    HEURISTICALLY_ROLLED_BACK = 5
    MIXED = 6
    READ_ONLY = 7


class GlobalState(NamedTuple):
    """A global transaction: its ``decision`` (UNKNOWN for none), and what became of each branch."""

    decision: BranchOutcome
    branches: dict[Xid, BranchOutcome]


class PreparedBranch(msgspec.Struct, frozen=True):
    """A branch that is prepared. ``generation`` is the one that it began in, ``prepared_ms`` milliseconds since 1970.

    ``enqueues``: messages for each queue. ``locked``: the messages that it dequeues, each (offset, replication id).
    """

    xid: Xid
    tx: int
    generation: int
    prepared_ms: int
    enqueues: dict[int, int]
    locked: dict[int, list[tuple[int, int]]]


class Kind(IntEnum):
    """What an outcome is remembered of. ``HEURISTIC``: of a branch, until it is forgotten on purpose."""

    BRANCH = 0
    HEURISTIC = 1
    TOKEN = 2
    GLOBAL = 3


class Remembered(msgspec.Struct, array_like=True, frozen=True):
    """One outcome. A token stands in ``gtrid``. ``sequence``: of the decision; ``at_ms``: when, by its primary.

    ``clock_ms``: when, by the stream's own clock, from which its age counts; 0, if stored without it: as ``at_ms``.
    """

    kind: Kind
    format_id: FormatId
    gtrid: Gtrid
    bqual: Bqual
    commit: bool
    sequence: Number
    at_ms: Number
    clock_ms: Number = 0

    @property
    def key(self) -> bytes:
        """Names it in a store: no two outcomes that are remembered at a time have the same."""
        branch = self.kind in (Kind.BRANCH, Kind.HEURISTIC)
        head = (Kind.BRANCH if branch else self.kind, *self.format_id.to_bytes(4, "big"), len(self.gtrid))
        return bytes(head) + self.gtrid + self.bqual

    @property
    def digest(self) -> int:
        """64 bits of what it says, to be summed up. ``OutcomesMeta`` has the clock."""
        said = b"%d %d %d %d " % (self.kind, self.commit, self.sequence, self.at_ms) + self.key
        return zlib.crc32(said) << 32 | zlib.crc32(said, 1)


class OutcomesMeta(msgspec.Struct, array_like=True, frozen=True):
    """What a checkpoint keeps of the outcomes beside themselves.

    ``expired``: for each kind the sequence of the youngest outcome that was forgotten by age or by number (the
    low-water mark); 0 for none. ``clock_ms``: the stream's own clock. ``stamp_ms``: the time in the last decision; 0 in
    what was stored when that clock was the greatest time in the stream.
    """

    count: Number = 0
    digest: Number = 0
    clock_ms: Number = 0
    expired: tuple[Number, Number, Number, Number] = (0, 0, 0, 0)
    stamp_ms: Number = 0


class Outcomes:
    """All that is remembered, as of what has been applied.

    Of each kind so many of the last are kept, and of these the young ones; but every heuristic one is.
    """

    def __init__(self, meta: OutcomesMeta, remembered: Iterable[Remembered]) -> None:
        self._kept, self._kept_ms = KEPT, KEPT_MS
        self.branches: OrderedDict[Xid, Remembered] = OrderedDict()
        self.heuristics: OrderedDict[Xid, Remembered] = OrderedDict()
        self.tokens: OrderedDict[bytes, Remembered] = OrderedDict()
        self.globals: OrderedDict[Global, Remembered] = OrderedDict()
        self._of_global: dict[Global, dict[Xid, None]] = {}
        self._changes: dict[bytes, Remembered | None] = {}
        self._anew = False
        self._load(meta, remembered)

    def _load(self, meta: OutcomesMeta, remembered: Iterable[Remembered]) -> None:
        for table in (self.branches, self.heuristics, self.tokens, self.globals):
            table.clear()
        self._of_global.clear()
        self._count = self._digest = 0
        self._clock_ms, self._expired = meta.clock_ms, list(meta.expired)
        self._stamp_ms = meta.stamp_ms
        for each in sorted(remembered, key=lambda one: one.sequence):
            self._put(each)
        self._changes.clear()

    def keep(self, number: int, seconds: float) -> None:
        """How many of each kind are kept, and for how long. All nodes of a cluster must agree on that."""
        self._kept, self._kept_ms = number, int(seconds * 1000)

    def replace(self, meta: OutcomesMeta, remembered: Iterable[Remembered]) -> None:
        """A primary's snapshot takes the place of everything."""
        self._load(meta, remembered)
        self._anew = True

    def all(self) -> list[Remembered]:
        """Everything that is remembered."""
        return [
            *self.branches.values(),
            *self.heuristics.values(),
            *self.tokens.values(),
            *self.globals.values(),
        ]

    @property
    def meta(self) -> OutcomesMeta:
        """What a checkpoint or a snapshot says of them. Equal at all nodes that have applied the same."""
        branch, heuristic, token, decision = self._expired
        expired = (branch, heuristic, token, decision)
        return OutcomesMeta(self._count, self._digest, self._clock_ms, expired, self._stamp_ms)

    def take_changes(self) -> tuple[dict[bytes, Remembered | None], bool]:
        """What changed since the last call, by key, and whether nothing of what was before counts."""
        changes, self._changes = self._changes, {}
        if self._anew:
            changes = {each.key: each for each in self.all()}
        anew, self._anew = self._anew, False
        return changes, anew

    def remember(self, each: Remembered) -> None:
        """One more, decided at ``at_ms`` by its primary's clock. What is too old now, or too many, is forgotten."""
        at_ms = min(max(each.at_ms, 1), HIGHEST)
        self._pass_time(at_ms)
        each = msgspec.structs.replace(each, at_ms=at_ms, clock_ms=self._clock_ms)
        self._drop(self._find(each))
        self._put(each)
        self._changes[each.key] = each
        for table in (self.branches, self.tokens, self.globals):
            while table and self._is_past(first := next(iter(table.values())), len(table)):
                self._expired[first.kind] = max(self._expired[first.kind], first.sequence)
                self._drop(first)

    def forget(self, name: Name | Global) -> bool:
        """Remember this no more; False if it was not."""
        found = self.find(name)
        self._drop(found)
        return found is not None

    def find(self, name: Name | Global) -> Remembered | None:
        """What is remembered of it."""
        if isinstance(name, Xid):
            return self.branches.get(name) or self.heuristics.get(name)
        return self.globals.get(name) if isinstance(name, Global) else self.tokens.get(name)

    def of(self, name: Name | Global, since: int = 0) -> BranchOutcome:
        """The outcome as it is remembered: EXPIRED rather than UNKNOWN if it may have been forgotten.

        It cannot have been if it was decided behind the sequence ``since``, and nothing from there on was forgotten.
        """
        found = self.find(name)
        if found is None:
            kind = Kind.BRANCH if isinstance(name, Xid) else Kind.GLOBAL if isinstance(name, Global) else Kind.TOKEN
            return BranchOutcome.EXPIRED if self._expired[kind] > since else BranchOutcome.UNKNOWN
        if found.kind is Kind.HEURISTIC:
            return BranchOutcome.HEURISTICALLY_COMMITTED if found.commit else BranchOutcome.HEURISTICALLY_ROLLED_BACK
        return BranchOutcome.COMMITTED if found.commit else BranchOutcome.ROLLED_BACK

    def branches_of(self, globally: Global) -> list[Xid]:
        """The branches of a global transaction whose outcomes are remembered."""
        return list(self._of_global.get(globally, ()))

    def _pass_time(self, stamp_ms: int) -> None:
        """A decision with this time. The step is bounded here, at every node, since a stamp may be of any clock."""
        longest = min(LONGEST_STEP_MS, self._kept_ms // 10 or 1)
        self._clock_ms += min(max(stamp_ms - (self._stamp_ms or self._clock_ms), 0), longest)
        self._stamp_ms = stamp_ms

    def _is_past(self, each: Remembered, number: int) -> bool:
        return number > self._kept or (each.clock_ms or each.at_ms) < self._clock_ms - self._kept_ms

    def _find(self, each: Remembered) -> Remembered | None:
        return self.find(name_of(each))

    def _put(self, each: Remembered) -> None:
        name = name_of(each)
        if isinstance(name, Xid):
            (self.heuristics if each.kind is Kind.HEURISTIC else self.branches)[name] = each
            self._of_global.setdefault(name.globally, {})[name] = None
        elif isinstance(name, Global):
            self.globals[name] = each
        else:
            self.tokens[name] = each
        self._count += 1
        self._digest = (self._digest + each.digest) % (1 << 63)

    def _drop(self, each: Remembered | None) -> None:
        if each is None:
            return
        name = name_of(each)
        if isinstance(name, Xid):
            del (self.heuristics if each.kind is Kind.HEURISTIC else self.branches)[name]
            siblings = self._of_global[name.globally]
            del siblings[name]
            if not siblings:
                del self._of_global[name.globally]
        elif isinstance(name, Global):
            del self.globals[name]
        else:
            del self.tokens[name]
        self._changes[each.key] = None
        self._count -= 1
        self._digest = (self._digest - each.digest) % (1 << 63)


def name_of(each: Remembered) -> Name | Global:
    """What this is the outcome of."""
    if each.kind is Kind.TOKEN:
        return each.gtrid
    if each.kind is Kind.GLOBAL:
        return Global(each.format_id, each.gtrid)
    return Xid(each.format_id, each.gtrid, each.bqual)


def remembered_of(name: Name, commit: bool, heuristic: bool, sequence: int, at_ms: int) -> Remembered:
    """The outcome of a transaction."""
    if isinstance(name, Xid):
        kind = Kind.HEURISTIC if heuristic else Kind.BRANCH
        return Remembered(kind, name.format_id, name.gtrid, name.bqual, commit, sequence, at_ms)
    return Remembered(Kind.TOKEN, 0, name, b"", commit, sequence, at_ms)
