"""Lake: which Parquet files are the archive. What its newest manifest names is there; anything else is not.

    ARCHIVE/manifest/00000000000000000042.json   the newest counts, as a whole
    ARCHIVE/data/node=node-1/date=2026-01-31/….parquet
    ARCHIVE/lock                                  one writer at a time

A change is one new manifest, linked to its name when it is on disk. So a reader sees all of a change or nothing, and
a job that dies in the middle leaves files that no reader sees, until they are swept.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from recovery.pipeline.errors import PipelineError
from recovery.pipeline.source.offsets import Cluster
from recovery.store.crash_points import crash_point
from recovery.store.files import REAL_FILES, make_directory, renew_directory
from txobserver.ids import Position

FORMAT_VERSION = 1
MANIFESTS_KEPT = 20
_NAME = re.compile(r"[0-9]{20}\.json")
_NOWHERE = "leads to nothing: bring back what it leads to, as by mounting the disk"

PARTS = {"lock", "data", "checkpoint", "manifest"}
"""What an archive's directory holds, also when the job was killed before its first manifest."""


class FileEntry(msgspec.Struct, frozen=True):
    """One Parquet file: rows of one node and one day (UTC), by position and part."""

    path: str
    """Relative to the archive"""
    node: str
    date: str
    rows: int
    events: int
    bytes: int
    first: int
    """The least position in it"""
    last: int
    generation: int
    """Of the last one"""
    time_first: int
    """Milliseconds since 1970"""
    time_last: int
    begins: tuple[Position, ...] = ()
    """The first event in it of each generation; empty in a manifest that was written before this was noted"""
    begun: tuple[int, ...] = ()
    """The generations that begin in it"""


class Gap(msgspec.Struct, frozen=True):
    """Events that were gone before they could be archived, where failOnDataLoss is false."""

    node: str
    first: int
    last: int
    given_up: bool = False
    """The cluster has given up what is archived there (accepted data loss), and has had other events since."""


class Manifest(msgspec.Struct, frozen=True):
    """The whole archive at one moment. ``ends``: the position up to which each node is archived."""

    format: int = FORMAT_VERSION
    version: int = 0
    cluster: str = ""
    files: tuple[FileEntry, ...] = ()
    ends: Mapping[str, Position] = {}
    gaps: tuple[Gap, ...] = ()
    dropped: Mapping[str, int] = {}
    """Node -> up to which position days have been given up, by age"""
    removed: Mapping[str, int] = {}
    """Path -> since when no manifest names it, in milliseconds since 1970; its readers may not have ended yet"""
    cluster_id: str = ""
    """The identity that the cluster was founded with; empty in an archive that was not added to since it is kept"""

    @property
    def whose(self) -> Cluster:
        """The cluster that is archived."""
        return Cluster(self.cluster, self.cluster_id)


class Lake:
    """The archive in ``directory``, which need not exist yet."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._manifests = directory / "manifest"

    @property
    def exists(self) -> bool:
        """Whether an archive is there. Raises PipelineError if that is elsewhere, and cannot be seen.

        To take it for none would begin another one in its place, and sweep its files away.
        """
        if self._manifests.is_dir():
            return True
        if self._manifests.is_symlink():
            raise PipelineError(f"{self._manifests} {_NOWHERE}")
        return False

    def current(self) -> Manifest:
        """The newest manifest, an empty one if there is none. Raises PipelineError."""
        missing = None
        while versions := self._versions():
            try:
                manifest = msgspec.json.decode(versions[-1].read_bytes(), type=Manifest)
            except FileNotFoundError:
                if versions[-1] == missing:  # what was removed is not listed again
                    raise PipelineError(f"{missing} {_NOWHERE}") from None
                missing = versions[-1]  # so old by now that it was removed
                continue
            except (OSError, msgspec.DecodeError) as error:
                raise PipelineError(f"{versions[-1]} cannot be read: {error}") from error
            if manifest.format != FORMAT_VERSION:
                raise PipelineError(f"{versions[-1]} has format version {manifest.format}, not {FORMAT_VERSION}")
            return manifest
        return Manifest()

    def commit(self, changed: Manifest) -> Manifest:
        """Make this the archive, durably. Raises PipelineError if another writer was faster."""
        manifest = msgspec.structs.replace(changed, version=changed.version + 1)
        make_directory(self._manifests)
        path = self._manifests / f"{manifest.version:020d}.json"
        temporary = path.with_suffix(".new")
        with temporary.open("wb") as file:
            file.write(msgspec.json.encode(manifest))
            file.flush()
            os.fsync(file.fileno())
        crash_point("archive.manifest-written")
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise PipelineError(f"{path} has been written by another job; only one may write an archive") from None
        temporary.unlink()
        REAL_FILES.sync_directory(self._manifests)
        crash_point("archive.committed")
        for old in self._versions()[:-MANIFESTS_KEPT]:
            old.unlink(missing_ok=True)
        return manifest

    def files(self) -> Iterator[Path]:
        """Every data file that is there, named by the manifest or not."""
        return (self.directory / "data").rglob("*.parquet")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keep other writers out, and make durable what they have left. Raises PipelineError if there is one.

        A writer may have been killed, or its sync have failed, between the name of its last manifest and the sync of
        that name. What is archived goes by it from now on.
        """
        self._check_place()
        make_directory(self.directory)
        with (self.directory / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise PipelineError(f"another job writes the archive {self.directory}") from None
            if self.exists:
                renew_directory(self._manifests)
            yield

    def _check_place(self) -> None:
        """Raises PipelineError for a directory of something else, as a node's: its lock is not the archive's."""
        if self.directory.exists() and not self.directory.is_dir():
            raise PipelineError(f"{self.directory} is no directory: an archive needs one of its own")
        if not self.exists and self.directory.is_dir():
            others = sorted({path.name for path in self.directory.iterdir()} - PARTS)
            if others:
                raise PipelineError(
                    f"{self.directory} holds something else than an archive ({', '.join(others[:3])}): name a "
                    "directory that is empty, or is not there yet"
                )

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files, and the directories that become empty."""
        for path in paths:
            (self.directory / path).unlink(missing_ok=True)
            with suppress(OSError):
                (self.directory / path).parent.rmdir()

    def _versions(self) -> list[Path]:
        if not self.exists:
            return []
        return sorted(path for path in self._manifests.iterdir() if _NAME.fullmatch(path.name))
