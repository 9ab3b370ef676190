"""What waits for a node's disk, made slow or failing by a library in LD_PRELOAD: ``disk_shim.c``, built at each run.

The library and the suite share a small file for each node: for each kind of file what shall happen to a sync of it, and
how many syncs it has happened to. It works beside libfaketime, and in network namespaces.
"""

from __future__ import annotations

import contextlib
import enum
import mmap
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("disk_shim.c")
FOREVER = 1 << 62
"""More syncs than there will ever be"""
_FIELDS = 6


class Kind(enum.IntEnum):
    """What of a node's directory is synced; the coordination file and all else outside of it is left alone."""

    LOG = 0
    STATE = 1
    """LMDB: the checkpoints"""
    OTHER = 2


ALL = tuple(Kind)


class _At(enum.IntEnum):
    """Fields of the file, for each kind; of 8 bytes each."""

    DELAY = 0
    SPARED = 1
    TO_FAIL = 2
    SEEN = 3
    DELAYED = 4
    FAILED = 5


@dataclass(frozen=True)
class Syncs:
    """How many syncs there were since the nodes' first start, and how many of them the disk was slow or failing for."""

    seen: int
    delayed: int
    failed: int


def together(disk: Mapping[str, str], clock: Mapping[str, str]) -> dict[str, str]:
    """One environment of two, for a process with a disk and a clock of its own; either may be empty."""
    libraries = [each["LD_PRELOAD"] for each in (disk, clock) if each]  # in this order, see disk_shim.c
    return {**disk, **clock, **({"LD_PRELOAD": ":".join(libraries)} if libraries else {})}


class Disks:
    """The disks of nodes. ``scratch`` is a directory for the library and the files that control it."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch.resolve()

    @staticmethod
    def why_not() -> str | None:
        """What is missing for it on this machine, None if nothing is."""
        if _compiler() is None:
            return "a slow or failing disk takes a C compiler; on Debian: apt-get install gcc libc6-dev"
        try:
            with tempfile.TemporaryDirectory(prefix="txha-stress-") as scratch:
                _build(Path(scratch) / "disk_shim.so")
        except OSError as error:
            return f"the library for a slow or failing disk cannot be built: {error}"
        return None

    def environment(self, node: str, directory: Path) -> dict[str, str]:
        """What a process needs in its environment so that ``directory`` lies on this node's disk.

        Raises OSError if the library cannot be built.
        """
        library = self._library()
        if not self._file(node).exists():
            self._file(node).write_bytes(bytes(len(Kind) * _FIELDS * 8))
        return {
            "LD_PRELOAD": str(library),
            "STRESS_DISK_DIRECTORY": str(directory.resolve()),
            "STRESS_DISK_CONTROL": str(self._file(node)),
        }

    def slow(self, node: str, seconds: float, kinds: Iterable[Kind] = ALL) -> None:
        """Every sync of these kinds takes so much longer from now on."""
        self._set(node, kinds, _At.DELAY, round(seconds * 1e6))

    def fail(self, node: str, times: int = FOREVER, kinds: Iterable[Kind] = ALL, spared: int = 0) -> None:
        """So many syncs of each of these kinds fail with EIO from now on, once so many have passed."""
        self._set(node, kinds, _At.SPARED, spared)
        self._set(node, kinds, _At.TO_FAIL, times)

    def heal(self, node: str) -> None:
        """Neither slow nor failing any longer; what waits goes on at once."""
        self._set(node, ALL, _At.DELAY, 0)
        self._set(node, ALL, _At.TO_FAIL, 0)

    def count(self, node: str, kinds: Iterable[Kind] = ALL) -> Syncs:
        """What has been synced, of these kinds."""
        with self._open(node) as words:
            seen, delayed, failed = (
                sum(words[kind * _FIELDS + at] for kind in kinds) for at in (_At.SEEN, _At.DELAYED, _At.FAILED)
            )
        return Syncs(seen, delayed, failed)

    def _set(self, node: str, kinds: Iterable[Kind], at: _At, value: int) -> None:
        with self._open(node) as words:
            for kind in kinds:
                words[kind * _FIELDS + at] = value

    @contextlib.contextmanager
    def _open(self, node: str) -> Iterator[memoryview[int]]:
        with (
            self._file(node).open("r+b") as file,
            mmap.mmap(file.fileno(), 0) as data,
            memoryview(data) as raw,
            raw.cast("Q") as words,
        ):
            yield words

    def _file(self, node: str) -> Path:
        return self._scratch / f"{node}.disk"

    def _library(self) -> Path:
        library = self._scratch / "disk_shim.so"
        if not library.exists():
            self._scratch.mkdir(parents=True, exist_ok=True)
            _build(library)
        return library


def _build(library: Path) -> None:
    """Raises OSError."""
    command = [_compiler() or "cc", "-O2", "-shared", "-fPIC", "-Wall", "-o", str(library), str(SOURCE), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")


def _compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
