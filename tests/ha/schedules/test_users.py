"""Users of the cluster: steps of the one stream, asked for at any node, in checkpoints and copies, and gated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ha.apply.replica import Replica
from ha.catchup.queue_replicator import QueueReplicator, SnapshotMismatch
from ha.messages.copying import SnapshotAccess, SnapshotEnd
from ha.messages.steps import StepAsk, StepTold
from ha.refusals import NO_PRIMARY, OUTCOME_UNKNOWN
from tests.support.memory_cluster import MemoryCluster, MemoryNode
from tests.support.steps import all_agree, backups_of, declared
from txobserver.access import (
    USERS_FEATURE,
    Access,
    User,
    add_user_step,
    delete_user_step,
    found_users_step,
    set_password_step,
    set_tags_step,
)
from txobserver.audited import AUDITED, MOST_CHANGES, Origin, audited_step
from txobserver.events import Configure
from txobserver.ids import Position
from txobserver.outcomes import OutcomesMeta
from txobserver.ports.store import MemoryBase, Meta
from txobserver.refusal import Refusal
from txobserver.rules import MAX_CHANNELS, USER_LIMIT, Limit, Rule, set_rule_step


class UsersCluster(MemoryCluster):
    """All nodes know users. ``said``: the answers, by label."""

    features = frozenset({USERS_FEATURE})

    def __init__(self, size: int = 3, **settings: Any) -> None:
        self.said: dict[str, str | None] = {}
        super().__init__(size, **settings)

    def ask(self, node: MemoryNode, label: str, step: Configure) -> None:
        def done(error: str | None) -> None:
            assert label not in self.said, "answered twice"
            self.said[label] = error

        node.report(lambda: node.core.configure(step, done))

    def carried_out(self, node: MemoryNode, label: str, step: Configure) -> str | None:
        self.ask(node, label, step)
        self.run(lambda: label in self.said)
        return self.said[label]


@pytest.fixture
def cluster() -> UsersCluster:
    cluster = UsersCluster()
    cluster.settled()
    return cluster


def begin_the_log_behind_everything(cluster: MemoryCluster) -> None:
    """A node that has less needs a copy: what it lacks stands in no log any more."""
    core = cluster.primary.core
    core.log_first = core.replica.tail.sequence + 1


def users(node: MemoryNode) -> dict[str, User]:
    return node.core.replica.contents.access.users


def digests(cluster: MemoryCluster) -> set[int]:
    return {node.core.replica.contents.access.digest() for node in cluster.nodes.values()}


def test_a_user_is_added_at_any_node_and_is_on_all(cluster: UsersCluster) -> None:
    for number, node in enumerate([cluster.primary, *backups_of(cluster)]):
        assert cluster.carried_out(node, f"add {number}", add_user_step(f"u{number}", "hash", ("t",))) is None
    all_agree(cluster)
    assert len(digests(cluster)) == 1 and digests(cluster) != {0}
    for node in cluster.nodes.values():
        assert list(users(node)) == ["u0", "u1", "u2"] and users(node)["u1"].tags == ("t",)
    numbers = [each.number for each in users(cluster.primary).values()]
    assert numbers == sorted(set(numbers)) and numbers[0] > 0, "numbered by the one numbering"


def test_what_the_stream_decides_is_what_is_answered(cluster: UsersCluster) -> None:
    """Two operators add one user at once, at different nodes: one of them is told that it exists."""
    one, other = backups_of(cluster)
    cluster.ask(one, "one", add_user_step("u", "h1"))
    cluster.ask(other, "other", add_user_step("u", "h2"))
    cluster.run(lambda: {"one", "other"} <= cluster.said.keys())
    assert sorted(cluster.said.values(), key=str) == [None, Refusal.EXISTS]
    first = "h1" if cluster.said["one"] is None else "h2"
    assert users(cluster.primary)["u"].hash == first
    assert cluster.carried_out(one, "tags", set_tags_step("u", ("a",))) is None
    assert users(cluster.primary)["u"] == User("u", first, ("a",), users(cluster.primary)["u"].number)
    assert cluster.carried_out(other, "delete", delete_user_step("u")) is None
    for label, step in (
        ("delete again", delete_user_step("u")),
        ("password", set_password_step("u", "h3")),
        ("tags again", set_tags_step("u", ())),
    ):
        assert cluster.carried_out(one, label, step) == Refusal.GONE
    all_agree(cluster)


def test_rehashed_over_a_new_password(cluster: UsersCluster) -> None:
    """A login verifies an old hash and makes it anew; meanwhile an operator changes the password."""
    primary, backup = cluster.primary, backups_of(cluster)[0]
    assert cluster.carried_out(primary, "add", add_user_step("u", "old hash")) is None
    cluster.ask(primary, "passwd", set_password_step("u", "of the new password"))
    cluster.ask(backup, "rehash", set_password_step("u", "anew", "old hash"))
    cluster.run(lambda: {"passwd", "rehash"} <= cluster.said.keys())
    assert cluster.said["passwd"] is None and cluster.said["rehash"] == Refusal.CHANGED
    assert users(primary)["u"].hash == "of the new password"
    assert cluster.carried_out(primary, "anew", set_password_step("u", "anew", "of the new password")) is None
    assert users(primary)["u"].hash == "anew"


def test_users_of_a_file_are_taken_over_once(cluster: UsersCluster) -> None:
    primary = cluster.primary
    assert cluster.carried_out(primary, "found", found_users_step([User("a", "h"), User("b", "h")], "file")) is None
    assert set(users(primary)) == {"a", "b"} and primary.core.replica.contents.access.source == "file"
    again = found_users_step([User("c", "h")], "other")
    assert cluster.carried_out(primary, "again", again) == Refusal.EXISTS
    assert set(users(primary)) == {"a", "b"} and primary.core.replica.contents.access.source == "file"
    assert {user.number for user in users(primary).values()} == {
        primary.core.replica.contents.configuration.last_id - 1
    }


def test_where_a_user_was_added_before_no_file_is_taken_over(cluster: UsersCluster) -> None:
    primary = cluster.primary
    assert cluster.carried_out(primary, "add", add_user_step("u", "h")) is None
    assert cluster.carried_out(primary, "delete", delete_user_step("u")) is None
    assert cluster.carried_out(primary, "found", found_users_step([User("a", "h")], "file")) == Refusal.EXISTS
    assert not users(primary)


@pytest.mark.parametrize("wipe", [False, True], ids=["its log", "a copy"])
def test_users_survive(cluster: UsersCluster, wipe: bool) -> None:
    """A node comes back by its checkpoint and log, or with an empty store by a copy."""
    for number in range(40):
        assert cluster.carried_out(cluster.primary, f"add {number}", add_user_step(f"u{number}", "h")) is None
    all_agree(cluster)
    (before,) = digests(cluster)
    victim = backups_of(cluster)[0].name
    cluster.kill(victim)
    assert cluster.carried_out(cluster.primary, "delete", delete_user_step("u7")) is None
    if wipe:
        begin_the_log_behind_everything(cluster)
    back = cluster.start(victim, wipe=wipe)
    all_agree(cluster)
    assert set(users(back)) == {f"u{number}" for number in range(40)} - {"u7"}
    (after,) = digests(cluster)
    assert after != before


def test_a_copy_in_slices_of_one_user(cluster: UsersCluster) -> None:
    small = UsersCluster(portion_bytes=1)
    small.settled()
    for number in range(3):
        assert small.carried_out(small.primary, f"add {number}", add_user_step(f"u{number}", "hash")) is None
        limit = Rule(USER_LIMIT, "", f"u{number}", MAX_CHANNELS, Limit(number))
        assert small.carried_out(small.primary, f"limit {number}", set_rule_step(limit)) is None
    victim = backups_of(small)[0].name
    small.kill(victim)
    begin_the_log_behind_everything(small)
    back = small.start(victim, wipe=True)
    all_agree(small)
    assert list(users(back)) == ["u0", "u1", "u2"] and len(digests(small)) == 1
    assert [rule.name for rule in back.core.replica.contents.access.rules.values()] == ["u0", "u1", "u2"]


def test_primary_lost_while_an_operator_waits() -> None:
    """It is not said that it was done, nor that it was not."""
    cluster = UsersCluster()
    cluster.settled()
    asking = backups_of(cluster)[0]
    primary = cluster.primary
    primary.disk_held = True
    cluster.ask(asking, "add", add_user_step("u", "h"))
    cluster.pause(0.05)
    assert "add" not in cluster.said
    cluster.kill(primary.name)
    cluster.run(lambda: "add" in cluster.said)
    assert cluster.said["add"] == OUTCOME_UNKNOWN and not asking.core.relay.waiting
    cluster.start(primary.name)
    all_agree(cluster)
    assert len(digests(cluster)) == 1


def test_backup_that_becomes_primary_while_its_operator_waits() -> None:
    """The record names the former primary until then, so no attachment ends that would answer the operator."""
    cluster = UsersCluster()
    cluster.settled()
    primary = cluster.primary
    primary.disk_held = True
    for node in backups_of(cluster):
        cluster.ask(node, node.name, add_user_step(node.name, "h"))
    cluster.cas_held.add(primary.name)
    cluster.run(lambda: any(node.core.leading is not None for node in cluster.nodes.values() if node is not primary))
    cluster.run(lambda: len(cluster.said) == 2)
    assert set(cluster.said.values()) == {OUTCOME_UNKNOWN}


def test_a_primary_that_steps_down_answers_its_own_operator() -> None:
    cluster = UsersCluster()
    cluster.settled()
    primary = cluster.primary
    primary.disk_held = True
    cluster.ask(primary, "add", add_user_step("u", "h"))
    primary.report(lambda: primary.core._step_down("a test"))
    assert cluster.said["add"] == OUTCOME_UNKNOWN
    cluster.ask(primary, "then", add_user_step("u", "h"))
    assert cluster.said["then"] == NO_PRIMARY


def older(cluster: UsersCluster, node: MemoryNode) -> None:
    """From here on this node is of a release without users."""
    primary = cluster.primary
    primary.report(lambda: primary.core.on_link(node.name, True, frozenset()))
    node.report(lambda: node.core.on_link(primary.name, True, frozenset()))


def test_no_step_is_written_before_every_node_knows_users(cluster: UsersCluster) -> None:
    backup, other = backups_of(cluster)
    older(cluster, backup)
    for label, node in (("at the primary", cluster.primary), ("at a backup", other)):
        said = cluster.carried_out(node, label, add_user_step("u", "h"))
        assert said == f"user.add needs users on every node: upgrade {backup.name} first"
    said = cluster.carried_out(backup, "at the older", add_user_step("u", "h"))
    assert said == f"user.add needs users on every node: upgrade {cluster.primary.name} first"
    assert digests(cluster) == {0}


def test_a_node_that_knows_no_users_is_not_attached_where_there_are_any(cluster: UsersCluster) -> None:
    """It could not read what it would be sent."""
    assert cluster.carried_out(cluster.primary, "add", add_user_step("u", "h")) is None
    victim = backups_of(cluster)[0].name
    cluster.kill(victim)
    cluster.run(lambda: all(member.node != victim for member in record(cluster).ready))
    cluster.features = frozenset()
    back = cluster.start(victim, wipe=True)
    cluster.features = UsersCluster.features
    cluster.pause(1.0)
    assert back.state == "joining" and digests(cluster) - {0} and not users(back)
    assert any("of which" in line and "upgrade this node" in line for line in back.lines)
    older_primary = cluster.primary
    older_primary.report(lambda: older_primary.core.on_link(victim, True, UsersCluster.features))
    all_agree(cluster)
    assert set(users(back)) == {"u"}


def record(cluster: MemoryCluster) -> Any:
    assert cluster.coordination.record is not None
    return cluster.coordination.record


def test_only_what_is_about_users_may_be_asked_of_another_node(cluster: UsersCluster) -> None:
    primary, backup = cluster.primary, backups_of(cluster)[0]
    sent: list[Any] = []
    real: Callable[..., None] = primary.send
    primary.send = lambda peer, message: (sent.append(message), real(peer, message))[1]  # type: ignore[method-assign]
    before = primary.core.replica.contents.configuration.last_id
    ask = StepAsk(primary.core.generation, 9, "queue.delete", "q", b"")
    primary.report(lambda: primary.core.on_message(backup.name, ask))
    told = [each for each in sent if isinstance(each, StepTold)]
    assert [each.error for each in told] == ["'queue.delete' cannot be asked for at another node"]
    assert primary.core.replica.contents.configuration.last_id == before


@pytest.mark.parametrize(
    "step",
    [
        add_user_step("", "h"),
        add_user_step("u" * 256, "h"),
        add_user_step("u", ""),
        add_user_step("u", "h" * 1025),
        add_user_step("u", "h", ("t", "t")),
        set_tags_step("u", tuple(map(str, range(65)))),
        found_users_step([User("a", "h"), User("a", "h")], ""),
        Configure(0, "user.delete", "u", b"\x90"),
        Configure(0, "user.add", "u", b"\x92\x01\x90"),
    ],
    ids=lambda step: f"{step.operation} {len(step.name)} {len(step.arguments)}",
)
def test_what_cannot_be_is_refused_before_it_has_a_number(cluster: UsersCluster, step: Configure) -> None:
    before = cluster.primary.core.replica.tail
    said = cluster.carried_out(cluster.primary, "step", step)
    assert said is not None and "user." in said
    assert cluster.primary.core.replica.tail == before


def test_a_cluster_without_users_has_none() -> None:
    cluster = declared("q")
    assert digests(cluster) == {0}


def test_a_copy_with_other_users_than_were_sent_begins_anew() -> None:
    replicator = QueueReplicator("a", 1, Replica(MemoryBase(), Meta(), {}), lambda effect: None)
    rest = Access(events=1, last=1)
    whole = Access({"u": User("u", "h")}, "", 1, 1)
    end = SnapshotEnd(1, 1, Position(1, 1), [Position(1, 1)], 0, (0, 0, 0), [], OutcomesMeta())
    replicator.take(SnapshotAccess(1, 1, whole.digest(), [User("u", "other")], rest))
    replicator.take(end)
    with pytest.raises(SnapshotMismatch, match="1 users came, which are not those that were sent"):
        replicator.work()
    proper = QueueReplicator("a", 1, Replica(MemoryBase(), Meta(), {}), lambda effect: None)
    proper.take(SnapshotAccess(1, 1, whole.digest(), [User("u", "h")], Access(events=1, last=1)))
    proper.take(end)
    proper.work()
    assert proper.ended is end


@pytest.mark.parametrize("wipe", [False, True], ids=["its log", "a copy"])
def test_whose_change_it_was_is_on_all_nodes_and_in_a_copy(wipe: bool) -> None:
    """Asked for at a backup, carried by the stream, kept by checkpoint and log, or by a copy with a change a slice."""
    cluster = UsersCluster(portion_bytes=1)
    cluster.settled()
    backup = backups_of(cluster)[0]
    for number, (user, step) in enumerate(
        [("ada", add_user_step("u", "h", ("t",))), ("bob", set_tags_step("u", ())), ("ada", delete_user_step("no"))]
    ):
        origin = Origin(user, "10.0.0.1", "node", 7)
        refused = cluster.carried_out(backup, f"{number}", audited_step(step, origin, kept=2))
        assert refused == (Refusal.GONE if number == 2 else None)
    victim = backups_of(cluster)[1].name
    cluster.kill(victim)
    if wipe:
        begin_the_log_behind_everything(cluster)
    cluster.start(victim, wipe=wipe)
    all_agree(cluster)
    assert len(digests(cluster)) == 1
    for node in cluster.nodes.values():
        bob, ada = node.core.replica.contents.access.changes
        assert (bob.user, bob.operation, bob.before, bob.after) == ("bob", "user.tags", '{"tags":["t"]}', '{"tags":[]}')
        assert (ada.user, ada.refusal, ada.address, ada.created_ms) == ("ada", "gone", "10.0.0.1", 7)


@pytest.mark.parametrize(
    "step",
    [
        audited_step(found_users_step([], ""), Origin("a", "b", "c", 1), 1),
        audited_step(audited_step(delete_user_step("u"), Origin("a", "b", "c", 1), 1), Origin("a", "b", "c", 1), 1),
        audited_step(Configure(0, "queue.declare", "q", b""), Origin("a", "b", "c", 1), 1),
        audited_step(delete_user_step("u"), Origin("a", "b", "c", -1), 1),
        audited_step(delete_user_step("u"), Origin("a", "b", "c", 1), 0),
        audited_step(delete_user_step("u"), Origin("a", "b", "c", 1), MOST_CHANGES + 1),
        Configure(0, AUDITED, "u", b"\x90"),
    ],
)
def test_what_no_operator_asks_for_is_refused_before_it_is_durable(step: Configure, cluster: UsersCluster) -> None:
    before = cluster.primary.core.replica.contents.configuration.last_id
    refused = cluster.carried_out(cluster.primary, "wrong", step)
    assert refused is not None and "unknown arguments" in refused
    assert cluster.primary.core.replica.contents.configuration.last_id == before


def test_what_is_kept_of_changes_is_part_of_the_digest() -> None:
    origin = Origin("ada", "10.0.0.1", "node", 7)
    found = []
    for user in ("ada", "bob"):
        access = Access()
        step = audited_step(add_user_step("u", "h"), origin._replace(user=user), kept=2)
        access.apply(Configure(1, step.operation, step.name, step.arguments))
        found.append(access.digest())
    assert found[0] != found[1]
