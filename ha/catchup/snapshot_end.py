"""The end of a snapshot, cut at one position of the stream and sent in slices.

Everything is taken at once, by reference: what the primary applies while the slices go out comes behind the cut
(``snapshot_with_later_configuration``). So are the events of tx-queues, which may end meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import msgspec

from ha.apply.replica import Replica
from ha.messages.copying import (
    ForwardOutcomes,
    ForwardTx,
    SnapshotAccess,
    SnapshotCalls,
    SnapshotConfiguration,
    SnapshotEnd,
    SnapshotPart,
    SnapshotQueues,
)
from ha.messages.sizes import COUNT, OVERHEAD, event_bytes, slices
from txobserver.access import Access, User
from txobserver.audited import KeptChange
from txobserver.calls import KeptCall, KeptCalls
from txobserver.configuration import BindingSpec, ExchangeSpec, QueueSpec
from txobserver.ids import Position
from txobserver.outcomes import Remembered
from txobserver.rules import Rule
from txobserver.tx_buffer import Run

Spec = QueueSpec | ExchangeSpec | BindingSpec
_encode = msgspec.msgpack.Encoder().encode
QUEUE_BYTES = 40
"""Bytes of a queue's number, count, digest and delivery watermark."""


class Ending:
    """One joiner's end of the snapshot. ``limit``: bytes of a slice."""

    def __init__(self, replica: Replica, generation: int, session: int, limit: int) -> None:
        contents = replica.contents
        self._generation = generation
        self._session = session
        self._limit = limit
        self._end: Position = replica.applied
        self._history = [start for start in replica.history if start.sequence <= self._end.sequence]
        self._configuration = contents.configuration.copy()
        self._calls = contents.calls.copy()
        self._access = contents.access.copy()
        self._queues = [
            (number, each.count, each.digest, each.watermark)
            for number in sorted(self._configuration.numbers())
            for each in (contents.queues.summary(number),)
        ]
        self._open: list[tuple[int, list[Run]]] = [
            (each.tx, each.between(0, self._end.sequence))
            for each in replica.buffers.values()
            if each.opened <= self._end.sequence
        ]
        self._leftovers = contents.leftovers
        self._remembered = contents.table.outcomes.all()
        self._outcomes = contents.table.outcomes.meta

    def parts(self) -> Iterator[tuple[SnapshotPart, int]]:
        """Each message, in the order of sending, with its size."""
        yield from self._declared()
        for queues in slices(self._queues, lambda each: QUEUE_BYTES, self._limit):
            yield SnapshotQueues(self._generation, self._session, queues), QUEUE_BYTES * len(queues)
        yield from self._called()
        yield from self._let_in()
        transactions: list[tuple[int, int]] = []
        for tx, runs in self._open:
            yield from self._forwarded(tx, runs, transactions)
        for remembered in slices(self._remembered, _outcome_bytes, self._limit):
            part = ForwardOutcomes(self._generation, self._session, remembered)
            yield part, sum(_outcome_bytes(each) for each in remembered)
        declared = self._configuration
        counts = len(declared.queues), len(declared.exchanges), len(declared.bindings)
        end = SnapshotEnd(
            self._generation,
            self._session,
            self._end,
            self._history,
            declared.last_id,
            counts,
            transactions,
            self._outcomes,
        )
        yield end, OVERHEAD + COUNT * len(transactions)

    def _declared(self) -> Iterator[tuple[SnapshotPart, int]]:
        configuration = self._configuration
        specs: list[Spec] = [*configuration.queues.values(), *configuration.exchanges.values(), *configuration.bindings]
        for run in slices(specs, _spec_bytes, self._limit):
            part = SnapshotConfiguration(
                self._generation,
                self._session,
                [each for each in run if isinstance(each, QueueSpec)],
                [each for each in run if isinstance(each, ExchangeSpec)],
                [each for each in run if isinstance(each, BindingSpec)],
            )
            yield part, sum(_spec_bytes(each) for each in run)

    def _called(self) -> Iterator[tuple[SnapshotPart, int]]:
        """What is kept of cluster calls, if there ever was one: a joiner that knows of none is sent nothing."""
        if not self._calls.events:
            return
        digest = self._calls.digest()
        rest: KeptCalls | None = msgspec.structs.replace(self._calls, kept=[])
        for kept in slices(self._calls.kept, _call_bytes, self._limit) if self._calls.kept else iter([[]]):
            part = SnapshotCalls(self._generation, self._session, digest, kept, rest)
            yield part, sum(_call_bytes(each) for each in kept)
            rest = None

    def _let_in(self) -> Iterator[tuple[SnapshotPart, int]]:
        """The users, if the cluster keeps them: a joiner that knows of none is not attached then."""
        if not self._access.events:
            return
        digest = self._access.digest()
        rest: Access | None = msgspec.structs.replace(self._access, users={}, changes=[], rules={})
        users = list(self._access.users.values())
        for part in slices(users, _user_bytes, self._limit) if users else iter([[]]):
            yield SnapshotAccess(self._generation, self._session, digest, part, rest), sum(map(_user_bytes, part))
            rest = None
        for run in slices(self._access.changes, _change_bytes, self._limit) if self._access.changes else ():
            part_ = SnapshotAccess(self._generation, self._session, digest, [], None, run)
            yield part_, sum(map(_change_bytes, run))
        rules = list(self._access.rules.values())
        for rules_ in slices(rules, _rule_bytes, self._limit) if rules else ():
            part_ = SnapshotAccess(self._generation, self._session, digest, [], None, [], rules_)
            yield part_, sum(map(_rule_bytes, rules_))

    def _forwarded(
        self, tx: int, runs: list[Run], transactions: list[tuple[int, int]]
    ) -> Iterator[tuple[SnapshotPart, int]]:
        """One tx-queue's events up to the cut; how many those are is added to ``transactions``."""
        count = 0
        for part in slices(chain.from_iterable(runs), lambda each: event_bytes(each[1]), self._limit):
            count += len(part)
            yield ForwardTx(self._generation, self._session, tx, part), sum(event_bytes(e) for _, e in part)
        transactions.append((tx, count))
        for run in runs:
            self._leftovers.add(run)


def _user_bytes(user: User) -> int:
    """Bytes of a user."""
    return len(_encode(user))


def _change_bytes(change: KeptChange) -> int:
    """Bytes of a change that is kept."""
    return len(_encode(change))


def _rule_bytes(rule: Rule) -> int:
    """Bytes of a rule."""
    return len(_encode(rule))


def _call_bytes(kept: KeptCall) -> int:
    """Bytes of a call that is kept."""
    return OVERHEAD + len(_encode(kept.record))


def _spec_bytes(spec: Spec) -> int:
    """Exactly: arguments are as large as one AMQP frame allows."""
    return len(_encode(spec))


def _outcome_bytes(remembered: Remembered) -> int:
    return OVERHEAD + len(remembered.gtrid) + len(remembered.bqual)
