"""The decision log: a file that several processes may append to, in which a record that was told is never lost.

A line is a checksum (crc32, in hex) and a JSON object. The checksum begins where that of the line before ended, so a
line that is missing is found as well as one that was changed. The first line names the log; the others are ``commit``,
``abort`` and ``end`` of a transaction.

- One writer at a time: an exclusive lock on the file. Under it a writer first reads what others appended, so
  the first decision on a transaction stands.
- Nobody acts on a record before a sync that began after it was written, its reader neither. Threads share syncs.
- Who opens the file writes it again first, and the names in its directory: after a sync that failed, in any process,
  Linux takes for clean what is not on the disk (docs/decisions/written-again.md).
- What a crash cut short can only be the last line. Whoever has the lock cuts it off. Anything else that does not match
  its checksum is damage, and nothing is decided any more: absence means abort here, so no line may get lost.
- When most of it has ended, the live lines are written to a new file, synced, and renamed over the old one. Who holds
  the old one open sees that when it has the lock.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from recovery.coordinator.decisions import ABORT_KEPT, Decision, DecisionRefused, DecisionUnknown
from recovery.coordinator.names import new_id
from recovery.coordinator.resources import Participant
from recovery.coordinator.steps import Reached, unwatched
from recovery.files import REAL_FILES, SCRATCH, Files, explain, renew_directory
from txobserver.store import StoreDamaged, StoreError

VERSION = 1
COMPACT_BYTES = 1 << 20
"""A log is made smaller when it has grown by so many bytes, and most of them are of transactions that have ended."""
_CRC_DIGITS = 8


class DecisionLog:
    """The log at ``path``, made if it is not there. Any number of threads and processes may use it at once.

    ``compact_bytes``: how much it grows before it is looked at whether it can be smaller. ``reached``: see
    ``recovery.coordinator.steps``. Raises StoreDamaged for a log that a crash cannot have left so, StoreError for what
    cannot be read or made.
    """

    def __init__(
        self,
        path: Path,
        compact_bytes: int = COMPACT_BYTES,
        files: Files = REAL_FILES,
        reached: Reached = unwatched,
    ) -> None:
        self.path = path
        self._reached = reached
        self._files = files
        self._compact_bytes = compact_bytes
        self._lock = threading.Lock()
        self._sync_lock = threading.Lock()
        self._failed: str | None = None
        self._descriptor = -1
        self._at = 0
        try:
            if not path.exists():
                self._create()
            with self._locked():
                pass
        except OSError as error:
            raise explain(error, path) from None
        self.whose: str = self._whose

    def close(self) -> None:
        """Let go of the file."""
        with self._lock, self._sync_lock:
            if self._descriptor >= 0:
                self._files.close(self._descriptor)
            self._descriptor, self._failed = -1, f"{self.path} is closed"

    # -- decisions (recovery.coordinator.decisions.Decisions)

    def decide(self, name: str, commit: bool, participants: Sequence[Participant] = ()) -> bool:
        """Record the decision durably unless there is one already; returns the one that stands."""
        record: dict[str, Any] = {"commit" if commit else "abort": name, "at": time.time()}
        if commit:
            record["participants"] = participants
        with self._acting(), self._locked():
            if name not in self._decisions:
                self._append(record)
                self._reached("decision written")
            stands, end = self._decisions[name].commit, (self._descriptor, self._at)
        self._sync(end)
        self._reached("decision synced")
        return stands

    def decision(self, name: str) -> Decision | None:
        """The decision that stands, durable; None if there is none (or it has been forgotten)."""
        with self._acting(), self._locked():
            found, end = self._decisions.get(name), (self._descriptor, self._at)
        self._sync(end)
        return found

    def unfinished(self) -> dict[str, Decision]:
        """Commits, by name, that not every participant is known to have carried out."""
        with self._acting(), self._locked():
            found = {name: each for name, each in self._decisions.items() if each.commit}
            end = (self._descriptor, self._at)
        self._sync(end)
        return found

    def finish(self, name: str) -> None:
        """Every participant has carried out the commit: it may be forgotten. Not synced: it is only housekeeping."""
        with self._acting(), self._locked():
            if name in self._decisions:
                self._append({"end": name})
            if self._at - self._compacted_at > self._compact_bytes:
                self._compact()

    @contextmanager
    def _acting(self) -> Iterator[None]:
        """Errors of the file become those of decisions: nothing whole was recorded."""
        if self._failed is not None:
            raise DecisionRefused(self._failed)
        try:
            yield
        except OSError as error:
            raise DecisionRefused(str(explain(error, self.path))) from None
        except StoreError as error:
            self._failed = str(error)
            raise DecisionRefused(self._failed) from None

    # -- the file

    def _create(self) -> None:
        """With its first line, or not at all; somebody else may be faster."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_name(f".{self.path.name}.{new_id()}")
        self._write_new(new, new_id(), [])
        with suppress(FileExistsError):
            os.link(new, self.path)
        self._files.remove(new)
        self._files.sync_directory(self.path.parent)

    def _write_new(self, path: Path, whose: str, records: list[dict[str, Any]]) -> None:
        crc, lines = 0, []
        for record in [{"log": whose, "version": VERSION}, *records]:
            line, crc = encode_line(record, crc)
            lines.append(line)
        descriptor = self._files.create(path)
        try:
            self._files.write(descriptor, lines)
            self._files.sync(descriptor)
        finally:
            self._files.close(descriptor)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """This thread of all processes alone, on the file that the path leads to, with everything read."""
        with self._lock:
            while not self._lock_file():
                with self._sync_lock:
                    self._files.close(self._descriptor)
                    self._descriptor = -1
            try:
                self._read()
                yield
            finally:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def _lock_file(self) -> bool:
        """Lock the file; False, and no lock, if another one has taken its place."""
        if self._descriptor < 0:
            self._open()
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        current = False
        try:
            current = os.path.samestat(os.stat(self.path), os.fstat(self._descriptor))
        finally:
            if not current:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        return current

    def _open(self) -> None:
        self._descriptor = self._files.open(self.path)
        self._at = self._crc = self._synced = self._compacted_at = 0
        self._whose = ""
        self._decisions: dict[str, Decision] = {}

    def _read(self) -> None:
        """What others have appended; what a crash has cut short is cut off. Raises StoreDamaged, StoreError."""
        size = self._files.size(self._descriptor)
        if size < self._at:
            raise StoreDamaged(f"{self.path} has become shorter; restore it, nothing is decided without it")
        data = os.pread(self._descriptor, size - self._at, self._at)
        first = self._at == 0
        for record, length, crc in decode_lines(data, self._crc, self.path, self._at):
            self._take(record)
            self._at, self._crc = self._at + length, crc
        if first:
            self._compacted_at = self._at
            if not self._whose:
                raise StoreDamaged(f"{self.path} does not begin like a decision log; restore it")
        if self._at < size:
            self._files.truncate(self._descriptor, self._at)
        if first:
            self._files.rewrite(self.path, 0)
            renew_directory(self.path.parent, self._files, f".{self.path.name}{SCRATCH}")

    def _take(self, record: dict[str, Any]) -> None:
        self._whose = take(record, self.path, self._decisions) or self._whose

    def _append(self, record: dict[str, Any]) -> None:
        """Raises OSError if it could not be written: who has the lock next cuts off what there is of it."""
        line, crc = encode_line(record, self._crc)
        self._files.write(self._descriptor, [line])
        self._take(record)
        self._at, self._crc = self._at + len(line), crc

    def _sync(self, end: tuple[int, int]) -> None:
        """Return when everything up to ``end`` is on disk. Raises DecisionUnknown; the log cannot be used any more."""
        descriptor, at = end
        with self._sync_lock:
            if self._failed is not None:
                raise DecisionUnknown(self._failed)
            if descriptor != self._descriptor or at <= self._synced:
                return  # a new file is synced before it takes the old one's place
            up_to = self._at
            try:
                self._files.sync(descriptor)
            except OSError as error:
                self._failed = str(explain(error, self.path))
                raise DecisionUnknown(self._failed) from None
            self._synced = up_to

    def _compact(self) -> None:
        """Called with the lock: a new file takes the place of this one, if it is less than half as long."""
        self._compacted_at = self._at
        forget = time.time() - ABORT_KEPT
        live = {name: each for name, each in self._decisions.items() if each.commit or each.at > forget}
        records = [_record(name, each) for name, each in live.items()]
        if 2 * sum(len(encode_line(record, 0)[0]) for record in records) > self._at:
            return
        new = self.path.with_name(f".{self.path.name}.{new_id()}")
        self._write_new(new, self._whose, records)
        os.rename(new, self.path)
        self._files.sync_directory(self.path.parent)


def read_decisions(path: Path) -> tuple[str, dict[str, Decision], dict[str, Decision]]:
    """Whose log it is, the decisions that stand, and the commits that have ended, as far as they still stand in it.

    Nothing is changed, not even a torn tail, and nobody is waited for. Raises StoreDamaged, StoreError.
    """
    whose, decisions, ended = "", dict[str, Decision](), dict[str, Decision]()
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from None
    for record, _, _ in decode_lines(data, 0, path, 0):
        if (name := record.get("end")) in decisions:
            ended[name] = decisions[name]
        whose = take(record, path, decisions) or whose
    if not whose:
        raise StoreDamaged(f"{path} does not begin like a decision log; restore it")
    return whose, decisions, ended


def take(record: dict[str, Any], path: Path, decisions: dict[str, Decision]) -> str:
    """What a record makes of the decisions; returns whose log it is, if the record says that. Raises StoreError."""
    if "log" in record:
        if record["version"] != VERSION:
            raise StoreError(f"{path} has version {record['version']}; this txha reads version {VERSION}")
        return str(record["log"])
    if "commit" in record:
        who = tuple(Participant(*each) for each in record["participants"])
        decisions[record["commit"]] = Decision(True, record["at"], who)
    elif "abort" in record:
        decisions[record["abort"]] = Decision(False, record["at"])
    else:
        decisions.pop(record["end"], None)
    return ""


def _record(name: str, decision: Decision) -> dict[str, Any]:
    if not decision.commit:
        return {"abort": name, "at": decision.at}
    return {"commit": name, "at": decision.at, "participants": decision.participants}


def encode_line(record: dict[str, Any], crc: int) -> tuple[bytes, int]:
    """The line of a record behind a line whose checksum is ``crc``, and its own checksum."""
    body = json.dumps(record, separators=(",", ":")).encode()
    crc = zlib.crc32(body, crc)
    return b"%0*x %b\n" % (_CRC_DIGITS, crc, body), crc


def decode_lines(data: bytes, crc: int, path: Path, offset: int) -> Iterator[tuple[dict[str, Any], int, int]]:
    """Every record with the length of its line and its checksum; ends silently at what a crash cut short.

    That is a last line without an end, or with a hole where a page was never written. Raises StoreDamaged for
    everything else.
    """
    at = 0
    while at < len(data):
        end = data.find(b"\n", at)
        line = data[at : end if end >= 0 else None]
        body = line[_CRC_DIGITS + 1 :]
        intact = line[: _CRC_DIGITS + 1] == b"%0*x " % (_CRC_DIGITS, zlib.crc32(body, crc))
        if end >= 0 and intact:
            crc = zlib.crc32(body, crc)
            yield json.loads(body), end + 1 - at, crc
            at = end + 1
            continue
        last = end < 0 or end + 1 == len(data)
        if last and (b"\0\0" in data[at:] or (end < 0 and not _was_whole(line, crc))):
            return
        raise StoreDamaged(f"{path} is damaged at offset {offset + at}; restore it, nothing is decided without it")


def _was_whole(line: bytes, crc: int) -> bool:
    """Whether this is a whole line whose last byte, its end, was changed."""
    body = line[_CRC_DIGITS + 1 : -1]
    return line[: _CRC_DIGITS + 1] == b"%0*x " % (_CRC_DIGITS, zlib.crc32(body, crc)) and body.endswith(b"}")
