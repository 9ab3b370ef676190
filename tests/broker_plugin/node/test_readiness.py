"""No operator overlooks that fewer nodes are ready than there should be."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace
from pydantic import SecretStr

from broker_plugin.node.config import Address, NodeConfig, PeerNode
from broker_plugin.node.main import NodeProcess
from broker_plugin.node.readiness import Readiness
from ha.membership.members import ClusterNode, Membership
from ha.membership.record import Record
from ha.settings import Settings
from txobserver.ids import Member


def test_what_a_shortage_means() -> None:
    three = Readiness(3, 2)
    assert three.shortage(3) is None
    assert three.shortage(2) is not None and "2 of 3 nodes are ready" in str(three.shortage(2))
    assert "NOTHING NEW IS COMMITTED" in str(three.shortage(1)) and "min_ready is 2" in str(three.shortage(1))
    assert "ON ONE DISK" in str(Readiness(3, 1).shortage(1))
    assert Readiness(1, 1).shortage(1) is None and "ON ONE DISK" in str(Readiness(2, 1).shortage(1))


def test_how_many_more_may_leave_is_counted() -> None:
    assert str(Readiness(5, 3).shortage(4)).endswith("nothing new is committed when 2 more must leave")
    assert str(Readiness(5, 3).shortage(3)).endswith("nothing new is committed when another one must leave")
    assert str(Readiness(7, 2).shortage(5)).endswith("when 4 more must leave")


def test_the_node_itself_is_one_of_the_nodes(tmp_path: Path) -> None:
    peers = [PeerNode(name=name, port=port) for name, port in (("b", 8), ("c", 9))]
    at = {"dir": tmp_path / "a", "coordination": tmp_path / "r", "peer": Address(port=7, secret=SecretStr("s" * 32))}
    node = NodeProcess(NodeConfig(name="a", cluster="c", peers=peers, **at))
    assert (node._readiness.nodes, node._readiness.min_ready) == (3, 2)


def test_the_primary_warns_each_time_that_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    readiness = Readiness(3, 2)
    with caplog.at_level(logging.INFO, "txha.node"):
        for ready in (None, 1, 1, 2, 3, 3, 2, None, 2, 3):
            readiness.look(ready)
    said = [(record.levelname, record.getMessage().split(":")[0]) for record in caplog.records]
    one, two = "1 of 3 nodes is ready and min_ready is 2", "2 of 3 nodes are ready"
    again = ("INFO", "all 3 nodes are ready again")
    assert said == [("WARNING", one), ("WARNING", two), again, ("WARNING", two), ("WARNING", two), again]


def test_the_members_in_the_record_count_for_more_than_the_file() -> None:
    """All members are nodes that should be ready; ``min_ready`` goes by those that have been."""
    a, b, c = (Member(name, f"{name}1") for name in "abc")
    nodes = tuple(ClusterNode(each.node, each.node, 5, True, each.incarnation) for each in (a, b, c))
    said = Record("c", 4, 2, a, (a, b), membership=Membership(1, (*nodes, ClusterNode("d", "d", 5))))
    core: Any = SimpleNamespace(record=None, settings=Settings(min_ready=1, follow_members=True))
    readiness = Readiness(2, 1)
    for record, expected in ((None, (2, 1)), (said, (4, 2)), (replace(said, membership=UNSET), (2, 1))):
        core.record = record
        readiness.follow(core)
        assert (readiness.nodes, readiness.min_ready) == expected
