"""Named schedules of PROTOCOL about prepare, decision and answer; they run under the cluster's oracles."""

from __future__ import annotations

import pytest

from ha.messages.stream import Ack, Cancel
from tests.support.steps import (
    T,
    answered,
    backups_of,
    begin,
    begin_t,
    carrying,
    commit,
    decided,
    declared,
    prepared,
    publish,
    survivors_agree,
    whole_or_absent,
)
from txobserver.events import TxDecision, TxPrepare


def test_two_streams() -> None:
    """A transaction dequeues what was published just before it: the dequeue never overtakes the enqueue."""
    cluster = declared("q", "r")
    primary = cluster.primary
    publish(primary, "q", "m")
    answered(cluster, primary, "publish m")
    publish(primary, "q", "n")
    commit(primary, begin(primary, {"r": ["from m"]}, {"q": ["m"]}))
    answered(cluster, primary)
    survivors_agree(cluster)
    assert primary.host.bodies("q") == ["n"] and primary.host.bodies("r") == ["from m"]


def test_hidden_commit_versus_later_publish() -> None:
    """A is decided and hidden when N is published: A's offset is its decision's, so A comes first on every node."""
    cluster = declared("q", "r")
    primary, _, slow = cluster.primary, *backups_of(cluster)
    observer = begin_t(primary)
    publish(primary, "q", "before")
    answered(cluster, primary, "publish before")
    commit(primary, observer)
    cluster.run(lambda: prepared(primary))
    cluster.run(lambda: decided(primary))
    cluster.held.add((slow.name, primary.name))
    publish(primary, "q", "after")
    cluster.pause(0.3)
    assert primary.host.bodies("q") == ["before"]
    cluster.held.clear()
    answered(cluster, primary)
    answered(cluster, primary, "publish after")
    assert primary.host.bodies("q") == ["before", "t", "after"]
    survivors_agree(cluster)
    cluster.kill(primary.name)
    cluster.run(lambda: any(n.state == "active" for n in cluster.nodes.values()))
    assert cluster.primary.host.bodies("q") == ["before", "t", "after"]


def test_outcome_told_too_early() -> None:
    """Decided on the primary and on one backup, not on the other: nothing of it is visible, counted or told."""
    cluster = declared("q", "r")
    primary, _, slow = cluster.primary, *backups_of(cluster)
    commit(primary, begin_t(primary))
    cluster.run(lambda: decided(primary))
    cluster.held.add((primary.name, slow.name))
    cluster.pause(1.0)
    assert primary.host.answer("commit") is None
    assert not whole_or_absent(cluster, *T)
    assert primary.core.replica.contents.queues.summary(primary.host.number("q")).count == 0
    cluster.held.clear()
    answered(cluster, primary)
    assert whole_or_absent(cluster, *T)


def test_hung_backup_after_decision() -> None:
    cluster = declared("q", "r")
    primary, _, hung = cluster.primary, *backups_of(cluster)
    commit(primary, begin_t(primary))
    cluster.run(lambda: decided(primary))
    cluster.frozen.add(hung.name)
    answered(cluster, primary)
    assert hung.member not in cluster.coordination.record.ready
    assert whole_or_absent(cluster, *T)
    cluster.frozen.clear()
    survivors_agree(cluster)


def test_hung_backup_before_prepare() -> None:
    cluster = declared("q", "r")
    primary, _, hung = cluster.primary, *backups_of(cluster)
    cluster.frozen.add(hung.name)
    began = cluster.now
    commit(primary, begin_t(primary))
    answered(cluster, primary)
    assert cluster.now - began >= cluster.settings.prepare_timeout
    assert hung.member not in cluster.coordination.record.ready
    cluster.frozen.clear()
    survivors_agree(cluster)


def test_min_ready_lost_after_decision() -> None:
    cluster = declared("q", "r", size=2, min_ready=2)
    primary, other = cluster.primary, *backups_of(cluster)
    commit(primary, begin_t(primary))
    cluster.run(lambda: decided(primary))
    cluster.kill(other.name)
    cluster.run(lambda: len(cluster.coordination.record.ready) == 1)
    cluster.pause(1)
    assert primary.host.answer("commit") is None, "decided: it may wait, it may not fail"
    commit(primary, begin(primary, {"q": ["new"]}), "new")
    assert "ready" in (primary.host.answer("new") or "")
    cluster.start(other.name)
    answered(cluster, primary)
    survivors_agree(cluster)
    assert cluster.primary.host.bodies("q") == ["t"]


def test_min_ready_lost_before_decision() -> None:
    cluster = declared("q", "r", size=2, min_ready=2)
    primary, other = cluster.primary, *backups_of(cluster)
    cluster.held.add((primary.name, other.name))
    commit(primary, begin_t(primary))
    cluster.run(lambda: prepared(primary))
    cluster.kill(other.name)
    cluster.run(lambda: primary.host.answer("commit") is not None)
    assert "rolled back" in (primary.host.answer("commit") or "")
    cluster.held.clear()
    cluster.start(other.name)
    survivors_agree(cluster)
    assert not whole_or_absent(cluster, *T)


def test_decision_sync_fails() -> None:
    cluster = declared("q", "r")
    primary = cluster.primary
    commit(primary, begin_t(primary))
    cluster.run(lambda: decided(primary))
    primary.disk_error = "input/output error"
    cluster.run(lambda: primary.stopped is not None)
    assert primary.host.answer("commit") is None, "unanswered: the outcome is unknown"
    assert primary.host.closed
    cluster.run(lambda: primary.member not in cluster.coordination.record.ready)
    cluster.kill(primary.name)
    cluster.run(lambda: any(n.state == "active" for n in cluster.nodes.values()))
    whole_or_absent(cluster, *T)
    survivors_agree(cluster)


def test_a_failing_store_leaves_the_ready_set() -> None:
    cluster = declared("q", "r")
    primary, _, full = cluster.primary, *backups_of(cluster)
    full.disk_error = "no space is left"
    commit(primary, begin_t(primary))
    cluster.run(lambda: primary.host.answer("commit") is not None)
    assert full.member not in cluster.coordination.record.ready or primary.host.answer("commit") != "ok"
    commit(primary, begin(primary, {"q": ["next"]}), "next")
    answered(cluster, primary, "next")
    assert full.member not in cluster.coordination.record.ready
    assert full.stopped == "no space is left"


def test_decisions_sent_out_of_order() -> None:
    """A frame that is lost on the way leaves a gap: what follows it is neither taken nor acknowledged."""
    cluster = declared("q", "r")
    primary, _, other = cluster.primary, *backups_of(cluster)
    cluster.lose = carrying(TxDecision, other.name)
    commit(primary, begin_t(primary), "first")
    cluster.run(lambda: decided(primary))
    commit(primary, begin(primary, {"q": ["u"], "r": ["u"]}), "second")
    answered(cluster, primary, "second")
    assert any("does not continue" in line for line in other.lines)
    survivors_agree(cluster)
    assert primary.host.bodies("q") == ["t", "u"]


def test_prepare_lost() -> None:
    cluster = declared("q", "r")
    primary, _, other = cluster.primary, *backups_of(cluster)
    cluster.lose = carrying(TxPrepare, other.name)
    commit(primary, begin_t(primary))
    answered(cluster, primary)
    survivors_agree(cluster)
    assert whole_or_absent(cluster, *T)


@pytest.mark.parametrize("which", range(1, 5))
def test_ack_lost(which: int) -> None:
    cluster = declared("q", "r")
    primary, _, other = cluster.primary, *backups_of(cluster)
    seen = []

    def lose(source: str, target: str, message: object) -> bool:
        if source == other.name and isinstance(message, Ack):
            seen.append(message)
            return len(seen) == which
        return False

    cluster.lose = lose
    commit(primary, begin_t(primary))
    answered(cluster, primary)
    survivors_agree(cluster)
    assert whole_or_absent(cluster, *T)


def test_rollback_after_prepare() -> None:
    """One participant cancels after the other has prepared: rolled back everywhere, nothing is left behind."""
    cluster = declared("q", "r")
    primary, _, other = cluster.primary, *backups_of(cluster)
    observer = begin_t(primary)
    cluster.held.add((other.name, primary.name))
    commit(primary, observer)
    cluster.run(lambda: all(prepared(node) for node in cluster.nodes.values()))
    backup = other.core.following.backup
    assert backup is not None
    cancel = Cancel(backup.generation, backup.session, observer.tx, "its disk is gone")
    primary.report(lambda: primary.core.on_message(other.name, cancel))
    cluster.held.clear()
    assert "its disk is gone" in (primary.host.answer("commit") or "")
    survivors_agree(cluster)
    assert not whole_or_absent(cluster, *T)
    commit(primary, begin_t(primary), "again")
    answered(cluster, primary, "again")
    assert whole_or_absent(cluster, *T)


def test_a_node_that_lacks_an_event_votes_against() -> None:
    cluster = declared("q", "r")
    primary, _, other = cluster.primary, *backups_of(cluster)
    observer = begin_t(primary)
    cluster.pause(0.1)
    other.core.replica.buffers[observer.tx].events.pop()
    commit(primary, observer)
    cluster.run(lambda: primary.host.answer("commit") is not None)
    assert "1 of its 2 events" in (primary.host.answer("commit") or "")
    cluster.pause(0.3)
    assert not whole_or_absent(cluster, *T)


@pytest.mark.parametrize("keeps", [True, False])
def test_a_decision_that_reached_one_backup_only(keeps: bool) -> None:
    """The one that has it survives: the decision stands. The other one survives: it never was."""
    cluster = declared("q", "r")
    primary, with_it, without = cluster.primary, *backups_of(cluster)
    commit(primary, begin_t(primary))
    cluster.run(lambda: decided(primary))
    cluster.held.add((primary.name, without.name))
    cluster.run(lambda: decided(with_it))
    cluster.pause(0.05)
    assert not decided(without) and primary.host.answer("commit") is None
    cluster.kill(primary.name)
    cluster.held.clear()
    if not keeps:
        cluster.cas_held.add(with_it.name)
        cluster.partition(with_it.name)
    cluster.run(lambda: any(n.state == "active" for n in cluster.nodes.values()))
    assert cluster.primary is (with_it if keeps else without)
    assert whole_or_absent(cluster, *T) is keeps
    cluster.cas_held.clear()
    cluster.heal()
    cluster.start(primary.name)
    survivors_agree(cluster)
    assert whole_or_absent(cluster, *T) is keeps


def test_dangling_branch_on_returning_node() -> None:
    """A node holds T prepared when it is cut off; T is decided without it; on its return nothing dangles."""
    cluster = declared("q", "r")
    primary, _, away = cluster.primary, *backups_of(cluster)
    cluster.held.add((away.name, primary.name))
    commit(primary, begin_t(primary))
    cluster.run(lambda: prepared(away))
    cluster.cas_held.add(away.name)
    cluster.partition(away.name)
    answered(cluster, primary)
    assert prepared(away)
    cluster.held.clear()
    cluster.cas_held.clear()
    cluster.heal()
    survivors_agree(cluster)
    assert whole_or_absent(cluster, *T)


def test_paused_primary_acknowledges_late() -> None:
    """The primary stops for longer than its lease with all acknowledgements on their way: it answers nothing more."""
    cluster = declared("q", "r")
    primary = cluster.primary
    commit(primary, begin_t(primary))
    cluster.run(lambda: decided(primary))
    cluster.frozen.add(primary.name)
    cluster.run(lambda: any(n.state == "active" and n is not primary for n in cluster.nodes.values()))
    cluster.frozen.clear()
    cluster.turn()
    assert primary.host.answer("commit") is None
    cluster.run(lambda: primary.state != "active")
    assert primary.host.closed
    survivors_agree(cluster)
    whole_or_absent(cluster, *T)


@pytest.mark.parametrize("turns", range(14))
@pytest.mark.parametrize("victim", [0, 1, 2])
def test_each_node_dies_at_each_step(victim: int, turns: int) -> None:
    """0 is the primary. Whatever was answered ok is there; what was not is whole or absent."""
    cluster = declared("q", "r")
    nodes = [cluster.primary, *backups_of(cluster)]
    primary = nodes[0]
    publish(primary, "q", "in")
    answered(cluster, primary, "publish in")
    commit(primary, begin(primary, {"q": ["t"], "r": ["t"]}, {"q": ["in"]}))
    for _ in range(turns):
        cluster.turn()
    cluster.kill(nodes[victim].name)
    cluster.run(lambda: any(n.state == "active" for n in cluster.nodes.values()))
    cluster.pause(1)
    present = whole_or_absent(cluster, *T)
    assert ("in" in cluster.primary.host.bodies("q")) is not present, "the acknowledgement is a part of T"
    assert present or primary.host.answer("commit") != "ok"
    assert primary.host.answer("commit") in (None, "ok")
    cluster.start(nodes[victim].name)
    survivors_agree(cluster)


@pytest.mark.parametrize("turns", range(12))
def test_all_die_at_each_step(turns: int) -> None:
    cluster = declared("q", "r")
    primary = cluster.primary
    commit(primary, begin_t(primary))
    for _ in range(turns):
        cluster.turn()
    for name in list(cluster.nodes):
        cluster.kill(name)
    for name in cluster.disks:
        cluster.start(name)
    survivors_agree(cluster)
    assert whole_or_absent(cluster, *T) or primary.host.answer("commit") != "ok"
