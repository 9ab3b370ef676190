"""Schedules of a handover that an operator has asked for, and in which something else goes wrong."""

from __future__ import annotations

import pytest

from ha.messages.election import HandoverRefused, HandoverRequest
from tests.support.memory_cluster import MemoryCluster, MemoryNode
from tests.support.steps import all_agree, answered, backups_of, declared, publish


def asked(node: MemoryNode, accept_data_loss: bool = False) -> str | None:
    """What an operator is told who wants this node to be primary."""
    refused: list[str | None] = []
    node.report(lambda: refused.append(node.core.promote(accept_data_loss)))
    return refused[0]


def asks(node: MemoryNode) -> None:
    """An operator wants this node to be primary."""
    assert asked(node) is None


def written() -> tuple[MemoryCluster, MemoryNode, MemoryNode, MemoryNode]:
    cluster = declared("q")
    primary, chosen, other = cluster.primary, *backups_of(cluster)
    publish(primary, "q", "m")
    answered(cluster, primary, "publish m")
    cluster.pause(0.5)
    return cluster, primary, chosen, other


def other_active(cluster: MemoryCluster, former: MemoryNode) -> bool:
    return any(node.state == "active" and node is not former for node in cluster.nodes.values())


@pytest.mark.parametrize("hangs", ["before the request", "behind it"])
def test_handover_from_a_hung_disk(hangs: str) -> None:
    """P12: what the disk does not take never reaches the chosen one, so it never has everything; clients are closed."""
    cluster, primary, chosen, _ = written()
    primary.disk_held = hangs == "before the request"
    publish(primary, "q", "late")
    primary.disk_held = True
    asks(chosen)
    began = cluster.now
    cluster.run(lambda: other_active(cluster, primary), 3 * cluster.settings.prepare_timeout)
    assert cluster.now - began > cluster.settings.prepare_timeout, "a disk that is only slow is waited for"
    assert "m" in cluster.primary.host.bodies("q")
    primary.disk_held = False
    all_agree(cluster)


def test_handover_from_a_disk_that_is_only_slow() -> None:
    """It goes to whom it was meant for, with all that was on its way."""
    cluster, primary, chosen, _ = written()
    primary.disk_held = True
    publish(primary, "q", "late")
    asks(chosen)
    cluster.pause(0.8 * cluster.settings.prepare_timeout)
    primary.disk_held = False
    cluster.run(lambda: other_active(cluster, primary))
    assert cluster.primary is chosen and cluster.primary.host.bodies("q") == ["m", "late"]


def test_second_request_during_a_handover() -> None:
    """It is answered, and does not turn the handover round."""
    cluster, primary, chosen, other = written()
    primary.disk_held = True
    publish(primary, "q", "late")
    asks(chosen)
    cluster.pause(0.1)
    asks(other)
    cluster.pause(0.1)
    sentence = f"this node hands over already, to {chosen.name}"
    assert other.lines[-1] == f"{primary.name} refused: {sentence}"
    assert f"{other.name} asks to take over: {sentence}" in primary.lines
    assert other.state == "ready", "its attachment does not end by that"
    primary.disk_held = False
    cluster.run(lambda: other_active(cluster, primary))
    assert cluster.primary is chosen


def test_request_to_a_primary_that_gives_its_lease_up() -> None:
    cluster, primary, chosen, _ = written()
    cluster.cas_held.add(primary.name)
    primary.report(lambda: primary.core.resign("stopped"))
    asks(chosen)
    cluster.pause(0.1)
    assert chosen.lines[-1] == f"{primary.name} refused: this node hands over already, to any node that stands"


def test_request_to_a_primary_that_is_not_active_yet() -> None:
    cluster, primary, chosen, other = written()
    cluster.frozen.add(chosen.name)
    cluster.kill(primary.name)
    cluster.run(lambda: other.state == "recovering" and other.core.leading is not None)
    cluster.frozen.clear()
    chosen.disk_held = True
    cluster.run(lambda: chosen.state == "ready" and other.state == "recovering")
    asks(chosen)
    cluster.pause(0.05)
    assert any("not active yet" in line for line in chosen.lines) and other.state == "recovering"
    chosen.disk_held = False
    all_agree(cluster)


def test_request_of_an_attachment_that_has_ended() -> None:
    cluster, primary, chosen, _ = written()
    said: list[object] = []
    cluster.lose = lambda source, target, message: said.append(message) or False  # type: ignore[func-returns-value]
    assert chosen.core.following is not None
    old = HandoverRequest(primary.core.generation, chosen.core.following.backup.session - 1)
    primary.report(lambda: primary.core.on_message(chosen.name, old))
    (refused,) = [each for each in said if isinstance(each, HandoverRefused)]
    assert "only a ready backup" in refused.reason
    cluster.pause(0.1)
    assert chosen.state == "ready" and primary.state == "active" and not primary.host.closed


@pytest.mark.parametrize("reads", [False, True])
def test_handover_to_one_that_knows_that_it_cannot_stand(reads: bool) -> None:
    """It refuses, and no node closes its clients; when it can change the record again it takes the role."""
    cluster, primary, chosen, _ = written()
    if reads:  # it was primary a moment ago, and lost the store then
        cluster.storeless.add(primary.name)
        cluster.run(lambda: other_active(cluster, primary))
        cluster.storeless.clear()
        cluster.run(lambda: primary.state == "ready")
        primary, chosen = cluster.primary, primary
    else:
        cluster.storeless.add(chosen.name)
        cluster.pause(5.0)
    assert chosen.state == "ready"
    refused = asked(chosen)
    assert refused is not None and "choose another one" in refused and "record" in refused
    cluster.pause(1.0)
    assert cluster.primary is primary and primary.state == "active" and not primary.host.closed
    cluster.storeless.clear()
    cluster.run(lambda: asked(chosen) is None)
    cluster.run(lambda: chosen.state == "active")
    all_agree(cluster)


@pytest.mark.parametrize("accept_data_loss", [False, True])
def test_handover_to_one_that_is_being_stopped(accept_data_loss: bool) -> None:
    cluster, primary, chosen, _ = written()
    chosen.report(lambda: chosen.core.resign("stopped"))
    if accept_data_loss:
        cluster.kill(primary.name)
        cluster.pause(2.0)
    assert asked(chosen, accept_data_loss) == "this node is being stopped; choose another one"
