"""A primary that hands over drains its clients first: nothing hangs, and the lease goes only behind their answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ha.membership.node_state import RECOVERING
from ha.membership.record import Record
from ha.messages.election import HANDOVER_FEATURE, MOST_DRAINED, ClientsClosed
from ha.node import LOOKING_SECONDS, HandedOver
from ha.primary.drain import Drain
from ha.primary.handover import take_out_who_stops
from ha.refusals import NOT_ACTIVE
from tests.support.invariants import unchecked
from tests.support.memory_cluster import TURN, MemoryCluster, MemoryNode
from tests.support.steps import all_agree, answered, backups_of, declared, publish, survivors_agree
from txobserver.access import ADD_USER
from txobserver.configuration import queue_step
from txobserver.events import Configure
from txobserver.ids import Member
from txobserver.ports.ledger import ClientsServed


def with_clients(
    clients: int, undecided: int, lease: float = 1.0
) -> tuple[MemoryCluster, MemoryNode, MemoryNode, MemoryNode]:
    cluster = declared("q", lease_ttl=lease, renew_every=lease / 5)
    primary, chosen, other = cluster.primary, *backups_of(cluster)
    primary.host.served = ClientsServed(clients, undecided)
    for node in cluster.nodes.values():
        node.core.features.update(dict.fromkeys(set(cluster.nodes) - {node.name}, frozenset({HANDOVER_FEATURE})))
    return cluster, primary, chosen, other


def hand_over(primary: MemoryNode, chosen: MemoryNode, how: str) -> None:
    if how == "promote":
        chosen.report(lambda: chosen.core.promote(False))
    else:
        primary.report(lambda: primary.core.resign("stopped"))


def taken_over(cluster: MemoryCluster, former: MemoryNode) -> bool:
    return any(node.state == "active" and node is not former for node in cluster.nodes.values())


BOTH = pytest.mark.parametrize("how", ["promote", "stop"])


@BOTH
def test_what_has_begun_is_answered_first(how: str) -> None:
    cluster, primary, chosen, _ = with_clients(3, 1)
    hand_over(primary, chosen, how)
    cluster.pause(0.2)
    assert primary.host.draining and not primary.host.closed
    publish(primary, "q", "begun before")
    answered(cluster, primary, "publish begun before")
    record = cluster.coordination.record
    assert record is not None and not record.released and primary.state == "active"
    primary.host.served = ClientsServed(3, 0)
    cluster.run(lambda: bool(primary.host.closed), 0.1)
    cluster.run(lambda: taken_over(cluster, primary))
    assert "begun before" in cluster.primary.host.bodies("q")


@BOTH
def test_the_bound_ends_it(how: str) -> None:
    """P12: a client's outcome that is never known holds the handover up for ``drain_seconds`` and no longer."""
    cluster, primary, chosen, _ = with_clients(3, 1)
    hand_over(primary, chosen, how)
    began = cluster.now
    cluster.pause(0.8 * cluster.settings.drain_seconds)
    assert not primary.host.closed
    cluster.run(lambda: bool(primary.host.closed), 1.0)
    assert cluster.now - began < 1.3 * cluster.settings.drain_seconds
    cluster.run(lambda: taken_over(cluster, primary))
    assert cluster.primary.core.handed_over is not None
    assert cluster.primary.core.handed_over.clients.undecided == 1


def test_a_stop_during_a_drain_begins_no_other_one() -> None:
    """Its bound stays, and the role goes to any node."""
    cluster, primary, chosen, _ = with_clients(3, 1)
    hand_over(primary, chosen, "promote")
    began = cluster.now
    cluster.pause(0.7 * cluster.settings.drain_seconds)
    hand_over(primary, chosen, "stop")
    cluster.run(lambda: bool(primary.host.closed))
    assert cluster.now - began < 1.3 * cluster.settings.drain_seconds
    record = cluster.coordination.record
    assert record is not None and record.preferred == ""
    cluster.run(lambda: taken_over(cluster, primary))


def test_the_lease_is_renewed_meanwhile() -> None:
    cluster, primary, chosen, _ = with_clients(1, 1)
    version = cluster.coordination.record.version  # type: ignore[union-attr]
    hand_over(primary, chosen, "promote")
    cluster.pause(0.9 * cluster.settings.drain_seconds)
    record = cluster.coordination.record
    assert record is not None and record.version > version and not record.released


@pytest.mark.parametrize("gone", ["during the drain", "behind it"])
def test_a_successor_that_goes_leaves_the_role_to_any(gone: str) -> None:
    """No node waits for the lease to end, which here takes an hour."""
    cluster, primary, chosen, other = with_clients(1, 1, lease=3600.0)
    hand_over(primary, chosen, "promote")
    cluster.pause(0.1)
    if gone == "behind it":
        chosen.disk_held = True
        publish(primary, "q", "late")
        primary.host.served = ClientsServed(1, 0)
        cluster.run(lambda: bool(primary.host.closed))
    cluster.kill(chosen.name)
    primary.host.served = ClientsServed(1, 0)
    cluster.run(lambda: other.state == "active" or (primary.state == "active" and bool(primary.host.closed)))
    survivors_agree(cluster)


def test_a_host_that_cannot_drain_is_closed_at_once() -> None:
    cluster, primary, chosen, _ = with_clients(1, 1)
    primary.host.drains, primary.host.served = False, None
    hand_over(primary, chosen, "promote")
    cluster.run(lambda: bool(primary.host.closed), 0.1)
    cluster.run(lambda: chosen.state == "active")
    assert chosen.core.handed_over is None, "how its clients stood is not known"
    all_agree(cluster)


def test_of_a_primary_that_was_frozen_in_its_drain_no_more_is_told_than_a_message_holds() -> None:
    """Others would close the link with it for a number that cannot be."""
    cluster, primary, chosen, _ = with_clients(1, 1)
    hand_over(primary, chosen, "promote")
    cluster.run(lambda: primary.host.draining)
    leading = primary.core.leading
    assert leading is not None and leading.handover._drain is not None
    leading.handover._drain.begun_at -= 2 * MOST_DRAINED
    cluster.run(lambda: chosen.state == "active")
    assert chosen.core.handed_over is not None and chosen.core.handed_over.clients.drained == MOST_DRAINED


def test_no_drain_where_it_is_given_no_time() -> None:
    cluster = declared("q", drain_seconds=0.0)
    primary, (chosen, *_) = cluster.primary, backups_of(cluster)
    primary.host.served = ClientsServed(2, 2)
    hand_over(primary, chosen, "promote")
    cluster.run(lambda: bool(primary.host.closed), 0.1)
    assert not primary.host.draining


def test_a_drain_asks_for_another_turn_where_the_commit_point_has_moved() -> None:
    """Answers are given in the turn behind that, and no other is due soon."""
    host: Any = SimpleNamespace(on_draining=lambda: True, served=ClientsServed(1, 1))
    turns: list[str] = []
    drain = Drain(host, 5.0, lambda: turns.append("wanted"), 100.0)
    for commit, wanted in ((7, 1), (7, 1), (8, 2)):
        assert not drain.over(commit, False, 101.0) and len(turns) == wanted
    assert drain.over(8, False, 105.0), "its time is up"


def test_what_operators_have_asked_for_is_answered_first() -> None:
    """No client waits for an answer here."""
    cluster, primary, chosen, _ = with_clients(1, 0)
    primary.disk_held = True
    said: list[str | None] = []
    primary.report(lambda: primary.core.configure(queue_step("new", True, {}), said.append))
    hand_over(primary, chosen, "promote")
    cluster.run(lambda: primary.host.draining)
    cluster.pause(0.1)
    assert not primary.host.closed and not said
    primary.disk_held = False
    cluster.run(lambda: bool(primary.host.closed))
    assert said == [None]


def test_a_stop_is_not_held_up_by_a_successor_that_does_not_get_all() -> None:
    """Its clients are closed already: any node may follow, and the lease, which here takes an hour, is given up."""
    cluster, primary, chosen, _ = with_clients(1, 0, lease=3600.0)
    chosen.disk_held = True
    publish(primary, "q", "late")
    hand_over(primary, chosen, "promote")
    cluster.run(lambda: bool(primary.host.closed))
    hand_over(primary, chosen, "stop")
    cluster.run(lambda: primary.core.leading is None)
    chosen.disk_held = False
    cluster.run(lambda: taken_over(cluster, primary))
    survivors_agree(cluster)


def test_only_a_primary_that_stops_is_not_asked_who_is_to_stand() -> None:
    """In the generation that it has ended, and in no later one: it may be back."""
    _, primary, chosen, other = with_clients(1, 0)
    core = chosen.core
    generation = core.generation
    for stops, of, asked in ((True, generation, False), (False, generation, True), (True, generation - 1, True)):
        core.handed_over = HandedOver(primary.name, ClientsClosed(of, 1, 0, 0.0, stops), core.now)
        assert core.asked == ({primary.name, other.name} if asked else {other.name})


def test_who_loses_its_primary_looks_for_the_end_of_the_lease() -> None:
    """From when it was heard last; no other peer has a lease."""
    cluster, primary, chosen, other = with_clients(1, 0)
    core = chosen.core
    for peer in (other, primary):
        assert core.look_until < cluster.now
        chosen.report(lambda peer=peer: core.on_link(peer.name, False))  # type: ignore[misc]
    assert core.look_until == core.gone_since[primary.name] + LOOKING_SECONDS


def test_when_a_node_served_behind_a_handover_is_not_told_anew() -> None:
    cluster, primary, chosen, _ = with_clients(1, 0)
    hand_over(primary, chosen, "promote")
    cluster.run(lambda: chosen.state == "active")
    core, heard = chosen.core, chosen.core.handed_over
    assert heard is not None and heard.active_at is not None
    cluster.pause(0.1)
    with unchecked():
        core.state = RECOVERING
        core.move("in step")
    assert core.handed_over == heard, "nobody has handed over since"


@pytest.mark.parametrize(("generation", "out"), [(3, True), (2, False), (4, False)])
def test_who_has_stopped_is_taken_out_by_the_next_primary_alone(generation: int, out: bool) -> None:
    """A later one finds it ready again."""
    a, b = Member("a", "a1"), Member("b", "b1")
    removed: list[Member] = []
    keeper: Any = SimpleNamespace(
        record=Record("c", 9, 4, b, (a, b)), remove=lambda member, now: removed.append(member)
    )
    take_out_who_stops(keeper, "a", ClientsClosed(generation, 1, 0, 0.0, True), 100.0)
    assert removed == ([a] if out else [])


def test_operators_ask_for_nothing_new_meanwhile() -> None:
    cluster, primary, chosen, _ = with_clients(1, 1)
    hand_over(primary, chosen, "promote")
    cluster.pause(0.1)
    said: list[str | None] = []
    primary.report(lambda: primary.core.configure(Configure(0, ADD_USER, "new", {}), said.append))
    assert said == [NOT_ACTIVE]


def test_a_stop_during_a_handover_is_bounded_by_the_same_drain() -> None:
    cluster, primary, chosen, _ = with_clients(1, 1)
    hand_over(primary, chosen, "promote")
    cluster.pause(0.1)
    hand_over(primary, chosen, "stop")
    assert not primary.host.closed
    cluster.run(lambda: bool(primary.host.closed), 1.5 * cluster.settings.drain_seconds)
    cluster.run(lambda: taken_over(cluster, primary))


@BOTH
def test_the_next_primary_hears_how_clients_were_closed(how: str) -> None:
    cluster, primary, chosen, _ = with_clients(3, 0)
    said: list[object] = []
    cluster.lose = lambda source, target, message: said.append(message) or False  # type: ignore[func-returns-value]
    hand_over(primary, chosen, how)
    cluster.run(lambda: taken_over(cluster, primary))
    told = [each for each in said if isinstance(each, ClientsClosed)]
    assert told and {(each.clients, each.undecided) for each in told} == {(3, 0)}
    stops = cluster.primary.core.handed_over.clients.stops  # type: ignore[union-attr]
    assert stops == (how == "stop")
    heard = cluster.primary.core.handed_over
    assert heard is not None and heard.former == primary.name and heard.active_at is not None


@BOTH
def test_who_hears_that_clients_are_closed_looks_for_the_end_of_the_lease(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every tick for a while, the next primary until it is that: no client waits for its next look at the record."""
    cluster, primary, chosen, _ = with_clients(3, 0)
    reads: list[str] = []
    monkeypatch.setattr(MemoryNode, "read_record", lambda node: reads.append(node.name))
    hand_over(primary, chosen, how)
    cluster.pause(LOOKING_SECONDS)
    (other,) = (each.name for each in backups_of(cluster) if each is not primary)
    assert cluster.primary.name in reads and reads.count(other) >= LOOKING_SECONDS / TURN / 2
    assert primary.name not in reads
    cluster.pause(0.2)
    read = len(reads)
    cluster.pause(1.0)
    assert len(reads) == read


def test_a_node_that_does_not_know_the_word_is_not_told_it() -> None:
    cluster, primary, chosen, _ = with_clients(3, 0)
    said: list[object] = []
    cluster.lose = lambda source, target, message: said.append(message) or False  # type: ignore[func-returns-value]
    for node, features in primary.core.features.items():
        primary.core.features[node] = features - {HANDOVER_FEATURE}
    hand_over(primary, chosen, "promote")
    cluster.run(lambda: chosen.state == "active")
    assert not [each for each in said if isinstance(each, ClientsClosed)]


def test_a_primary_that_has_stopped_is_not_waited_for() -> None:
    """It has told so; else the next one waits until the connection has been down for ``link_down_grace``."""
    cluster = declared("q", link_down_grace=60.0, backup_timeout=60.0)
    first = cluster.primary
    for node in cluster.nodes.values():
        node.core.features.update(dict.fromkeys(set(cluster.nodes) - {node.name}, frozenset({HANDOVER_FEATURE})))
    first.report(lambda: first.core.resign("stopped"))
    cluster.run(lambda: first.core.leading is None)
    cluster.kill(first.name)
    cluster.run(lambda: taken_over(cluster, first), 5.0)
    record = cluster.coordination.record
    assert record is not None and first.name not in [member.node for member in record.ready]
