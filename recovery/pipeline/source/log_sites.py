"""Where the source reads: the nodes that its options name, each with its log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from recovery.pipeline.archive.lake import Lake
from recovery.pipeline.errors import PipelineError
from recovery.pipeline.node import ReadableLog, Until, commit_point, node_name
from recovery.pipeline.remote import RemoteLog
from recovery.pipeline.selection import Selection
from recovery.pipeline.source.offsets import Cluster
from recovery.pipeline.source.options import LogSourceOptions
from recovery.reader.marks import Mark
from recovery.reader.node_log import NodeLog
from recovery.reader.tls_socket import ReaderCertificate
from recovery.store.identity import FILE as IDENTITY
from recovery.store.identity import read_identity
from recovery.store.log import LogReclaimed
from txobserver.ids import Position
from txobserver.ports.store import StoreError


class Extent(NamedTuple):
    """What can be read of a log: the sequences from ``first`` to ``last``; none if that is the lower one.

    ``tail``: where the log itself ends, which may be behind that; None if its node does not tell.
    """

    cluster: Cluster
    first: int
    last: int
    tail: int | None


class LogSite(Protocol):
    """A node, and where its log is; it is sent to the processes that read."""

    node: str

    def log(self) -> ReadableLog:
        """Its log."""
        ...

    def extent(self, until: Until) -> Extent:
        """What can be read now. Raises StoreError."""
        ...

    def position(self, sequence: int, log: ReadableLog | None = None) -> Position | None:
        """The position of the event with this sequence, None if the log does not hold it.

        ``log``: this node's, where a reader has it open already.
        """
        ...

    def ranges(self, first: int, last: int, size: int, selection: Selection) -> Iterator[tuple[int, int, Mark | None]]:
        """Parts of about ``size`` bytes without what need not be read: first, last, where the first one's frame stands.

        Raises LogReclaimed.
        """
        ...


@dataclass
class Directory:
    """The directory of a node, whether it runs or not."""

    node: str
    directory: str
    _near: Mark | None = field(default=None, compare=False)
    """The last whole frame when it was looked for, so that the next search begins there."""
    _found: Mark | None = field(default=None, compare=False)
    """The frame whose position was asked for last: it is asked for again before and after each part is read."""

    def log(self) -> NodeLog:
        return NodeLog(Path(self.directory), self.node)

    def extent(self, until: Until) -> Extent:
        last = commit_point(Path(self.directory)) if until == "commit" else None
        log = self.log()
        firsts = log.segments.firsts()
        identity = log.identity()
        if not firsts or identity is None:
            return Extent(Cluster(""), 1, 0, 0)
        self._near = log.end(self._near)
        tail = self._near.last if self._near is not None else firsts[-1] - 1
        store = read_identity(Path(self.directory))
        cluster = Cluster(identity.cluster, "" if store is None else store.cluster_id)
        return Extent(cluster, firsts[0], tail if last is None else min(last, tail), tail)

    def position(self, sequence: int, log: ReadableLog | None = None) -> Position | None:
        there, near = self.log(), self._found
        if near is not None and (near.first > sequence or not there.segments.holds(near)):
            near = None
        try:
            self._found = mark = there.find(sequence, near)
        except LogReclaimed:
            return None
        return None if mark is None else Position(mark.generation, sequence)

    def ranges(self, first: int, last: int, size: int, selection: Selection) -> Iterator[tuple[int, int, Mark | None]]:
        after, before = selection.times()
        for begin, end in self.log().ranges(first, last, size, lambda mark: after <= mark.time_ms <= before):
            yield max(begin.first, first), min(end.last, last), begin


@dataclass
class RunningNode:
    """A node that runs, wherever that is, by the address of its peer port. It is read up to the commit point."""

    node: str
    address: str
    cluster: str
    cluster_id: str = ""
    secret_file: str | None = None
    """Where the reader's secret stands, on each machine that reads; it is not sent to them."""
    certificate: ReaderCertificate | None = None
    """So do these files"""

    def log(self) -> RemoteLog:
        return RemoteLog(self.address, self.cluster, self.node, self.cluster_id, self.secret_file, self.certificate)

    def extent(self, until: Until) -> Extent:
        with closing(self.log()) as log:
            found = log.extent()
        return Extent(Cluster(self.cluster, self.cluster_id), found.first, found.last, found.tail)

    def position(self, sequence: int, log: ReadableLog | None = None) -> Position | None:
        with closing(self.log()) as own:
            try:
                frames = (log or own).frames(sequence, sequence)
                return next((Position(frame.generation, sequence) for frame in frames), None)
            except LogReclaimed:
                return None

    def ranges(self, first: int, last: int, size: int, selection: Selection) -> Iterator[tuple[int, int, Mark | None]]:
        """Parts of equal numbers of events: how many bytes they have is not known here, but on the average."""
        with closing(self.log()) as log:
            there = log.extent()
        step = max(1, size * (there.last - there.first + 1) // max(there.size, 1))
        for begin in range(first, last + 1, step):
            yield begin, min(begin + step - 1, last), None


def raised(problem: Exception) -> None:
    """A path that cannot be read is an error."""
    raise problem


def places_of(options: LogSourceOptions, on_problem: Callable[[Exception], None] = raised) -> list[LogSite]:
    """The nodes that are there now. Raises PipelineError for a node named twice.

    ``on_problem`` is called for a path that holds none or cannot be read.
    """
    found: dict[str, tuple[str, LogSite]] = {}
    finders: list[Callable[[], list[tuple[str, LogSite]]]] = [
        *(partial(_below, Path(path)) for path in options.paths),
        *(partial(_at, address, options) for address in options.nodes),
    ]
    for find in finders:
        try:
            there = find()
        except (PipelineError, StoreError) as error:
            on_problem(error)
            continue
        for where, place in there:
            if place.node in found:
                raise PipelineError(
                    f"{found[place.node][0]} and {where} are both of node {place.node}; read them one by one"
                )
            found[place.node] = where, place
    return [place for _, (_, place) in sorted(found.items())]


def _below(path: Path) -> list[tuple[str, LogSite]]:
    return [(str(each), Directory(node_name(each), str(each))) for each in _directories(path)]


def _at(address: str, options: LogSourceOptions) -> list[tuple[str, LogSite]]:
    secret_file, certificate = options.secret_file, options.certificate
    with closing(RemoteLog(address, options.cluster, secret_file=secret_file, certificate=certificate)) as log:
        hello = log.hello
    return [(address, RunningNode(hello.node, address, hello.cluster, hello.cluster_id, secret_file, certificate))]


def _directories(path: Path) -> list[Path]:
    if Lake(path).exists:
        raise PipelineError(f"{path} is an archive, which is read as a batch and not as a stream")
    if _is_node(path):
        return [path]
    try:
        found = sorted(each for each in path.iterdir() if each.is_dir() and _is_node(each))
    except OSError as error:
        raise PipelineError(f"{path} cannot be read: {error.strerror}") from error
    if not found:
        raise PipelineError(f"{path} is neither a node's directory nor one that holds some")
    return found


def _is_node(path: Path) -> bool:
    if (path / IDENTITY).exists():
        return True
    try:
        return NodeLog(path).identity() is not None
    except StoreError:
        return True  # damaged: its reader says so
