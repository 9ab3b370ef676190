"""Where the source reads: the nodes that its options name, each with its log."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from recovery.identity import FILE as IDENTITY
from recovery.pipeline.node import END, Until, commit_point, node_name
from recovery.pipeline.node_log import NodeLog
from recovery.pipeline.session import PipelineError
from recovery.pipeline.source.options import SourceOptions
from txobserver.store import StoreError


@dataclass(frozen=True)
class Place:
    """A node and where its log is."""

    node: str
    directory: str

    def log(self) -> NodeLog:
        """Its log."""
        return NodeLog(Path(self.directory))

    def end(self, until: Until) -> int:
        """The last sequence that is to be read; it may lie behind the log's end."""
        return commit_point(Path(self.directory)) if until == "commit" else END


def places_of(options: SourceOptions) -> list[Place]:
    """The nodes that are there now. Raises PipelineError for a path without one, and for a node named twice."""
    found: dict[str, Place] = {}
    for path in options.paths:
        for directory in _directories(Path(path)):
            place = Place(node_name(directory), str(directory))
            if place.node in found:
                other = found[place.node].directory
                raise PipelineError(f"{other} and {directory} are both of node {place.node}; read them one by one")
            found[place.node] = place
    return sorted(found.values(), key=lambda each: each.node)


def _directories(path: Path) -> list[Path]:
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
        return True  # damaged: whoever reads it says so
