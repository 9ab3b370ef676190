"""Offsets of streams: for each node which event of it was read last, and of which cluster.

    {"node-1": {"cluster": "…", "cluster_id": "…", "position": "3.1234"}, …}

Two clusters can have one name; the random identity that each was founded with tells them apart. Where nothing says it,
in an offset of an earlier version or of a store that has not met its cluster's record yet, ``cluster_id`` is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from recovery.pipeline.errors import PipelineError
from txobserver.ids import Position

Offset = dict[str, dict[str, str]]


class Cluster(NamedTuple):
    """Whose log it is: the cluster's name, and its identity. Either is empty where nothing says it."""

    name: str
    id: str = ""

    def is_another(self, than: Cluster) -> bool:
        """Whether these are surely two clusters: what is not known of one of them is not compared."""
        return any(ours != theirs for ours, theirs in zip(self, than, strict=True) if ours and theirs)

    def known_as(self, before: Cluster) -> Cluster:
        """With the identity that was known before, if nothing says it now; ``before`` is no other one."""
        return Cluster(self.name, self.id or before.id)

    def __str__(self) -> str:
        return f"{self.name} (identity {self.id})" if self.id else self.name


def offset_at(cluster: Cluster, position: Position) -> dict[str, str]:
    """One node's part of an offset."""
    said = {"cluster": cluster.name, "cluster_id": cluster.id, "position": str(position)}
    return {key: value for key, value in said.items() if value or key != "cluster_id"}


def cluster_in(offset: Mapping[str, str]) -> Cluster:
    """The cluster in one node's part of an offset."""
    return Cluster(offset["cluster"], offset.get("cluster_id", ""))


def position_of(offset: Mapping[str, Any], node: str) -> Position:
    """The position in one node's part of an offset. Raises PipelineError for anything else."""
    try:
        generation, sequence = str(offset["position"]).split(".")
        if isinstance(offset["cluster"], str) and isinstance(offset.get("cluster_id", ""), str):
            return Position(int(generation), int(sequence))
    except (AttributeError, KeyError, TypeError, ValueError):
        pass
    raise PipelineError(
        f'the offset of node {node} reads {{"cluster": "…", "position": "generation.sequence"}}, and may have the '
        "cluster_id"
    )
