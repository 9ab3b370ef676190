"""What prepared branches dequeue, on the primary that comes after: held by no consumer, and back at its offset."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_plugin.embedded.queues.windows import WindowLimits
from tests.broker_plugin.embedded.cluster_harness import ClusterHarness
from tests.broker_plugin.embedded.harness import Client, Harness, got, queue_of
from tests.support.examples import examples
from txobserver.outcomes import XaStatus
from txobserver.xid import Xid

X = Xid(1, b"x", b"")
BODIES = [b"%d" % number for number in range(8)]


def prepared(harness: Harness, taken: int, *inside: int) -> Client:
    """Eight messages, of which a client has taken the first few; those with these numbers inside a prepared branch."""
    client = harness.client()
    client.declare("q")
    client.publish("q", *BODIES)
    tags = [got(client.get("q")).delivery_tag for _ in range(taken)]
    client.channel.mode.select_dtx()
    client.channel.mode.start_branch(X, False, False)
    for number in inside:
        client.channel.ack(tags[number], False)
    client.channel.mode.end_branch(X, False, False)
    answers: list[XaStatus] = []
    harness.broker.operations.branches.prepare(client.channel, X, answers.append)
    harness.settle()
    assert answers == [XaStatus.OK]
    return client


def decide(harness: Harness, commit: bool) -> Client:
    client, answers = harness.client(), list[XaStatus]()
    operations = harness.broker.operations.branches
    if commit:
        operations.commit(client.channel, X, False, answers.append)
    else:
        operations.rollback(client.channel, X, answers.append)
    harness.settle()
    assert answers == [XaStatus.OK]
    return client


@pytest.mark.parametrize("all_at_once", [None, False, True])
@pytest.mark.parametrize("commit", [False, True])
def test_locked_messages_purged(commit: bool, all_at_once: bool | None) -> None:
    """A purge counts and takes what no consumer holds; also where the branch was prepared at an earlier primary."""
    harness = ClusterHarness(WindowLimits(messages=2))
    holder = prepared(harness, 5, 1, 3)
    holder.channel.close()
    harness.settle()
    if all_at_once is not None:
        harness.crash(all_at_once)
    client, counts = harness.client(), list[int]()
    harness.broker.operations.queues.purge(client.channel, "q", counts.append)
    harness.settle()
    assert counts == [6] and client.count("q") == 0
    other = decide(harness, commit)
    assert other.drain("q") == ([] if commit else [b"1", b"3"])


@pytest.mark.parametrize("all_at_once", [False, True])
@pytest.mark.parametrize("commit", [False, True])
def test_heuristic_outcomes_no_longer_listed_after_a_promotion(commit: bool, all_at_once: bool) -> None:
    """What ``dtx.recover`` lists, and what a coordinator is told, at the primary that comes after."""
    harness = ClusterHarness(WindowLimits(messages=2))
    prepared(harness, 5, 1, 3)
    told: list[str | None] = []
    harness.broker.operations.branches.decide_heuristically(X, commit, told.append)
    harness.settle()
    assert told == [None]
    harness.crash(all_at_once)
    broker, client, answers = harness.broker, harness.client(), list[XaStatus]()
    assert broker.branches.recover() == [X]
    status = XaStatus.HEURISTICALLY_COMMITTED if commit else XaStatus.HEURISTICALLY_ROLLED_BACK
    broker.operations.branches.commit(client.channel, X, False, answers.append)
    broker.operations.branches.rollback(client.channel, X, answers.append)
    broker.operations.branches.forget(client.channel, X, lambda: answers.append(XaStatus.OK))
    harness.settle()
    assert answers == [status, status, XaStatus.OK] and broker.branches.recover() == []


@pytest.mark.parametrize("all_at_once", [False, True])
@pytest.mark.parametrize("commit", [False, True])
def test_after_a_take_over(commit: bool, all_at_once: bool) -> None:
    harness = ClusterHarness(WindowLimits(messages=2))
    prepared(harness, 5, 1, 3)
    harness.crash(all_at_once)
    client = harness.client()
    assert client.count("q") == 6
    assert client.drain("q") == [b"0", b"2", b"4", b"5", b"6", b"7"]
    other = decide(harness, commit)
    assert other.drain("q") == ([] if commit else [b"1", b"3"])


def test_what_comes_back_waits_for_what_stands_before_it() -> None:
    harness = ClusterHarness(WindowLimits(messages=2))
    prepared(harness, 7, 6)
    harness.crash(False)
    first = got(harness.client().get("q", no_ack=True))
    assert first.message.body == b"0"
    client = decide(harness, False)
    assert client.drain("q") == BODIES[1:]


def test_a_deleted_queue_is_gone_for_the_branch_too() -> None:
    harness = ClusterHarness(WindowLimits())
    prepared(harness, 1, 0)
    harness.crash(False)
    client = harness.client()
    counts: list[int] = []
    harness.broker.operations.deletions.delete(client.channel, "q", False, False, counts.append)
    harness.settle()
    assert counts == [7]
    client.declare("q")
    harness.crash(False)
    assert decide(harness, False).drain("q") == []


def test_a_channel_that_has_ended_is_told_nothing() -> None:
    """Its prepare was on its way: the branch is prepared all the same."""
    harness = ClusterHarness(WindowLimits())
    client, answers = harness.client(), list[XaStatus]()
    client.declare("q")
    client.channel.mode.select_dtx()
    client.channel.mode.start_branch(X, False, False)
    client.publish("q", b"0")
    client.channel.mode.end_branch(X, False, False)
    harness.broker.operations.branches.prepare(client.channel, X, answers.append)
    client.channel.close()
    harness.settle()
    assert answers == [] and harness.broker.branches.recover() == [X]
    assert decide(harness, True).drain("q") == [b"0"]


def test_a_client_that_goes_gives_back_what_is_not_in_the_branch() -> None:
    harness = ClusterHarness(WindowLimits())
    client = prepared(harness, 3, 1)
    client.channel.close()
    assert harness.client().drain("q") == [b"0", *BODIES[2:]]
    assert decide(harness, False).drain("q") == [b"1"]


@examples(60)
@given(
    locked=st.sets(st.integers(0, 19)), free=st.lists(st.integers(0, 19), unique=True), steps=st.lists(st.booleans())
)
def test_every_message_comes_once_and_in_order(locked: set[int], free: list[int], steps: list[bool]) -> None:
    """A step takes a message, or frees one that is locked: what comes is always the first that is free."""
    harness = Harness(WindowLimits(messages=3))
    client = harness.client()
    client.declare("q")
    client.publish("q", *[b"%d" % number for number in range(20)])
    harness.settle()
    harness.take_over()
    queue = queue_of(harness)
    offsets = [(offset, entry.rid) for offset, entry in harness.content.page(queue.number, -1, 20)]
    queue.lock([offsets[number] for number in sorted(locked)])
    ready, client = set(range(20)) - locked, harness.client()
    to_free = [number for number in free if number in locked]
    for take in [*steps, *[False] * len(to_free), *[True] * 21]:
        if not take:
            if to_free:
                ready.add(number := to_free.pop())
                queue.give_back([offsets[number][0]])
            continue
        assert queue.ready == len(ready)
        answer = client.get("q", no_ack=True)
        assert (answer and answer.message.body) == (b"%d" % min(ready) if ready else None)
        ready.discard(min(ready, default=0))
