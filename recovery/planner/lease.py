"""Whether a primary renews its lease though no lock says that a node runs: its locks are not seen from every host."""

from __future__ import annotations

import time
from collections.abc import Callable

from ha.membership.record import RecordStore, Snapshot
from recovery.planner.facts import RecordState
from recovery.planner.site import RecordFound
from txobserver.ports.store import StoreError

WATCH_SECONDS = 1.0
"""Five renewals of a primary with the default settings of a record in a file; one that renews slower is watched for its
``lease_ttl``."""


class LeaseWatch:
    """Watches a coordination record from the moment on when it is made. Each renewal changes the record.

    A node that only tries to start changes the store, and not the record: it makes durable what it finds. So what the
    store holds is compared only where the record cannot be read here, as that of a later version of txha.

    ``look`` takes a snapshot of what is at ``record``; ``found`` is what it found first.
    """

    def __init__(self, record: RecordStore, look: Callable[[], Snapshot]) -> None:
        self._record = record
        self._look = look
        self._began = time.monotonic()
        self._was = look()
        self.found = found_in(self._was)

    def check(self, seconds: float) -> None:
        """Raises StoreError if the record has changed since then, or does until it has been watched for so long."""
        time.sleep(max(0.0, self._began + seconds - time.monotonic()))
        if self._look() != self._was:
            raise StoreError(
                f"{self._record} is being written: a primary renews its lease, on another host or in a directory that "
                "was not given; stop all of the cluster first"
            )


def found_in(snapshot: Snapshot) -> RecordFound:
    """What a plan goes by."""
    if snapshot.damage:
        return None, RecordState.DAMAGED, snapshot.damage
    return snapshot.record, RecordState.GONE if snapshot.record is None else RecordState.INTACT, ""
