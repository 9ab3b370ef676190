"""Steps that an operator asks for at a backup, when a node begins anew or becomes primary at that moment."""

from __future__ import annotations

import msgspec

from ha.effects import Send
from ha.messages.steps import StepAsk
from ha.relay import OUTCOME_UNKNOWN
from tests.ha.schedules.test_users import UsersCluster, record
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
