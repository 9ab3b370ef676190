"""The file of a decision log, which several processes may append to, and which is read as a whole or not at all.

Its lines are those of ``recovery.coordinator.log_lines``.

- One writer at a time: an exclusive lock on the file. Under it a writer first reads what others appended, so the
  first decision on a transaction stands.
- No process acts on a record before a sync that began after it was written, its reader neither. Threads share syncs.
- Who opens the file writes it again first, and the names that lead to it: after a sync that failed, in any process,
  Linux takes for clean what is not on the disk (docs/decisions/written-again.md).
- A crash leaves the last lines behind the last sync whole, cut short, or with holes between them. No process has
  acted on any of them, and the one that has the lock cuts them off where the first is not whole. Each line says how
  far the file was synced, so that a hole there is not taken for damage, nor the other way round. Anything else that
  does not match its checksum is damage, and nothing is decided any more: absence means abort here, so no line may get
  lost.
- When most of it has ended, the lines that count are written to a new file, synced, and renamed over the old one. Who
  holds the old one open sees that when it has the lock.
- There is one file, by whichever name it is reached: the new one takes the place of the file itself, not of a
  symbolic link to it, and all users of the old one can use it. A file with a second name (a hard link) is not
  replaced.
- A child of fork opens the file anew: what it inherits is its parent's lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from recovery.coordinator.decisions import DecisionUnknown
from recovery.coordinator.log_lines import (
    SYNCED,
    Line,
    LogContents,
    decode_lines,
    encode_line,
    encode_lines,
    first_line,
    moved_line,
)
from recovery.coordinator.names import new_id
from recovery.store.files import SCRATCH, Files, explain, renew_directory, sync_directories_above
from txobserver.ports.store import StoreDamaged, StoreError


class LogFile:
    """The file that ``path`` leads to, made if it is not there; ``contents`` is what has been read of it.

    ``compact_bytes``: how much it grows before it is looked at whether it can be smaller. ``whose``: the id of the log.
    ``failed``: why nothing can be decided with it any more. Raises OSError, StoreDamaged, StoreError.
    """

    def __init__(self, path: Path, compact_bytes: int, files: Files) -> None:
        self.path = path
        self.whose = ""
        self.failed: str | None = None
        self._files = files
        self._compact_bytes = compact_bytes
        self._lock = threading.Lock()
        self._sync_lock = threading.Lock()
        self._descriptor = -1
        self._at = 0
        if not path.exists():
            self._create()
        with self.locked():
            pass
        _FILES.add(self)

    @property
    def end(self) -> tuple[int, int]:
        """Where it ends, for ``sync``. Called with the lock."""
        return self._descriptor, self._at

    @property
    def has_grown(self) -> bool:
        """Whether it is time to look if it can be smaller. Called with the lock."""
        return self._at > self._compact_at

    def fail(self, why: str) -> None:
        """Nothing is decided with it any more."""
        self.failed = why

    def close(self) -> None:
        """Let go of the file."""
        with self._lock, self._sync_lock:
            if self._descriptor >= 0:
                self._files.close(self._descriptor)
            self._descriptor, self.failed = -1, f"{self.path} is closed"

    def forked(self) -> None:
        """In a child of fork: let go of the parent's descriptor, and of the locks of threads that are not here."""
        self._lock, self._sync_lock = threading.Lock(), threading.Lock()
        if self._descriptor >= 0:
            with suppress(OSError):
                self._files.close(self._descriptor)
            self._descriptor = -1

    @property
    def _file(self) -> Path:
        """Where the file itself is, behind symbolic links. Raises OSError."""
        return self.path.resolve(strict=True)

    def _create(self) -> None:
        """With its first line, or not at all; another process may be faster."""
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
        """A new file with these lines, synced; returns its descriptor. Users of ``old`` may use it.

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
    def locked(self) -> Iterator[None]:
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
        self.contents = LogContents()
        self._is_written_again = False
        self._descriptor = self._files.open(self.path)  # last: a thread may want to sync what stood in the file before

    def _read(self) -> None:
        """What others have appended; what a crash has cut short is cut off. Raises StoreDamaged, StoreError."""
        size = self._files.size(self._descriptor)
        if size < self._at:
            raise StoreDamaged(f"{self.path} has become shorter; restore it, nothing is decided without it")
        data = os.pread(self._descriptor, size - self._at, self._at)
        for line, length, crc in decode_lines(data, self._crc, self.path, self._at):
            self.contents.take(line, self.path)
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
        if not self.contents.whose:
            raise StoreDamaged(f"{self.path} does not begin like a decision log; restore it")
        if self.whose not in ("", self.contents.whose):
            raise StoreDamaged(f"{self.path} leads to another log now; restore the one that was there before")
        self.whose = self.contents.whose

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
        """A process that was killed while it made the log has left the name under which it wrote it."""
        for name in self._files.names(file.parent):
            if not name.startswith(f".{file.name}."):
                continue
            with suppress(FileNotFoundError):  # it lives, and has removed it itself
                if os.path.samestat((file.parent / name).lstat(), os.fstat(self._descriptor)):
                    self._files.remove(file.parent / name)

    def append(self, line: Line) -> None:
        """Raises OSError if it could not be written: who has the lock next cuts off what there is of it."""
        self._on_disk = max(self._on_disk, self._synced)
        encoded, crc = encode_line({**line, SYNCED: self._on_disk}, self._crc)
        self._files.write(self._descriptor, [encoded])
        self.contents.take(line, self.path)
        self._at, self._crc = self._at + len(encoded), crc

    def sync(self, end: tuple[int, int]) -> None:
        """Return when everything up to ``end`` is on disk. Raises DecisionUnknown; the log cannot be used any more."""
        descriptor, at = end
        with self._sync_lock:
            if self.failed is not None:
                raise DecisionUnknown(self.failed)
            if descriptor != self._descriptor or at <= self._synced:
                return  # a new file is synced before it takes the old one's place
            up_to = self._at
            try:
                self._files.sync(descriptor)
            except OSError as error:
                self.failed = str(explain(error, self.path))
                raise DecisionUnknown(self.failed) from None
            self._synced = up_to

    def compact(self, now: float) -> None:
        """Called with the lock: a new file takes the place of this one, if it is less than half as long."""
        lines = self.contents.lines(now)
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
        # A process that still reaches the old file, as where it is mounted by itself, must not decide in it.
        line, _ = encode_line({**moved_line(self.whose), SYNCED: self._on_disk}, self._crc)
        self._files.write(self._descriptor, [line])


_FILES: weakref.WeakSet[LogFile] = weakref.WeakSet()


def _after_fork() -> None:
    for file in list(_FILES):
        file.forked()


os.register_at_fork(after_in_child=_after_fork)
