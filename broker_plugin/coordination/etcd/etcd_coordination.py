"""The coordination record in etcd: one key, changed by one transaction on the revision in which it was changed last.

*Readings* are etcd's linearizable ones: a majority of the members has confirmed that none of them knows of more.
*Changes* are synced by a majority before they are told. Both are tried again only where that cannot make a change twice
(``broker_plugin.coordination.etcd.members``).

*Versions* stand in the record, and etcd's revision of the key decides whether it may be changed, so two records that
have one version by chance are never taken for each other. Where the key is deleted there is no record, and no node
makes one. Where etcd has been set back to an earlier state (a backup was restored), what it tells is older than what it
told before: nothing is read from it or changed in it any more.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import msgspec

from broker_plugin.coordination.etcd import wire
from broker_plugin.coordination.etcd.change_stream import ChangeStream
from broker_plugin.coordination.etcd.members import Members
from broker_plugin.coordination.etcd.place import EtcdPlace
from broker_plugin.coordination.etcd.stored import WAY_OUT, RecordDamaged, decoded, encoded
from broker_plugin.coordination.told_changes import ToldChanges
from ha.membership.record import CasConflict, CoordinationError, Record, Snapshot, Waiter, may_follow

CALL_SECONDS = 5.0
"""In which a call for a command has ended: long enough for another leader to be elected"""
ATTEMPT_SECONDS = 1.0
"""In which one member has to answer a command"""
TRANSACTIONS = 3
"""Sent for one change at most: each but the first by what the one before it has found"""

_NEVER_REACHED = 1 << 63
"""A revision above all: whatever an etcd that was set back says later, it is not gone by"""


class _Found(NamedTuple):
    """What is under the key, and the revision of its last change; 0 where nothing is."""

    content: bytes
    mod_revision: int


class EtcdCoordination:
    """A coordination store in etcd. Calls block for ``seconds`` at most; use it from one thread.

    ``create``: make the key at the first compare-and-set that expects no record, if all members belong to one etcd;
    without, there is nothing to change then. ``attempt_seconds``: in which one member has to answer.
    """

    def __init__(
        self,
        place: EtcdPlace,
        cluster: str,
        create: bool = False,
        seconds: float = CALL_SECONDS,
        attempt_seconds: float = ATTEMPT_SECONDS,
    ) -> None:
        self._place = place
        self._cluster = cluster
        self._create = create
        self._seconds = seconds
        self._members = Members(place, attempt_seconds)
        self._attempt_seconds = attempt_seconds
        self._last: _Found | None = None
        self._revision = self._mod_revision = 0
        self._told = ToldChanges(self.read)
        self._stream: ChangeStream | None = None

    def read(self) -> Record | None:
        """The record, or None where there is none. Raises CoordinationError."""
        return self._record(self._range(self._until()))

    def compare_and_set(self, expected: int, record: Record) -> Record:
        """Store the record as the version after ``expected``. Raises CasConflict, CoordinationError."""
        until = self._until()
        if self._create and expected == 0:
            self._members.agree(until)
        found = self._last
        if found is None or not self._fits(found, self._record(found), expected, record):
            found = self._range(until)
        for _ in range(TRANSACTIONS):
            current = self._record(found)
            if not self._fits(found, current, expected, record):
                raise CasConflict(current)
            stored = msgspec.structs.replace(record, version=expected + 1)
            answer = self._changed(found, encoded(stored, self._members.etcd), until)
            if answer.succeeded:
                return stored
            found = self._found(answer.header, answer.responses[0].response_range.kvs)
        raise CoordinationError(f"the coordination record in {self._name} changes all the time")

    def watch(self, after: int, seconds: float, waiter: Waiter) -> Snapshot | None:
        """As the port says: etcd tells of each change."""
        if self._stream is None:
            self._stream = ChangeStream(self._place, self._told.changed, self._attempt_seconds)
            self._stream.start()
        return self._told.watch(after, seconds, waiter)

    def snapshot(self) -> Snapshot:
        """As the port says: one reading."""
        try:
            record = self.read()
        except RecordDamaged as damaged:
            return Snapshot(0, None, damaged.why, damaged.content)
        return Snapshot(record.version if record is not None else 0, record)

    def give_up(self) -> None:
        """From any thread: no answer is waited for any more."""
        self._members.give_up()

    def close(self) -> None:
        """Let go of etcd."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
        self._members.close()

    @property
    def _name(self) -> str:
        """Of the key, for people."""
        return self._place.key.decode()

    def _until(self) -> float:
        return time.monotonic() + self._seconds

    def _fits(self, found: _Found, current: Record | None, expected: int, record: Record) -> bool:
        """Whether ``record`` may be stored behind ``current``, which was found; a key may be there with no record."""
        if current is None:
            return expected == 0 and (self._create or found.mod_revision > 0)
        return current.version == expected and may_follow(record, current)

    def _range(self, until: float) -> _Found:
        answer = self._members.ask(wire.RANGE, wire.RangeRequest(key=self._place.key), until)
        return self._found(answer.header, answer.kvs)

    def _changed(self, found: _Found, content: bytes, until: float) -> Any:
        """The answer to a transaction that puts ``content`` in the place of what was found."""
        put = wire.RequestOp(request_put=wire.PutRequest(key=self._place.key, value=content))
        request = wire.changed_if(self._place.key, found.mod_revision, put)
        self._last = None  # with an outcome that is not known the next call looks at first
        answer = self._members.ask(wire.TXN, request, until, change=True)
        if answer.succeeded:
            self._check_no_step_back(answer.header.revision, answer.header.revision)
            self._last = _Found(content, answer.header.revision)
        return answer

    def _found(self, header: Any, keys: Any) -> _Found:
        self._last = None
        found = _Found(keys[0].value, keys[0].mod_revision) if keys else _Found(b"", 0)
        self._check_no_step_back(header.revision, found.mod_revision)
        self._last = found
        return found

    def _check_no_step_back(self, revision: int, mod_revision: int) -> None:
        """``mod_revision``: 0 where there is no key."""
        if revision < self._revision or 0 < mod_revision < self._mod_revision:
            self._revision = _NEVER_REACHED
            raise CoordinationError(
                f"etcd was set back to an earlier state, so the record in {self._name} is an old copy: {WAY_OUT}"
            )
        self._revision, self._mod_revision = revision, max(mod_revision, self._mod_revision)

    def _record(self, found: _Found) -> Record | None:
        return decoded(found.content, self._name, self._cluster, self._members.etcd)
