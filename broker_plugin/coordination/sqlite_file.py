"""SqliteFile: a coordination store in one SQLite file, for the processes of one host (``sqlite:///path``)."""

from __future__ import annotations

import glob
import os
import shlex
from collections.abc import Collection
from pathlib import Path
from urllib.parse import unquote

from broker_plugin.coordination.coordination_process import CoordinationProcess
from broker_plugin.coordination.shared_watchdog import SharedWatchdog
from broker_plugin.coordination.sqlite_coordination import JOURNAL, SqliteCoordination
from ha.membership.record import Coordination, CoordinationError, RecordStore, Served
from ha.membership.watchdog import Renewals
from recovery.store.files import REAL_FILES

FORM = "sqlite:///PATH"
"""What an address of this scheme looks like; characters that mean something in a URL are written as %XX"""


class SqliteFile(RecordStore):
    """``named``: as the operator has written it."""

    def __init__(self, path: Path, named: str = "") -> None:
        self.path = path
        self._named = named or str(path)

    @classmethod
    def of_url(cls, rest: str) -> SqliteFile:
        """``rest`` stands behind ``sqlite://``. Raises ValueError, with a sentence."""
        if not rest.startswith("/") or rest.strip("/") == "":
            raise ValueError(f"sqlite://{rest} names no file of this host: write {FORM}")
        if "?" in rest or "#" in rest:
            raise ValueError(f"sqlite://{rest} has options, and there are none: write ? as %3F, and # as %23")
        return cls(Path("/" + unquote(rest).lstrip("/")), f"sqlite://{rest}")

    def __str__(self) -> str:
        return self._named

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SqliteFile) and self.path.resolve() == other.path.resolve()

    def __hash__(self) -> int:
        return hash(self.path.resolve())

    @property
    def notes(self) -> Path:
        """The directory that the file is in."""
        return self.path.parent

    def open(self, cluster: str, create: bool = False, confirm: bool = False) -> Coordination:
        """In this process."""
        return SqliteCoordination(self.path, cluster, create, confirm)

    def serve(self, cluster: str, answer_seconds: float, renewals: Renewals) -> Served:
        """In a process of its own: SQLite locks the file while it writes. Raises OSError where there is no memory."""
        watchdog = SharedWatchdog()
        return Served(CoordinationProcess(self.path, cluster, answer_seconds, watchdog, renewals), watchdog)

    def check_writable(self) -> None:
        """Raises CoordinationError."""
        if self.path.is_dir():
            raise CoordinationError(f"{self.path} is a directory; name a file")
        if not self.path.parent.is_dir():
            raise CoordinationError(f"there is no directory {self.path.parent}")
        if not os.access(self.path.parent, os.W_OK):
            raise CoordinationError(f"{self.path.parent} cannot be written")

    def check_readable(self) -> None:
        """Raises CoordinationError."""
        if self.path.exists() and not self.path.is_file():
            raise CoordinationError(f"{self.path} is no file: name the coordination file with --coordination")

    def check_expected(self, expected: Collection[RecordStore]) -> None:
        """Elsewhere only with a sign that this is wanted: a file that is there, be it empty, or was and was set aside.

        Raises CoordinationError.
        """
        path = self.path
        if not path.parent.is_dir():
            raise CoordinationError(
                f"there is no directory {path.parent} for the coordination file {path.name}: mount it, or name the "
                "right file with --coordination"
            )
        was_there = any(path.parent.glob(f"{glob.escape(path.name)}.{ASIDE}-*"))
        if path.exists() or was_there or self in expected:
            return
        used = " or ".join(sorted(map(str, expected)))
        raise CoordinationError(
            f"there is no coordination file {path}, and the directories lead to {used}: "
            "name the right one with --coordination, or, if the record is lost and a new one is to be written to that "
            f"file, make it first: touch {shlex.quote(str(path))}"
        )

    def set_aside(self) -> None:
        """The journal goes first: SQLite would roll it back into the record that is written in that place."""
        number = 1
        while (aside := self.path.with_name(f"{self.path.name}.{ASIDE}-{number}")).exists():
            number += 1
        for suffix in (JOURNAL, ""):
            path = self.path.with_name(self.path.name + suffix)
            if path.exists():
                path.rename(aside.with_name(aside.name + suffix))
        REAL_FILES.sync_directory(self.path.parent)


ASIDE = "set-aside"
"""Behind the name of a file that has been set aside, with a number"""
