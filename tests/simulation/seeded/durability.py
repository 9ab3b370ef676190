"""Faults of durability: something is told before it is on every disk that counts."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from ha.backup.backup import Backup
from ha.effects import Persist, Send
from ha.membership.record_keeper import RecordKeeper
from ha.messages.stream import Ack
from ha.primary.attachments import Attachments
from ha.primary.backup_session import BackupSession
from ha.primary.client_ledger import ClientLedger
from ha.primary.fanout import Star
from ha.primary.primary import Primary
from ha.primary.stream_decisions import StreamDecisions
from recovery.store import segment
from recovery.store.log import Log
from recovery.store.torn import is_torn_without_groups
from tests.simulation.fake_files import FakeFiles
from tests.simulation.fake_state import FakeState
from tests.simulation.seeded.planting import replace, seeded
from txobserver.frames import DamagedFrame, TornFrame, decode_frame
from txobserver.ports.store import MemoryBase


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
        def reopen(self: Log, *where: int) -> None:
            sync, self._files.sync = self._files.sync, lambda descriptor: None  # type: ignore[method-assign]
            try:
                original(self, *where)
            finally:
                self._files.sync = sync  # type: ignore[method-assign]

        return reopen

    replace(stack, Log, "_reopen", make)


@seeded("P11", first=35)
def log_found_at_the_start_is_not_written_again(stack: ExitStack) -> None:
    replace(stack, FakeFiles, "rewrite", lambda original: lambda self, path, offset: None)


@seeded("P11", "P9", "P2", rare=True)
def a_state_found_at_the_start_is_not_confirmed(stack: ExitStack) -> None:
    """What is read may be in memory alone: its writer was killed before the head page was synced."""
    replace(stack, FakeState, "confirm", lambda original: MemoryBase.confirm)


@seeded("P11", "P9", "P2")
def the_state_is_written_and_not_synced(stack: ExitStack) -> None:
    """LMDB's ``sync=False``."""
    replace(stack, FakeState, "syncs", lambda original: False)


@seeded("P11", "P2")
def absent_members_are_not_waited_for(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def durable_everywhere(self: Attachments) -> int:
            return min([self._replica.durable, *(s.acknowledged for s in self.sessions.values() if s.past_guard)])

        return durable_everywhere

    replace(stack, Attachments, "durable_everywhere", make)


@seeded("P11", "P9", first=2)
def an_add_under_way_does_not_count(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def send_if_due(self: RecordKeeper, now: float) -> None:
            original(self, now)
            self._unresolved.clear()

        return send_if_due

    replace(stack, RecordKeeper, "send_if_due", make)
    replace(stack, Attachments, "durable_everywhere", lambda original: _counted_only)


def _counted_only(self: Attachments) -> int:
    """As the product's, without the joiners that are past their guards."""
    acknowledged = [self._replica.durable]
    for member in self._keeper.counted():
        session = self.sessions.get(member.node)
        acknowledged.append(session.acknowledged if session is not None and session.member == member else 0)
    return min(acknowledged)


@seeded("P11", first=1)
def a_primary_sends_what_is_not_synced(stack: ExitStack) -> None:
    """It reads its log to where the file ends, and sends all that it has read."""

    def make(original: Any) -> Any:
        def read(self: Log, first: int, max_bytes: int) -> Any:
            there = self._segments
            frames = [frame for at in there.firsts for _, frame in there.scan(at, whole=at != there.firsts[-1])]
            return [frame for frame in frames if frame.first >= first] or original(self, first, max_bytes)

        return read

    def make_sent(original: Any) -> Any:
        def log_read(self: Star, session: BackupSession, frames: Any, commit: int) -> None:
            for effect in session.log_read(frames, commit):
                self._emit(effect)

        return log_read

    replace(stack, Log, "read", make)
    replace(stack, Star, "log_read", make_sent)


@seeded("P11", first=7)
def a_removal_under_way_counts_as_made(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def counted(self: RecordKeeper) -> Any:
            return original(self) - self._removes

        return counted

    replace(stack, RecordKeeper, "counted", make)


@seeded("P2", "P11")
def confirms_before_the_commit_point(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def publish(self: ClientLedger, queues: Any, message: Any, done: Any) -> None:
            original(self, queues, message, None)
            if done is not None:
                done(None)

        return publish

    replace(stack, ClientLedger, "publish", make)


@seeded("P2", "P11")
def commit_answered_when_decided(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def decide(self: StreamDecisions, tx: int, commit: bool, done: Any, *more: Any, **named: Any) -> None:
            original(self, tx, commit, None, *more, **named)
            if done is not None:
                done(None)

        return decide

    replace(stack, StreamDecisions, "decide", make)


@seeded("P2", rare=True)
def sectors_that_a_power_cut_took_are_damage(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def only_the_end_is_missing(data: bytes, frames: int, at: int) -> bool:
            try:
                decode_frame(data, at)
            except (TornFrame, DamagedFrame) as error:
                return is_torn_without_groups(data[at:], error)
            return False

        return only_the_end_is_missing

    replace(stack, segment, "is_torn", make)
