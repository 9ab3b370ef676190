"""The decision log: a file that several processes may append to, in which a record that was told is never lost.

Its lines are those of ``recovery.coordinator.log_lines``.

- One writer at a time: an exclusive lock on the file. Under it a writer first reads what others appended, so
  the first decision on a transaction stands.
- Nobody acts on a record before a sync that began after it was written, its reader neither. Threads share syncs.
- Who opens the file writes it again first, and the names that lead to it: after a sync that failed, in any process,
  Linux takes for clean what is not on the disk (docs/decisions/written-again.md).
- A crash leaves the last lines behind the last sync whole, cut short, or with holes between them. Nobody has acted on
  any of them, and whoever has the lock cuts them off where the first is not whole. Each line says how far the file was
  synced, so that a hole there is not taken for damage, nor the other way round. Anything else that does not match its
  checksum is damage, and nothing is decided any more: absence means abort here, so no line may get lost.
- When most of it has ended, the lines that count are written to a new file, synced, and renamed over the old one. Who
  holds the old one open sees that when it has the lock.
- There is one file, whoever names it how: the new one takes the place of the file itself, not of a symbolic link to
  it, and whoever could use the old one can use it. A file with a second name (a hard link) is not replaced.
- A child of fork opens the file anew: what it inherits is its parent's lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from recovery.coordinator.decisions import Decision, DecisionRefused, DecisionUnknown
from recovery.coordinator.log_lines import (
    SYNCED,
    Line,
    LogContents,
    decode_lines,
    encode_line,
    encode_lines,
    end_line,
    first_line,
    moved_line,
)
from recovery.coordinator.names import GlobalName, new_global_name, new_id, our_name
from recovery.coordinator.resources import Participant
from recovery.coordinator.steps import Reached, unwatched
from recovery.store.files import REAL_FILES, SCRATCH, Files, explain, renew_directory, sync_directories_above
from txobserver.ports.store import StoreDamaged, StoreError
from txobserver.xid import Xid

COMPACT_BYTES = 1 << 20
"""A log is made smaller when it has grown by so many bytes, and most of them are of transactions that have ended."""

_MAY_BE_FORGOTTEN = (
    "the log has forgotten which transactions were aborted that began as early as this one, and it may be one of them: "
    "begin it again"
)


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
        self.path = path = Path(path)
        self.whose = ""
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
        _LOGS.add(self)

    def close(self) -> None:
        """Let go of the file."""
        with self._lock, self._sync_lock:
            if self._descriptor >= 0:
                self._files.close(self._descriptor)
            self._descriptor, self._failed = -1, f"{self.path} is closed"

    def forked(self) -> None:
        """In a child of fork: let go of the parent's descriptor, and of the locks of threads that are not here."""
        self._lock, self._sync_lock = threading.Lock(), threading.Lock()
        if self._descriptor >= 0:
            with suppress(OSError):
                self._files.close(self._descriptor)
            self._descriptor = -1

    # -- decisions (recovery.coordinator.decisions.Decisions)

    def new_name(self) -> GlobalName:
        """For a transaction that begins now, and later than any of which an abort is forgotten, whatever clocks say."""
        return new_global_name(self.whose, self._contents.forgotten + 1)

    def owns(self, xid: Xid) -> GlobalName | None:
        """The global transaction of a branch if it hangs on this log."""
        return our_name(xid, self.whose)

    def decide(self, name: str, commit: bool, participants: Sequence[Participant] = ()) -> bool:
        """Record the decision durably unless there is one already; returns the one that stands.

        A commit is refused if an abort may have stood that is forgotten. No clock has a say in that: those of machines
        are set, and the coordinator's may be another one than that of who made the log smaller.
        """
        now = time.time()
        line: Line = {"commit": name, "at": now, "participants": participants} if commit else {"abort": name, "at": now}
        with self._acting(), self._locked():
            stands = self._contents.stands(name)
            if stands is None:
                if commit and self._contents.may_have_forgotten(name):
                    raise DecisionRefused(_MAY_BE_FORGOTTEN)
                self._append(line)
                self._reached("decision written")
            end = (self._descriptor, self._at)
        self._sync(end)
        self._reached("decision synced")
        return commit if stands is None else stands.commit

    def decision(self, name: str) -> Decision | None:
        """The decision that stands, durable, also if it has ended; None if there is none (or it has been forgotten)."""
        with self._acting(), self._locked():
            found, end = self._contents.stands(name), (self._descriptor, self._at)
        self._sync(end)
        return found

    def unfinished(self) -> dict[str, Decision]:
        """Commits, by name, that not every participant is known to have carried out."""
        with self._acting(), self._locked():
            found = {name: each for name, each in self._contents.decisions.items() if each.commit}
            end = (self._descriptor, self._at)
        self._sync(end)
        return found

    def finish(self, name: str) -> None:
        """Every participant has carried out the commit: it may be forgotten. Not synced: it is only housekeeping."""
        with self._acting(), self._locked():
            if name in self._contents.decisions:
                self._append(end_line(name, time.time()))
            if self._at > self._compact_at:
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

    @property
    def _file(self) -> Path:
        """Where the file itself is, behind symbolic links. Raises OSError."""
        return self.path.resolve(strict=True)

    def _create(self) -> None:
        """With its first line, or not at all; somebody else may be faster."""
        if self.path.is_symlink():
            raise StoreError(f"{self.path} is a symbolic link that leads nowhere; restore the log that it led to")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_name(f".{self.path.name}.{new_id()}")
        self._files.close(self._write_new(new, [first_line(new_id())], None))
        with suppress(FileExistsError):
            os.link(new, self.path)
        with suppress(FileNotFoundError):  # who has opened the log meanwhile has removed it
            self._files.remove(new)
        self._files.sync_directory(self.path.parent)

    def _write_new(self, path: Path, lines: list[Line], old: int | None) -> int:
        """A new file with these lines, synced; returns its descriptor. Whoever may use ``old`` may use it.

        Raises OSError, and leaves nothing then.
        """
        descriptor = self._files.create(path)
        try:
            if old is not None:
                self._files.take_access(descriptor, old)
            self._files.write(descriptor, encode_lines(lines))
            self._files.sync(descriptor)
        except OSError:
            self._files.close(descriptor)
            self._files.remove(path)
            raise
        return descriptor

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """This thread of all processes alone, on the file that the path leads to, with everything read."""
        with self._lock:
            try:
                while not self._lock_file():
                    with self._sync_lock:
                        self._files.close(self._descriptor)
                        self._descriptor = -1
                self._read()
                yield
            finally:  # also of a KeyboardInterrupt just behind the lock: every other process would wait for this one
                if self._descriptor >= 0:
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
        self._at = self._crc = self._synced = self._on_disk = self._compact_at = 0
        self._contents = LogContents()
        self._is_written_again = False
        self._descriptor = self._files.open(self.path)  # last: a thread may want to sync what stood in the file before

    def _read(self) -> None:
        """What others have appended; what a crash has cut short is cut off. Raises StoreDamaged, StoreError."""
        size = self._files.size(self._descriptor)
        if size < self._at:
            raise StoreDamaged(f"{self.path} has become shorter; restore it, nothing is decided without it")
        data = os.pread(self._descriptor, size - self._at, self._at)
        for line, length, crc in decode_lines(data, self._crc, self.path, self._at):
            self._contents.take(line, self.path)
            self._at, self._crc = self._at + length, crc
            self._on_disk = max(self._on_disk, line.get(SYNCED, self._at))
        self._check_whose()
        if self._at < size:
            self._files.truncate(self._descriptor, self._at)
        if not self._is_written_again:
            self._compact_at = self._at + self._compact_bytes
            self._write_again()
            self._is_written_again = True

    def _check_whose(self) -> None:
        if not self._contents.whose:
            raise StoreDamaged(f"{self.path} does not begin like a decision log; restore it")
        if self.whose not in ("", self._contents.whose):
            raise StoreDamaged(f"{self.path} leads to another log now; restore the one that was there before")
        self.whose = self._contents.whose

    def _write_again(self) -> None:
        """Make durable with the next sync what stands in the file, and at once the names by which it is found.

        A symbolic link is one of them, and who made it or a directory may be just about to sync it. Called with the
        lock.
        """
        file = self._file
        self._files.rewrite(file, 0)
        self._remove_second_name(file)
        renew_directory(file.parent, self._files, f".{file.name}{SCRATCH}")
        sync_directories_above(file.parent, self._files)
        if self.path.is_symlink():
            with suppress(PermissionError):
                self._files.sync_directory(self.path.parent)
            sync_directories_above(self.path.parent, self._files)

    def _remove_second_name(self, file: Path) -> None:
        """Whoever was killed while it made the log has left the name under which it wrote it."""
        for name in self._files.names(file.parent):
            if not name.startswith(f".{file.name}."):
                continue
            with suppress(FileNotFoundError):  # it lives, and has removed it itself
                if os.path.samestat((file.parent / name).lstat(), os.fstat(self._descriptor)):
                    self._files.remove(file.parent / name)

    def _append(self, line: Line) -> None:
        """Raises OSError if it could not be written: who has the lock next cuts off what there is of it."""
        self._on_disk = max(self._on_disk, self._synced)
        encoded, crc = encode_line({**line, SYNCED: self._on_disk}, self._crc)
        self._files.write(self._descriptor, [encoded])
        self._contents.take(line, self.path)
        self._at, self._crc = self._at + len(encoded), crc

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
        lines = self._contents.lines(time.time())
        length = sum(map(len, encode_lines(lines)))
        self._compact_at = self._at + max(self._compact_bytes, length // 2)
        if 2 * length > self._at or os.fstat(self._descriptor).st_nlink > 1:
            return
        try:
            self._replace(self._file, lines)
        except PermissionError:
            return  # a file of mine would shut out who can use this one: its owner makes it smaller

    def _replace(self, file: Path, lines: list[Line]) -> None:
        new = file.with_name(f".{file.name}.{new_id()}")
        self._files.close(self._write_new(new, lines, self._descriptor))
        try:
            os.rename(new, file)
        except OSError as error:
            self._files.remove(new)
            if error.errno == errno.EBUSY:
                return  # the file is mounted by itself, and stays
            raise
        self._files.sync_directory(file.parent)
        self._append_moved()

    def _append_moved(self) -> None:
        """Whoever still reaches the old file, as where it is mounted by itself, must not decide anything in it."""
        line, _ = encode_line({**moved_line(self.whose), SYNCED: self._on_disk}, self._crc)
        self._files.write(self._descriptor, [line])


_LOGS: weakref.WeakSet[DecisionLog] = weakref.WeakSet()


def _after_fork() -> None:
    for log in list(_LOGS):
        log.forked()


os.register_at_fork(after_in_child=_after_fork)


def read_decisions(path: Path) -> tuple[str, dict[str, Decision], dict[str, Decision]]:
    """Whose log it is, the decisions that stand and have not ended, and the commits that have.

    Nothing is changed, not even a torn tail, and nobody is waited for. Raises StoreDamaged, StoreError.
    """
    contents = LogContents()
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from None
    for line, _, _ in decode_lines(data, 0, path, 0):
        contents.take(line, path)
    if not contents.whose:
        raise StoreDamaged(f"{path} does not begin like a decision log; restore it")
    return contents.whose, contents.decisions, {name: each.decision for name, each in contents.ended.items()}
