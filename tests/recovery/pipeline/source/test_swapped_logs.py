"""Two nodes' log directories that were swapped: each segment says whose it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from recovery.pipeline.node import node_name
from recovery.pipeline.source.log_sites import places_of
from recovery.pipeline.source.options import parse_options
from recovery.store.segment import segment_firsts, segment_path
from tests.recovery.planner.stores import beginning, make_store
from txobserver.ports.store import StoreError


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        make_store(tmp_path / name, [(1, beginning(20))], 15)
    return tmp_path


def test_swapped_logs_are_refused_by_their_headers(cluster: Path) -> None:
    """Before a query is planned, and not as what another machine has at the same path."""
    options = parse_options({"path": str(cluster)})
    assert [place.node for place in places_of(options)] == ["a", "b"]
    (cluster / "a" / "log").rename(cluster / "log")
    (cluster / "b" / "log").rename(cluster / "a" / "log")
    (cluster / "log").rename(cluster / "b" / "log")
    for read in (lambda: places_of(options), lambda: node_name(cluster / "a")):
        with pytest.raises(StoreError, match="holds the log of node b of cluster cluster, and identity"):
            read()


def test_one_segment_of_another_node_is_found(cluster: Path) -> None:
    firsts = segment_firsts(cluster / "a" / "log")
    assert len(firsts) > 2
    theirs = segment_path(cluster / "b" / "log", firsts[1]).read_bytes()
    segment_path(cluster / "a" / "log", firsts[1]).write_bytes(theirs)
    with pytest.raises(StoreError, match="holds the log of node b"):
        node_name(cluster / "a")


def test_a_header_that_cannot_be_read_is_left_for_the_reader(cluster: Path) -> None:
    segment_path(cluster / "a" / "log", segment_firsts(cluster / "a" / "log")[0]).write_bytes(b"")
    assert node_name(cluster / "a") == "a"
