"""ChangeStream: is told by etcd of each change of the record, in a thread of its own, and passes on the version.

However the stream of a member ends (the member ends, is cut off from its leader, or has compacted what it was to tell),
another one is begun, at the next member that answers. It tells of what changes from then on, and one reading that
follows its begin of what has changed before: nothing is missed, and no revision has to be remembered.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from broker_plugin.coordination.etcd import wire
from broker_plugin.coordination.etcd.members import Members
from broker_plugin.coordination.etcd.place import EtcdPlace
from broker_plugin.coordination.etcd.stored import version_of
from broker_plugin.coordination.told_changes import UNREADABLE
from ha.membership.record import CoordinationError

AGAIN_SECONDS = 0.2
"""Behind the end of a stream, before another one is begun"""
BEGIN_SECONDS = 5.0
"""In which a member has to be found for one, and in which it has to answer the reading at its begin"""


class ChangeStream:
    """``changed`` is called in the thread of the stream, with the version that there is now; 0 for no record."""

    def __init__(self, place: EtcdPlace, changed: Callable[[int], None], attempt_seconds: float) -> None:
        self._key = place.key
        self._changed = changed
        self._members = Members(place, attempt_seconds)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="etcd-changes", daemon=True)

    def start(self) -> None:
        """Begin; changes from before are told of with the first reading."""
        self._thread.start()

    def close(self) -> None:
        """End it, and wait for that."""
        self._ended.set()
        self._members.give_up()
        self._thread.join()
        self._members.close()

    def _run(self) -> None:
        while not self._ended.is_set():
            with suppress(CoordinationError):  # a reading says what is wrong, and is made often enough
                self._follow()
            self._ended.wait(AGAIN_SECONDS)

    def _follow(self) -> None:
        """Until the stream ends. Raises CoordinationError."""
        request = wire.WatchRequest(create_request=wire.WatchCreateRequest(key=self._key))
        for answer in self._members.stream(wire.WATCH, request, time.monotonic() + BEGIN_SECONDS):
            if answer.canceled or answer.compact_revision:
                return
            if answer.created:
                self._look()
            for event in answer.events:
                self._changed(0 if event.type == wire.DELETED else _version_in(event.kv.value))

    def _look(self) -> None:
        asked = wire.RangeRequest(key=self._key)
        found = self._members.ask(wire.RANGE, asked, time.monotonic() + BEGIN_SECONDS).kvs
        self._changed(_version_in(found[0].value) if found else 0)


def _version_in(content: bytes) -> int:
    found = version_of(content)
    return UNREADABLE if found is None else found
