"""Steps that an operator asks for at a backup, when a node begins anew or becomes primary at that moment."""

from __future__ import annotations

import msgspec

from ha.effects import Send
from ha.messages.steps import StepAsk
from ha.messages.stream import Commit, Entries
from ha.refusals import OUTCOME_UNKNOWN
from tests.ha.schedules.test_record import promote
from tests.ha.schedules.test_users import UsersCluster, record, users
from tests.support.steps import backups_of
from txobserver.access import add_user_step, delete_user_step
from txobserver.refusal import Refusal


def test_answered_after_a_restart() -> None:
    """A seed found it: the answer to what the former process had asked was told to whom the next one asks for."""
    cluster = UsersCluster()
    cluster.settled()
    primary, node = cluster.primary, backups_of(cluster)[0]
    primary.disk_held = True
    cluster.ask(node, "first", add_user_step("u", "h"))
    cluster.run(lambda: primary.core.replica.tail.sequence > primary.core.replica.durable)
    cluster.kill(node.name)
    back = cluster.start(node.name)
    cluster.run(lambda: back.core.role.desk_at == primary.name)
    cluster.ask(back, "second", delete_user_step("absent"))
    cluster.run(lambda: bool(back.core.relay.waiting))
    primary.disk_held = False
    cluster.run(lambda: "second" in cluster.said)
    assert cluster.said["second"] == Refusal.GONE


def test_told_before_it_is_applied_here() -> None:
    """The primary's answer is there before the commit point: who looks at this node sees what was before."""
    cluster = UsersCluster()
    cluster.settled()
    node = backups_of(cluster)[0]
    cluster.lose = lambda source, target, message: target == node.name and isinstance(message, Commit)
    cluster.ask(node, "it", add_user_step("u", "h"))
    relay = node.core.relay
    cluster.run(lambda: bool(relay._told))
    cluster.pause(0.1)
    assert cluster.said == {} and not users(node)
    cluster.lose = lambda source, target, message: False
    cluster.run(lambda: "it" in cluster.said)
    assert cluster.said["it"] is None and list(users(node)) == ["u"]
    assert relay._told == {} and relay.waiting == {}, "nothing of it is kept"


def test_what_the_primary_has_answered_is_told_behind_the_end_of_the_attachment() -> None:
    """It is known, and is told when it is applied here, under the next primary."""
    cluster = UsersCluster()
    cluster.settled()
    node = backups_of(cluster)[0]
    cluster.lose = lambda source, target, message: target == node.name and isinstance(message, Commit)
    cluster.ask(node, "it", add_user_step("u", "h"))
    cluster.run(lambda: bool(node.core.relay._told))
    cluster.ask(node, "other", delete_user_step("absent"))
    cluster.kill(cluster.primary.name)
    cluster.lose = lambda source, target, message: False
    cluster.run(lambda: len(cluster.said) == 2, 30.0)
    assert cluster.said == {"it": None, "other": OUTCOME_UNKNOWN} and list(users(node)) == ["u"]


def test_given_up_after_it_was_told() -> None:
    """An enemy found it: the operator accepts the loss of the stream in which the step stands, and the next one passes
    its place with other steps."""
    cluster = UsersCluster(checkpoint_every=0.5)
    cluster.settled()
    node = backups_of(cluster)[0]
    cluster.lose = lambda source, target, message: target == node.name and isinstance(message, Entries)
    cluster.ask(cluster.primary, "other", add_user_step("x", "h"))
    cluster.run(lambda: len(record(cluster).ready) == 2, 60)
    cluster.run(lambda: bool(node.core.role.desk_at))
    cluster.ask(node, "it", add_user_step("u", "h"))
    cluster.run(lambda: bool(node.core.relay._told))
    for name in [each for each in cluster.nodes if each != node.name]:
        cluster.kill(name)
    cluster.lose = lambda source, target, message: False
    cluster.run(lambda: promote(node) is None, 60)
    cluster.run(lambda: node.state == "active", 60)
    for number in range(5):
        assert cluster.carried_out(node, f"later {number}", add_user_step(f"v{number}", "h")) is None
    assert cluster.said["it"] == OUTCOME_UNKNOWN and "u" not in users(node)


def test_a_store_fails_before_what_was_answered_is_applied() -> None:
    """The node ends: it tells what it knows."""
    cluster = UsersCluster()
    cluster.settled()
    node = backups_of(cluster)[0]
    cluster.lose = lambda source, target, message: target == node.name and isinstance(message, Commit)
    cluster.ask(node, "it", add_user_step("u", "h"))
    cluster.run(lambda: bool(node.core.relay._told))
    node.report(lambda: node.core.on_store_error("disk full"))
    assert cluster.said == {"it": None}


def test_asked_in_the_turn_of_a_promotion() -> None:
    """A seed found it: what the node was about to ask of the former primary left it when it was primary itself."""
    cluster = UsersCluster()
    cluster.settled()
    node = backups_of(cluster)[0]
    core, now = node.core, record(cluster)
    said: list[str | None] = []
    core.configure(add_user_step("u", "h"), said.append)
    assert any(isinstance(each, Send) and isinstance(each.message, StepAsk) for each in core._effects)
    core._promoted(msgspec.structs.replace(now, generation=now.generation + 1, primary=core.member), core.now)
    sent = [each.message for each in core._effects if isinstance(each, Send)]
    assert said == [OUTCOME_UNKNOWN] and not any(isinstance(message, StepAsk) for message in sent)
