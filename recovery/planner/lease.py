"""Whether a primary renews its lease though no lock says that a node runs: its locks are not seen from every host."""

from __future__ import annotations

import time
from pathlib import Path

from recovery.files import explain
from txobserver.store import StoreError

WATCH_SECONDS = 1.0
"""Five renewals of a primary with the default settings; one that renews slower is watched for its ``lease_ttl``."""


class LeaseWatch:
    """Watches a coordination file from the moment on when it is made. Each renewal changes the file."""

    def __init__(self, record: Path) -> None:
        self._record = record
        self._began = time.monotonic()
        self._found = self._read()

    def check(self, seconds: float) -> None:
        """Raises StoreError if the file has changed since then, or does until it has been watched for so long."""
        time.sleep(max(0.0, self._began + seconds - time.monotonic()))
        if self._read() != self._found:
            raise StoreError(
                f"{self._record} is being written: a primary renews its lease, on another host or in a directory that "
                "was not given; stop all of the cluster first"
            )

    def _read(self) -> bytes | None:
        try:
            return self._record.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise explain(error, self._record) from error
