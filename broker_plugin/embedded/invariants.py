"""What must be so of the embedded broker at the end of each of its turns (``txobserver.invariants``)."""

from __future__ import annotations

from collections.abc import Iterable

from broker_plugin.embedded import memory_budget
from broker_plugin.embedded.channels.channel import Channel
from broker_plugin.embedded.channels.confirms import Confirms
from broker_plugin.embedded.channels.session import Session
from broker_plugin.embedded.queues.durable_queue import DurableQueue
from broker_plugin.embedded.queues.invariants import (
    check_durable_deep,
    check_queue,
    check_receiver,
    check_receiver_deep,
)
from broker_plugin.embedded.queues.local_queue import LocalQueue
from broker_plugin.embedded.serving import Serving
from broker_plugin.embedded.topology.invariants import check_locks, check_topology, check_topology_deep
from broker_plugin.embedded.transactions.branch import Association
from broker_plugin.embedded.transactions.invariants import check_branches, check_mode, check_work
from broker_plugin.embedded.transactions.transaction import LocalTransaction
from txobserver.invariants import DeepChecks, checking, differ, rises

QUEUES = 8
"""Queues that are looked at after each turn, those that were declared last; all of them after every deep one."""


class BrokerChecks:
    """Of one broker."""

    def __init__(self) -> None:
        self._deep_checks = DeepChecks()

    def check(self, serving: Serving, sessions: Iterable[Session]) -> None:
        """The end of a turn. Raises InvariantBroken."""
        with checking("the embedded broker"):
            check_serving(serving, list(sessions), self._deep_checks.deep())


def check_serving(serving: Serving, sessions: list[Session], deep: bool) -> None:
    """All of a broker."""
    content = serving._content
    if not serving.active:
        assert content is None, "P10: a node that is not the primary shows its queues"
        assert not sessions, "P10: a node that is not the primary serves clients"
        assert not serving.numbered, "P10: a node that is not the primary has queues"
        assert not serving.topology.queues, "P10: a node that is not the primary has queues"
        assert serving._branches is None, "P10: a node that is not the primary has branches"
        return
    assert content is not None, "P2: clients are served from nothing"
    check_topology(serving.topology)
    check_locks(serving.locks)
    assert not serving.loading or not sessions, "P2: clients are served before everything is taken over"
    made, declared = len(serving.numbered), len(content.configuration.queues)
    assert made == declared or (serving.loading and made < declared), f"P7: {made} of {declared} queues are served"
    durable = list(serving.numbered.values())
    for queue in serving.topology.queues.values() if deep else durable[-QUEUES:]:
        check_queue(queue)
    for queue in durable if deep else durable[-QUEUES:]:
        there = content.summary(queue.number)
        whole = serving.filling is None
        assert not whole or queue.total == there.count, (
            f"P7: queue {queue.number} is served with {queue.total} of {there.count}"
        )
        assert queue.watermark <= there.watermark, f"P3: queue {queue.number} hands out beyond {there.watermark}"
    if serving._branches is not None:
        check_branches(serving._branches, serving.filling is None)
    for session in sessions:
        check_session(session, deep)
    memory = serving.memory
    assert memory.held == sum(memory.kinds), f"P12: clients hold {memory.held} bytes, by kind {memory.kinds}"
    assert min(memory.kinds) >= 0, f"P12: clients hold {memory.kinds} bytes"
    if deep:
        _check_everything(serving, sessions)


def _check_everything(serving: Serving, sessions: list[Session]) -> None:
    content = serving.content
    numbers = content.configuration.numbers()
    assert serving.loading or serving.numbered.keys() == numbers, "P7: other queues are served than are declared"
    check_topology_deep(serving.topology, serving.numbered)
    own = [each for each in serving.topology.queues.values() if isinstance(each, LocalQueue)]
    local = sum(queue.bytes + queue.own_bytes for queue in own)
    counted = serving.memory.kinds[memory_budget.QUEUES]
    assert counted == local, f"P12: queues of the node's memory hold {local} bytes, {counted} are counted"
    held: list[tuple[int, int]] = []
    for session in sessions:
        for channel in session._channels:
            held += [(id(queue), offset) for queue, offset, _ in channel.unacked.values()]
    assert differ(held), "P3: two clients hold one message"
    for number, queue in serving.numbered.items():
        assert queue.number == number, f"P5: queue {queue.number} is served as {number}"
        assert isinstance(queue, DurableQueue), f"P2: queue {number} is in no store"
        assert not queue.deleted, f"P4: queue {number} is gone, and is served"
        assert serving.topology.queues.get(queue.name) is queue, f"P12: queue {number} cannot be found by its name"
        check_durable_deep(queue)


def check_session(session: Session, deep: bool) -> None:
    """One client."""
    assert session.in_flight >= 0, f"P12: {session.in_flight} bytes of publishes are on their way"
    assert session.relief_at is None or session.relief_at >= 0, f"P12: a client goes on at {session.relief_at} bytes"
    for channel in session._channels:
        assert not channel.closed, "P3: a channel that has ended is served"
        check_receiver(channel)
        if isinstance(channel, Channel):
            check_channel(channel, session)
        if deep:
            check_receiver_deep(channel)


def check_channel(channel: Channel, session: Session) -> None:
    """Its modes exclude each other."""
    work, confirms, dtx = channel.mode.work, channel.mode.confirms, channel.mode.dtx
    assert channel.session is session, "P5: a channel is of another client"
    assert channel._publishing >= 0, f"P12: {channel._publishing} publishes have no outcome"
    assert channel._publishing or channel._when_quiet is None, "P12: a request waits for publishes that have landed"
    assert confirms is None or work is None, "P11: publishes are confirmed, and belong to a unit of work"
    assert confirms is None or dtx is None, "P11: publishes are confirmed, and belong to a branch"
    assert dtx is None or not isinstance(work, LocalTransaction), "P1: a channel has a transaction and a branch"
    assert not isinstance(work, Association) or dtx is not None, "P1: a channel works for a branch"
    if isinstance(work, LocalTransaction):
        check_work(work)
    if dtx is not None:
        assert dtx.current is work, "P1: the work of a channel goes to another branch"
        check_mode(dtx)
    if confirms is not None:
        check_confirms(confirms)


def check_confirms(confirms: Confirms) -> None:
    """What is confirmed, and what waits for that."""
    waiting = confirms._open
    assert confirms._last >= len(waiting), f"P11: {len(waiting)} of {confirms._last} publishes wait for a confirm"
    assert differ(confirms._accepted), "P11: a publish is confirmed twice"
    assert waiting.keys().isdisjoint(confirms._accepted), "P11: a publish is confirmed whose outcome is not known"
    assert waiting.keys().isdisjoint(confirms._refused), "P11: a publish is refused whose outcome is not known"
    assert set(confirms._accepted).isdisjoint(confirms._refused), "P11: a publish is confirmed and refused"
    assert rises(waiting), "P8: publishes are numbered out of order"
    newest = next(reversed(waiting)) if waiting else 0
    assert newest <= confirms._last, f"P11: publish {newest} waits, and {confirms._last} was the last"
