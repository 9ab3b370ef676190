"""Faults put into the protocol on purpose, each one minimal change, and the promise whose checker must find it.

``plant`` makes the change for as long as the ExitStack is open. Nothing here is ever switched on but by the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import msgspec

from broker_plugin.embedded.durable_queue import DurableQueue
from broker_plugin.embedded.topology import Route, Topology
from broker_plugin.embedded.transaction import Transaction
from ha import backups as backups_module
from ha.backup import Backup
from ha.backups import Backups
from ha.candidate import Candidate
from ha.coordination import MemoryCoordination
from ha.node_core import NodeCore
from ha.primary import Primary
from ha.queue_replicator import QueueReplicator
from ha.record_keeper import RecordKeeper
from ha.replica import Replica
from ha.resync import Resync
from ha.settings import Settings
from ha.transactions import Transactions
from ha.tx_tracker import TxTrackers
from ha.wire import Ack, Entries
from recovery.log import Log
from tests.simulation.run import Result, Run
from txobserver.contents import Contents
from txobserver.effects import CompareAndSet, Persist, Send
from txobserver.events import TxDequeue, TxEnqueue, TxPrepare
from txobserver.ids import Position
from txobserver.tx_buffer import TxBuffer


@dataclass(frozen=True)
class Seeded:
    """``promises``: whose checkers may find it; ``rare``: it takes some hundred seeds."""

    name: str
    promises: tuple[str, ...]
    plant: Callable[[ExitStack], None]
    rare: bool = False


SEEDED: list[Seeded] = []


def seeded(*promises: str, rare: bool = False) -> Callable[[Callable[[ExitStack], None]], Callable[[ExitStack], None]]:
    """Register a fault under the name of its function."""

    def register(plant: Callable[[ExitStack], None]) -> Callable[[ExitStack], None]:
        SEEDED.append(Seeded(plant.__name__, promises, plant, rare))
        return plant

    return register


def find(fault: Seeded, seeds: int, first: int = 0) -> Result | None:
    """The first seed in which the fault breaks the promise that it was meant to break."""
    with ExitStack() as stack:
        fault.plant(stack)
        for seed in range(first, first + seeds):
            result = Run(seed).run()
            if result.promise in fault.promises:
                return result
    return None


def replace(stack: ExitStack, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """For as long as the stack is open, ``owner.name`` is what ``make`` makes of it."""
    stack.enter_context(patch.object(owner, name, make(owner.__dict__[name])))


# -- durability


@seeded("P11")
def backup_acknowledges_before_sync(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def entries(self: Backup, message: Any) -> None:
            emit = self._emit

            def early(effect: Any) -> None:
                if isinstance(effect, Persist) and effect.then is not None:
                    then = effect.then
                    emit(Persist(effect.frame))
                    emit(Send(then.peer, Ack(then.generation, then.session, then.sequence)))
                else:
                    emit(effect)

            self._emit = early
            original(self, message)
            self._emit = emit

        return entries

    replace(stack, Backup, "entries", make)


@seeded("P11")
def primary_counts_its_log_before_sync(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def flush(self: Primary) -> None:
            original(self)
            self._replica.durable = self._replica.tail.sequence

        return flush

    replace(stack, Primary, "flush", make)


@seeded("P11")
def log_is_written_and_not_synced(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def append(self: Log, frames: Any) -> None:
            sync, self._files.sync = self._files.sync, lambda descriptor: None  # type: ignore[method-assign]
            try:
                original(self, frames)
            finally:
                self._files.sync = sync  # type: ignore[method-assign]

        return append

    replace(stack, Log, "_append", make)


@seeded("P11", rare=True)
def log_found_at_the_start_is_not_synced(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def reopen(self: Log, first: int, end: int) -> None:
            sync, self._files.sync = self._files.sync, lambda descriptor: None  # type: ignore[method-assign]
            try:
                original(self, first, end)
            finally:
                self._files.sync = sync  # type: ignore[method-assign]

        return reopen

    replace(stack, Log, "_reopen", make)


@seeded("P11", "P2")
def absent_members_are_not_waited_for(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def durable_everywhere(self: Backups) -> int:
            return min([self._replica.durable, *(s.acknowledged for s in self.sessions.values() if s.past_guard)])

        return durable_everywhere

    replace(stack, Backups, "durable_everywhere", make)


@seeded("P11", "P9")
def an_add_under_way_does_not_count(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def send_if_due(self: RecordKeeper, now: float) -> None:
            original(self, now)
            self._unresolved.clear()

        return send_if_due

    replace(stack, RecordKeeper, "send_if_due", make)
    replace(stack, Backups, "durable_everywhere", lambda original: _counted_only)


def _counted_only(self: Backups) -> int:
    """As the product's, without the joiners that are past their guards."""
    acknowledged = [self._replica.durable]
    for member in self._keeper.counted():
        session = self.sessions.get(member.node)
        acknowledged.append(session.acknowledged if session is not None and session.member == member else 0)
    return min(acknowledged)


@seeded("P11")
def a_removal_under_way_counts_as_made(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def counted(self: RecordKeeper) -> Any:
            return original(self) - self._removes

        return counted

    replace(stack, RecordKeeper, "counted", make)


@seeded("P2", "P11")
def confirms_before_the_commit_point(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def publish(self: Primary, queues: Any, message: Any, done: Any) -> None:
            original(self, queues, message, None)
            if done is not None:
                done(None)

        return publish

    replace(stack, Primary, "publish", make)


@seeded("P2", "P11")
def commit_answered_when_decided(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def decide(self: Primary, tx: int, commit: bool, done: Any) -> None:
            original(self, tx, commit, None)
            if done is not None:
                done(None)

        return decide

    replace(stack, Primary, "decide", make)


# -- who is primary, and who is ready


@seeded("P10")
def lease_never_ends(stack: ExitStack) -> None:
    replace(stack, RecordKeeper, "expired", lambda original: lambda self, now: self.lost)


@seeded("P10")
def lease_margin_dropped(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def init(self: RecordKeeper, record: Any, sent_at: float, me: Any, settings: Settings, emit: Any) -> None:
            original(self, record, sent_at, me, settings, emit)
            self._lease_seconds = settings.lease_ttl * 1.3

        return init

    replace(stack, RecordKeeper, "__init__", make)


@seeded("P10", rare=True)
def a_jump_of_the_clock_counts_as_waiting(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def watch(self: Candidate, now: float) -> None:
            self._stood += now - (self._ticked_at if self._ticked_at is not None else now)
            self._ticked_at = now

        return watch

    replace(stack, Candidate, "_watch", make)


@seeded("P10")
def promotion_without_a_new_generation(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def propose(self: Candidate, proposal: CompareAndSet, now: float) -> None:
            record: Any = proposal.record
            if proposal.expected:
                record = msgspec.structs.replace(record, generation=max(1, record.generation - 1))
            original(self, CompareAndSet(proposal.expected, record), now)

        return propose

    replace(stack, Candidate, "_propose", make)


@seeded("P10", "P9", "P6")
def the_store_takes_changes_of_another_version(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def compare_and_set(self: MemoryCoordination, expected: int, record: Any) -> Any:
            return original(self, self.record.version if self.record else 0, record)

        return compare_and_set

    replace(stack, MemoryCoordination, "compare_and_set", make)


@seeded("P2", "P6")
def promotion_from_outside_the_ready_set(stack: ExitStack) -> None:
    replace(stack, Candidate, "may_stand", lambda original: lambda self, record: True)


@seeded("P2")
def recovering_primary_serves(stack: ExitStack) -> None:
    replace(stack, Primary, "in_step", lambda original: property(lambda self: True))


@seeded("P10", rare=True)
def lower_generation_accepted(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def on_message(self: NodeCore, node: str, message: Any) -> None:
            if isinstance(message, Entries) and message.generation < self.generation and self.backup:
                message.session = self.backup.session
                self.backup.entries(message)
            else:
                original(self, node, message)

        return on_message

    replace(stack, NodeCore, "on_message", make)


@seeded("P6")
def resync_while_in_ready_set(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def join(self: Backups, node: str, join: Any, log_first: int, now: float) -> None:
            counted = self._keeper.counted
            self._keeper.counted = lambda: set()  # type: ignore[method-assign]
            try:
                original(self, node, join, log_first, now)
            finally:
                self._keeper.counted = counted  # type: ignore[method-assign]

        return join

    replace(stack, Backups, "join", make)


@seeded("P6", "P7")
def in_step_by_sequence_only(stack: ExitStack) -> None:
    replace(
        stack,
        backups_module,
        "common_sequence",
        lambda original: lambda ours, our_tail, theirs, their_tail: min(our_tail, their_tail),
    )


@seeded("P9")
def tracker_cleared_early(stack: ExitStack) -> None:
    replace(stack, TxTrackers, "track", lambda original: lambda self, tx, queues, prepared: None)


@seeded("P9")
def participants_taken_too_early(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def participants(self: Backups) -> Any:
            if not hasattr(self, "first_participants"):
                self.first_participants = original(self)  # type: ignore[attr-defined]
            return self.first_participants  # type: ignore[attr-defined]

        return participants

    replace(stack, Backups, "participants", make)


@seeded("P6")
def decided_before_all_have_prepared(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def prepare(self: Transactions, tx: int, count: int, participants: Any, done: Any) -> None:
            self._primary.append(TxPrepare(tx, count, list(participants)))
            self._primary.decide(tx, True, done)

        return prepare

    replace(stack, Transactions, "prepare", make)
    replace(stack, Backups, "closed", lambda original: lambda self, buffer: None)


# -- what a transaction leads to


@seeded("P4")
def abort_leaves_a_message(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def apply_decision(self: Replica, sequence: int, event: Any) -> None:
            buffer = self.buffers[event.tx]
            original(self, sequence, event)
            if not event.commit:
                for place, part in list(buffer.placed())[:1]:
                    if isinstance(part, TxEnqueue):
                        self._insert(place, part)

        return apply_decision

    replace(stack, Replica, "_apply_decision", make)
    _reapply(stack)


@seeded("P7")
def commit_forgets_what_was_acknowledged(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def placed(self: TxBuffer) -> Any:
            return (each for each in original(self) if not isinstance(each[1], TxDequeue))

        return placed

    replace(stack, TxBuffer, "placed", make)


@seeded("P1")
def a_publish_is_left_out_of_the_transaction(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def publish(self: Transaction, route: Any, message: Any, mandatory: bool) -> None:
            if not message.body.endswith(b"/2"):
                original(self, route, message, mandatory)

        return publish

    replace(stack, Transaction, "publish", make)


@seeded("P1")
def an_acknowledgement_is_left_out_of_the_transaction(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def settle(self: Transaction, held: Any, reason: Any) -> None:
            original(self, list(held) if not self.settled else [], reason)

        return settle

    replace(stack, Transaction, "settle", make)


@seeded("P1")
def a_count_tells_of_what_is_not_there(stack: ExitStack) -> None:
    replace(
        stack, DurableQueue, "ready", lambda original: property(lambda self: original.fget(self) + len(self._out) + 1)
    )


@seeded("P3")
def replication_id_without_its_generation(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def next_rid(self: Primary) -> int:
            self._rids += 1
            return self._rids

        return next_rid

    replace(stack, Primary, "_next_rid", make)


@seeded("P3")
def redelivery_without_the_mark(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def take(self: DurableQueue) -> Any:
            taken = original(self)
            return taken and (taken[0], False, taken[2])

        return take

    replace(stack, DurableQueue, "_take", make)


@seeded("P3")
def marked_as_redelivered_without_reason(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def take(self: DurableQueue) -> Any:
            taken = original(self)
            return taken and (taken[0], True, taken[2])

        return take

    replace(stack, DurableQueue, "_take", make)


@seeded("P3")
def marks_are_forgotten_at_a_failover(stack: ExitStack) -> None:
    replace(stack, Contents, "mark", lambda original: lambda self, queue, place: None)


@seeded("P3")
def handed_out_before_the_mark_is_durable(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def take(self: DurableQueue) -> Any:
            if self._window:
                self.mark = max(self.mark, self._window[0][0])
            return original(self)

        return take

    replace(stack, DurableQueue, "_take", make)


@seeded("P5")
def a_message_goes_to_another_queue(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def route(self: Topology, exchange: str, key: str, properties: bytes) -> Route:
            return original(self, exchange, "billing" if key == "stock" else key, properties)

        return route

    replace(stack, Topology, "route", make)


@seeded("P8")
def the_last_of_the_window_goes_first(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def take(self: DurableQueue) -> Any:
            if len(self._window) > 1 and self._window[1][0] <= self.mark:
                self._window.rotate(-1)
                taken = original(self)
                self._window.rotate(1)
                return taken
            return original(self)

        return take

    replace(stack, DurableQueue, "_take", make)


# -- joiners


@seeded("P6", "P7")
def snapshot_ends_one_event_early(stack: ExitStack) -> None:
    """What the skip sets of seed 003 were for: an event reaches the joiner twice."""

    def make(original: Any) -> Any:
        def end(self: QueueReplicator, message: Any) -> None:
            original(self, message)
            generation, sequence = message.position
            message.position = Position(generation, sequence - 1)

        return end

    replace(stack, QueueReplicator, "end", make)
    _stream_from(stack, -1)


@seeded("P6", "P7")
def snapshot_ends_one_event_late(stack: ExitStack) -> None:
    """An event behind the snapshot never reaches the joiner."""

    def make(original: Any) -> Any:
        def end(self: QueueReplicator, message: Any) -> None:
            original(self, message)
            generation, sequence = message.position
            message.position = Position(generation, sequence + 1)

        return end

    replace(stack, QueueReplicator, "end", make)
    _stream_from(stack, 1)


def _stream_from(stack: ExitStack, shift: int) -> None:
    """The primary goes along: it takes the shifted end for the end."""

    def make(original: Any) -> Any:
        def end(self: Resync) -> None:
            original(self)
            assert self.ended_at is not None
            self.ended_at += shift

        return end

    replace(stack, Resync, "_end", make)


@seeded("P7", "error", rare=True)
def snapshot_with_later_configuration(stack: ExitStack) -> None:
    from txobserver.configuration import Configuration

    def make(original: Any) -> Any:
        def end(self: Resync) -> None:
            with patch.object(Configuration, "copy", lambda configuration: configuration):
                original(self)

        return end

    replace(stack, Resync, "_end", make)


@seeded("P12")
def surplus_is_not_dropped(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def snapshot(self: QueueReplicator, message: Any) -> None:
            with patch.object(Contents, "remove", lambda contents, queue, place: None):
                original(self, message)

        return snapshot

    replace(stack, QueueReplicator, "snapshot", make)


# -- liveness


@seeded("P12")
def transactions_of_a_dead_primary_are_not_aborted(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def start(self: Primary, expected: Any) -> None:
            with patch.object(Replica, "undecided", lambda replica: []):
                original(self, expected)

        return start

    replace(stack, Primary, "start", make)


@seeded("P12", rare=True)
def silence_is_not_noticed(stack: ExitStack) -> None:
    replace(stack, Backup, "silent", lambda original: lambda self, now: False)


@seeded("P12", rare=True)
def handover_outlives_the_lease(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def expired(self: RecordKeeper, now: float) -> bool:
            return False if self._release is not None else original(self, now)

        return expired

    replace(stack, RecordKeeper, "expired", make)


@seeded("P12", rare=True)
def failing_primary_leaves_the_absent(stack: ExitStack) -> None:
    replace(stack, Backups, "others_hold", lambda original: lambda self, sequence: True)


def _reapply(stack: ExitStack) -> None:
    """The table of what applies an event names functions: let it name the present ones."""
    from ha import replica

    table = {event: getattr(Replica, function.__name__) for event, function in replica._APPLY.items()}
    stack.enter_context(patch.object(replica, "_APPLY", table))
