"""Whether a primary renews its lease though no lock says that a node runs: its locks are not seen from every host."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from recovery.planner.facts import RecordState
from recovery.planner.site import RecordFound
from recovery.store.files import explain
from txobserver.ports.store import StoreError

WATCH_SECONDS = 1.0
"""Five renewals of a primary with the default settings; one that renews slower is watched for its ``lease_ttl``."""


class LeaseWatch:
    """Watches a coordination file from the moment on when it is made. Each renewal changes the record in it.

    A node that only tries to start changes the file, and not the record: it makes durable what it finds. So bytes are
    compared only of a file whose record cannot be read here, as that of a later version of txha.

    ``look`` reads the record without a change of the file; ``found`` is what it found first.
    """

    def __init__(self, record: Path, look: Callable[[], RecordFound]) -> None:
        self._record = record
        self._look = look
        self._began = time.monotonic()
        self.found = look()
        self._was = self._seen(self.found)

    def check(self, seconds: float) -> None:
        """Raises StoreError if the record has changed since then, or does until it has been watched for so long."""
        time.sleep(max(0.0, self._began + seconds - time.monotonic()))
        if self._seen(self._look()) != self._was:
            raise StoreError(
                f"{self._record} is being written: a primary renews its lease, on another host or in a directory that "
                "was not given; stop all of the cluster first"
            )

    def _seen(self, found: RecordFound) -> object:
        return found if found[1] is RecordState.INTACT else (found, self._read())

    def _read(self) -> bytes | None:
        try:
            return self._record.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise explain(error, self._record) from error
