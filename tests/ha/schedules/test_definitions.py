"""Definitions as one step of the one stream: asked for at any node, gated, in checkpoints, copies and logs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.ha.schedules.test_users import UsersCluster, begin_the_log_behind_everything
from tests.support.memory_cluster import MemoryNode
from tests.support.steps import all_agree, answered, backups_of, publish
from txobserver.access import found_users_step, put_user_step
from txobserver.audited import AUDITED, Origin, audited_step
from txobserver.batch import LOAD, NUMBER, load_step
from txobserver.configuration import BindingSpec, ExchangeSpec, binding_step, exchange_step, queue_step
from txobserver.events import Configure
from txobserver.ids import LAST_CONFIG_ID
from txobserver.refusal import Refusal

PARTS = [
    put_user_step("u", "hash of u", ()),
    exchange_step(ExchangeSpec("e", "direct", False, False, {})),
    queue_step("q", False, {}),
    queue_step("r", False, {}),
    binding_step(BindingSpec("e", "r", True, "k", {})),
]
IMPORT = audited_step(load_step(PARTS), Origin("ann", "10.0.0.1", "n1", 7), 10)


@pytest.fixture
def cluster() -> UsersCluster:
    cluster = UsersCluster()
    cluster.settled()
    assert cluster.carried_out(cluster.primary, "first", found_users_step([], "")) is None
    return cluster


def numbers(node: MemoryNode) -> dict[str, int]:
    return {spec.name: spec.number for spec in node.core.replica.contents.configuration.queues.values()}


def test_a_backup_passes_it_on_and_messages_reach_its_queues(cluster: UsersCluster) -> None:
    before = cluster.primary.core.replica.contents.configuration.last_id
    assert cluster.carried_out(backups_of(cluster)[0], "import", IMPORT) is None
    expected = {"q": before + 1, "r": before + 2}
    all_agree(cluster)
    assert [numbers(node) for node in cluster.nodes.values()] == [expected] * 3
    publish(cluster.primary, "r", "m")
    answered(cluster, cluster.primary, "publish m")
    all_agree(cluster)


def test_its_numbers_stand_right_before_it_whatever_else_is_asked_in_that_turn(cluster: UsersCluster) -> None:
    primary = cluster.primary
    primary.report(lambda: primary.host.declare("s"))
    cluster.ask(primary, "import", IMPORT)
    primary.report(lambda: primary.host.declare("t"))
    answered(cluster, primary, "declare t")
    assert cluster.said["import"] is None
    found = numbers(primary)
    assert (found["q"], found["r"], found["t"]) == (found["s"] + 1, found["s"] + 2, found["s"] + 4)
    all_agree(cluster)


def test_one_that_is_refused_declares_nothing_and_the_next_ones_have_other_numbers(cluster: UsersCluster) -> None:
    assert cluster.carried_out(cluster.primary, "other", load_step([queue_step("r", True, {})])) is None
    taken = numbers(cluster.primary)["r"]
    assert cluster.carried_out(backups_of(cluster)[0], "import", IMPORT) == Refusal.EXISTS
    all_agree(cluster)
    assert [numbers(node) for node in cluster.nodes.values()] == [{"r": taken}] * 3
    assert "u" not in cluster.primary.core.replica.contents.access.users
    assert cluster.carried_out(cluster.primary, "again", load_step([queue_step("q", False, {})])) is None
    assert numbers(cluster.primary)["q"] == taken + 5, "two numbers and a step are gone, and a number and a step came"


@pytest.mark.parametrize("wipe", [False, True])
def test_a_node_that_was_down_learns_it_from_the_log_and_from_a_copy(wipe: bool, cluster: UsersCluster) -> None:
    victim = backups_of(cluster)[1].name
    cluster.kill(victim)
    assert cluster.carried_out(cluster.primary, "import", IMPORT) is None
    if wipe:
        begin_the_log_behind_everything(cluster)
    cluster.start(victim, wipe=wipe)
    all_agree(cluster)
    assert numbers(cluster.nodes[victim]) == numbers(cluster.primary)


def test_a_checkpoint_between_its_numbers_and_the_step_loses_no_number(cluster: UsersCluster) -> None:
    """The numbers are steps of their own, so a node that begins there counts as the others do."""
    primary = cluster.primary
    core = primary.core
    primary.report(lambda: core.role.primary.ledger.configure(Configure(0, NUMBER, "*", b""), lambda error: None))
    cluster.pause(0.5)
    for name in [node.name for node in backups_of(cluster)]:
        cluster.kill(name)
        cluster.start(name)
    all_agree(cluster)
    assert cluster.carried_out(cluster.primary, "import", IMPORT) is None
    all_agree(cluster)


def test_at_the_end_of_the_numbers_it_is_refused_as_a_whole(cluster: UsersCluster) -> None:
    """It needs three: two queues and itself."""
    primary = cluster.primary
    ledger: Any = primary.core.role.primary.ledger
    ledger._config_id = LAST_CONFIG_ID - 2
    said: list[str | None] = []
    primary.report(lambda: primary.core.configure(IMPORT, said.append))
    cluster.pause(0.5)
    assert said and "steps of configuration" in str(said[0])


def test_one_that_cannot_be_read_is_refused_before_it_is_durable(cluster: UsersCluster) -> None:
    said = cluster.carried_out(cluster.primary, "broken", Configure(0, LOAD, "*", b"\x91\x90"))
    assert "unknown arguments" in str(said)
    within = msgspec.structs.replace(IMPORT, operation=AUDITED, arguments=b"\x90")
    assert "unknown arguments" in str(cluster.carried_out(cluster.primary, "within", within))
