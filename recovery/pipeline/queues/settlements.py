"""Settlements: which messages of a queue have been read for good, and how they leave it.

Which messages have left the queue for good? That one is not delivered says nothing: a settlement on its way, whose
driver is gone, is taken back by a take-over, and an operator who looks at a message puts it back; either may be long
after later messages have come. What was done and comes again then must not be taken for new. So each settlement leaves
a record, in the same transaction, of the places that it and those before it have settled, as far as a checkpoint may
still name them. ``done`` ends for a place by that record, or by the answer to this driver's own settlement, and by
nothing else. The lock of the record is the consumer, which the queue has one of.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Collection, Iterable

from pika.adapters.blocking_connection import BlockingChannel

from recovery.dtx.errors import OperationalError, OutcomeUnknown, ProgrammingError, RolledBack, UnknownXid
from recovery.dtx.lost import LOST
from recovery.dtx.with_pika import DtxConnection
from recovery.pipeline.queues.kept import KeptRecord, Taken
from recovery.pipeline.queues.names import FORMAT, settled_queue
from recovery.pipeline.queues.places import settled_by, settled_record
from recovery.pipeline.queues.prefetched import Prefetched
from txobserver.xid import Xid


class Settlements:
    """Of one queue. ``done``: places that Spark has committed, and that may come (again); they leave it unseen."""

    def __init__(self, queue: str, done: Iterable[int]) -> None:
        self.done = set(done)
        self._queue = queue
        self._kept = KeptRecord(settled_queue(queue))
        self._learnt = False

    @property
    def record_queue(self) -> str:
        """The queue with the record of all settlements."""
        return self._kept.name

    def come_again(self) -> None:
        """A new channel delivers everything once more, also what another driver has settled since: the record says."""
        self._learnt = False

    def look(self, channel: BlockingChannel) -> None:
        """On each new channel, behind ``come_again``: whether there is a record. Raises pika's errors."""
        self._kept.look(channel)

    def settle(self, broker: DtxConnection, here: Prefetched, named: Collection[int] | None) -> None:
        """What is done leaves the queue as far as it is here. See ``QueueIntake.settle``. Raises OutcomeUnknown."""
        if not self.done or (self._learnt and self.done.isdisjoint(here.places)):
            return
        try:
            self._settle(broker, here, named)
        except OutcomeUnknown:
            raise
        except (OperationalError, *LOST):  # they come again
            _leave(broker)

    def _settle(self, broker: DtxConnection, here: Prefetched, named: Collection[int] | None) -> None:
        """Raises OutcomeUnknown; or OperationalError and pika's errors, and nothing is settled then."""
        held = self._record(broker)
        if held is None:
            return
        before = self._learnt_from(held)
        if not self.done.isdisjoint(here.places):
            self._exchange(broker, here, held, before if named is None else before.intersection(named))
        else:
            held.put_back()

    def _record(self, broker: DtxConnection) -> Taken | None:
        """None while a settlement is on its way, or an operator looks at the record: later. Raises pika's errors."""
        held = self._kept.take(broker.channel)
        if held is not None and held.tag is None:
            self._kept.make(held.channel)
            held = self._kept.take(held.channel)
        return held

    def learn(self, broker: DtxConnection) -> None:
        """What has been settled; and see to it that there is a record that can be asked for when that is needed.

        Raises pika's errors.
        """
        held = self._record(broker)
        if held is not None:
            self._learnt_from(held)
            held.put_back()

    def _learnt_from(self, held: Taken) -> frozenset[int]:
        found = settled_by(held.body)
        self.done -= found
        self._learnt = True
        return found

    def _exchange(self, broker: DtxConnection, here: Prefetched, held: Taken, before: frozenset[int]) -> None:
        """Settle what is done and here, and say so in the record. Raises as ``_settle``."""
        xid = Xid(FORMAT, b"settle." + secrets.token_hex(16).encode(), b"")
        broker.tpc_begin(xid)
        if broker.channel is not held.channel:
            raise OperationalError("the connection that held the record was lost")
        settled = here.acknowledge(broker.channel, self.done)
        self._kept.exchange(held, settled_record(self._queue, before | settled))
        broker.tpc_commit()
        self.done -= settled
        with contextlib.suppress(UnknownXid, OperationalError):
            broker.forget(xid)


def _leave(broker: DtxConnection) -> None:
    with contextlib.suppress(ProgrammingError, RolledBack, *LOST):
        broker.tpc_rollback()
    broker.reconnect()
