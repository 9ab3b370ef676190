"""Each kind of invariant of a node fails on a state that is broken on purpose, and names the promise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from ha.effects import (
    Acknowledge,
    CompareAndSet,
)
from ha.invariants import check_deep
from tests.support.broken_states import (
    additions_of,
    backup_of,
    broken,
    busy,
    copying,
    decisions_of,
    first_session,
    in_doubt,
    keeper_of,
    open_tx,
    point_of,
    prepared_tx,
    put,
    put_all,
    table_of,
    tally_of,
    writer_of,
)
from tests.support.invariants import unchecked
from tests.support.memory_host import text
from tests.support.steps import backups_of, declared
from txobserver.events import TxDecision
from txobserver.ids import LAST_GENERATION, Member, Position, generated_id
from txobserver.invariants import CHECKS, DEEP_EVERY, DeepChecks, InvariantBroken
from txobserver.xid import Xid

pytestmark = pytest.mark.plain

Y = Xid(1, b"another", b"")


Break = Callable[[Any], Any]


def change_record(core: Any, **fields: Any) -> None:
    keeper_of(core).record = replace(keeper_of(core).record, **fields)


def put_durable(core: Any) -> None:
    core.replica.durable = core.replica.tail.sequence


PRIMARY: dict[str, tuple[str, Break]] = {
    "state of another role": ("P10", lambda core: put(core, "state", "ready")),
    "a generation beyond the last": ("P10", lambda core: put(core, "generation", LAST_GENERATION + 1)),
    "linked to itself": ("P11", lambda core: core.linked.add(core.member.node)),
    "a log that begins behind its end": ("P7", lambda core: put(core, "log_first", 1 << 40)),
    "applied beyond the disk": ("P11", lambda core: put(core.replica, "durable", core.replica.applied.sequence - 1)),
    "on the disk beyond the stream": ("P11", lambda core: put(core.replica, "durable", 1 << 40)),
    "no generation": ("P7", lambda core: core.replica.history.clear()),
    "generations out of order": ("P10", lambda core: core.replica.history.insert(0, Position(9, 1))),
    "an event that waits was applied": ("P7", lambda core: core.replica._unapplied.appendleft((1, 1, None))),
    "a decision of no transaction": (
        "P1",
        lambda core: core.replica._unapplied.append((core.replica._unapplied.pop()[0], 1, TxDecision(77, True))),
    ),
    "a store that is never made whole": ("P12", lambda core: put(core.replica, "_whole", False)),
    "the commit point beyond the disk": ("P11", lambda core: put(point_of(core), "sequence", 1 << 40)),
    "the commit point falls": ("P11", lambda core: put(point_of(core), "sequence", point_of(core).sequence - 1)),
    "credit for less than no message": ("P3", lambda core: put(additions_of(core), "_limits", {1: -1})),
    "credit for a queue that was deleted": ("P3", lambda core: put(additions_of(core), "_limits", {77: 1})),
    "an answer that was due": ("P12", lambda core: point_of(core)._waiting.appendleft((1, print))),
    "an answer for what never comes": ("P12", lambda core: point_of(core)._waiting.append((1 << 40, print))),
    "frames behind the stream": ("P7", lambda core: put(writer_of(core), "_framed", 1 << 40)),
    "more ids than there are": ("P3", lambda core: put(writer_of(core).ids, "given", 1 << 41)),
    "a backlog of less than nothing": ("P12", lambda core: put(writer_of(core).backlog, "_framed", -1)),
    "a backlog that is counted otherwise": (
        "P12",
        lambda core: put(writer_of(core).backlog, "_framed", writer_of(core).backlog._framed + 1),
    ),
    "frames kept that were not made": ("P7", lambda core: core.leading.fanout.recent._frames.pop()),
    "kept frames counted otherwise": ("P12", lambda core: put(core.leading.fanout.recent, "_bytes", 1)),
    "served before in step": ("P2", lambda core: put(core.leading.primary, "_opened_to", core.replica.tail.sequence)),
    "open bytes below zero": ("P12", lambda core: put(decisions_of(core).factory, "open_bytes", -1)),
    "prepared below min_ready": ("P11", lambda core: put(decisions_of(core), "below_min_ready", True)),
    "votes for nothing": ("P1", lambda core: decisions_of(core).transactions._preparing.update({77: print})),
    "votes for what is open": (
        "P6",
        lambda core: decisions_of(core).transactions._preparing.update({open_tx(core).tx: print}),
    ),
    "a branch that voted and is asked": (
        "P6",
        lambda core: (
            decisions_of(core).branches._voted.update({5: print}),
            decisions_of(core).branches._preparing.update({5: (in_doubt(core), print)}),
        ),
    ),
    "a global decision on no way": ("P6", lambda core: table_of(core).deciding.update({Y.globally: True})),
    "a reading without a caller": ("P12", lambda core: core.leading.primary.readings._open.update({9: None})),
    "a handover that serves": ("P10", lambda core: put(core.leading.handover, "_successor", "b")),
    "another's record": ("P10", lambda core: change_record(core, primary=None)),
    "no node is ready": ("P2", lambda core: change_record(core, ready=())),
    "a lease from later on": ("P10", lambda core: put(keeper_of(core), "_lease_until", 1e9)),
    "added and removed": (
        "P9",
        lambda core: (keeper_of(core)._adds.add(Member("z", "1")), keeper_of(core)._removes.add(Member("z", "1"))),
    ),
    "removed without counting": ("P11", lambda core: keeper_of(core)._removes.add(Member("z", "1"))),
    "an addition that does not count": (
        "P11",
        lambda core: (keeper_of(core).counted(), keeper_of(core)._unresolved.add(Member("z", "1"))),
    ),
    "a change of another version": (
        "P10",
        lambda core: put(keeper_of(core), "in_flight", CompareAndSet(1, replace(keeper_of(core).record, version=2))),
    ),
    "a primary that stands": ("P10", lambda core: put(core.candidate, "in_flight", CompareAndSet(1, None))),
    "a session that got more than was sent": ("P11", lambda core: put(first_session(core), "acknowledged", 1 << 40)),
    "a session that is told too much": ("P11", lambda core: put(first_session(core), "_told", 1 << 40)),
    "bytes under way that are counted otherwise": (
        "P12",
        lambda core: put(first_session(core), "_bytes", first_session(core)._bytes + 1),
    ),
    "frames under way out of order": (
        "P7",
        lambda core: first_session(core)._in_flight.appendleft((first_session(core).sent, 0)),
    ),
    "bytes of nothing under way": ("P12", lambda core: put(first_session(core), "_bytes", -1)),
    "a session of another generation": ("P10", lambda core: put(first_session(core), "generation", 99)),
    "a session of another member": ("P11", lambda core: put(first_session(core), "member", Member("z", "1"))),
    "a tracker without a queue": ("P9", lambda core: first_session(core).trackers._prepared.update({7: 7})),
    "a join beside a session": (
        "P9",
        lambda core: core.leading.backups.attachments.parked.update(dict.fromkeys(core.leading.backups.sessions)),
    ),
    "a copy of no joiner": ("P12", lambda core: core.leading.backups.attachments.copies.append(None)),
    "a watch that judges a short step": ("P12", lambda core: put(core.leading.backups.watch, "unread", True)),
    "open and decided": ("P6", lambda core: put(open_tx(core), "decided", 1 << 30)),
    "prepared before it began": ("P7", lambda core: put(prepared_tx(core), "prepared", 1)),
    "prepared by no participant": ("P11", lambda core: put(prepared_tx(core), "participants", [])),
    "prepared with less": ("P1", lambda core: prepared_tx(core).events.pop()),
    "committed with less": (
        "P1",
        lambda core: put_all(prepared_tx(core), state="committed", decided=1 << 30, count=99),
    ),
    "an event of another transaction": ("P1", lambda core: put(prepared_tx(core).events[0][1], "tx", 5)),
    "an id twice": ("P3", lambda core: put(prepared_tx(core).events[1][1], "rid", prepared_tx(core).events[0][1].rid)),
    "a branch of another name": ("P6", lambda core: put(in_doubt(core), "name", Y)),
    "a branch that would not stay": ("P2", lambda core: put(in_doubt(core), "stays", False)),
    "a branch that is not listed": ("P2", lambda core: table_of(core).prepared.clear()),
    "nothing locked": ("P1", lambda core: in_doubt(core).removals.clear()),
    "more locked": ("P1", lambda core: in_doubt(core).removals.append(in_doubt(core).removals[0])),
    "a name that is not listed": ("P6", lambda core: table_of(core)._live.clear()),
    "a branch without siblings": ("P6", lambda core: table_of(core)._branches.update({Y.globally: {}})),
    "outcomes counted otherwise": ("P7", lambda core: put(table_of(core).outcomes, "_count", 5)),
    "outcomes summed otherwise": ("P7", lambda core: put(table_of(core).outcomes, "_digest", 5)),
    "an operator's decision expired": ("P6", lambda core: table_of(core).outcomes._expired.__setitem__(1, 5)),
    "a message too few": ("P7", lambda core: put(tally_of(core), "count", tally_of(core).count + 1)),
    "less than no message": ("P3", lambda core: put(tally_of(core), "count", -1)),
    "another digest": ("P7", lambda core: (tally_of(core).put(1, 1), tally_of(core).take(2, 2))),
    "a watermark below zero": ("P3", lambda core: put(tally_of(core), "watermark", -1)),
    "a queue that is not declared": ("P7", lambda core: core.replica.contents.queues.add(99)),
    "a message behind the commit point": (
        "P4",
        lambda core: core.replica.contents.queues.insert(1, 1 << 50, generated_id(1, 99), text("x")),
    ),
    "an id of a later generation": (
        "P5",
        lambda core: core.replica.contents.queues.insert(1, 1, generated_id(99, 1), text("x")),
    ),
    "two messages with one id": (
        "P3",
        lambda core: [
            core.replica.contents.queues.insert(1, offset, generated_id(1, 1 << 30), text("x")) for offset in (1, 2)
        ],
    ),
    "changes of less than nothing": ("P12", lambda core: put(core.replica.contents.layers, "dirty_bytes", -1)),
    "a layer without its places": ("P7", lambda core: core.replica.contents.layers.fresh.update({1: {}, 77: {}})),
    "a queue under another name": (
        "P7",
        lambda core: core.replica.contents.configuration.queues.update(
            {"q": replace(core.replica.contents.configuration.queues["q"], name="z")}
        ),
    ),
    "two queues with one number": (
        "P7",
        lambda core: core.replica.contents.configuration.queues.update(
            {"q": replace(core.replica.contents.configuration.queues["r"], name="q")}
        ),
    ),
    "a checkpoint that is not written": (
        "P12",
        lambda core: put_all(core.checkpointing, _running=False, _wanted=Acknowledge("b", 1, 1, 1)),
    ),
    "a record that went back is gone by": ("P10", lambda core: put(core.gate, "_went_back", "it went back")),
    "a node in doubt of nothing": ("P12", lambda core: put(core.candidate.access, "_doubted_leases", 5)),
    "a record that stood for less than nothing": ("P10", lambda core: put(core.candidate.watch, "_stood", -1.0)),
    "an answer of itself": (
        "P10",
        lambda core: core.candidate.poll.replies.update({core.member.node: Position(1, 1)}),
    ),
}


@pytest.mark.parametrize("kind", PRIMARY)
def test_a_broken_primary_is_found(kind: str) -> None:
    promise, do = PRIMARY[kind]
    node = busy().primary
    node.core.take_effects()
    do(node.core)
    assert broken(node).promise == promise


BACKUPS: dict[str, tuple[str, Break]] = {
    "ready without an attachment": ("P9", lambda core: put(backup_of(core), "attached", False)),
    "of another generation": ("P10", lambda core: put(backup_of(core), "generation", 0)),
    "another member": ("P11", lambda core: put(backup_of(core), "_member", Member("z", "1"))),
    "an attachment without a number": ("P10", lambda core: put(backup_of(core), "session", 0)),
    "attached and refusing": ("P2", lambda core: put(backup_of(core), "refusal", "it lacks something")),
    "followed and overwritten": ("P6", lambda core: put_all(core.replica, resyncing=True, _whole=False)),
    "what could be applied": ("P12", lambda core: (put(backup_of(core), "_commit", 1 << 40), put_durable(core))),
    "applied behind the commit point": ("P6", lambda core: apply_more(core)),
    "a primary's state": ("P10", lambda core: put(core, "state", "active")),
    "a store that falls back": ("P6", lambda core: put(core.replica.contents, "applied", Position(1, 1))),
    "an attachment that was never asked for": ("P10", lambda core: put(core, "sessions", 0)),
}


def apply_more(core: Any) -> None:
    """As if the commit point were where this node's log ends."""
    core.replica.durable = core.replica.tail.sequence
    core.replica.apply(core.replica.tail.sequence)


@pytest.mark.parametrize("kind", BACKUPS)
def test_a_broken_backup_is_found(kind: str) -> None:
    promise, do = BACKUPS[kind]
    node = backups_of(busy())[0]
    node.core.take_effects()
    do(node.core)
    assert broken(node).promise == promise


def test_nothing_is_found_where_nothing_is_broken() -> None:
    for cluster in (busy(), copying()):
        for node in cluster.nodes.values():
            node.core.take_effects()
            check_deep(node.core, node.core.role)


def test_nothing_is_held_back_where_enough_are_ready() -> None:
    node = declared("q").primary
    node.core.take_effects()
    put(decisions_of(node.core), "below_min_ready", True)
    assert broken(node).promise == "P12"


@pytest.mark.parametrize("role", ["primary", "backup"])
def test_everything_is_looked_at_once_in_a_while(role: str) -> None:
    """Of what is broken so that only a walk through it finds it, within so many turns."""
    cluster = busy()
    node = cluster.primary if role == "primary" else backups_of(cluster)[0]
    core: Any = node.core
    core._checks._deep_checks = DeepChecks()
    tally_of(core).put(1, 1)
    tally_of(core).take(2, 2)
    for _ in range(DEEP_EVERY - 1):
        core.take_effects()
    with pytest.raises(InvariantBroken) as found:
        core.take_effects()
    assert found.value.promise == "P7"


def test_nothing_is_checked_where_that_is_off() -> None:
    node = busy().primary
    node.core.state = "ready"
    with unchecked():
        node.core.take_effects()
    assert CHECKS.on
    assert broken(node).promise == "P10"


def test_what_is_found_says_where() -> None:
    node = busy().primary
    node.core.state = "ready"
    found = broken(node)
    assert str(found).startswith("P10: a primary is ready (node a, ready, at 1.")
