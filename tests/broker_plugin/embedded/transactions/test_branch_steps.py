"""Channels, coordinators and an operator do anything to a few branches, in any order, also across take-overs.

Work inside a branch is always the same: take a job, publish its result. So whatever becomes of the branches, in the end
each job is either in its queue or its result is in the other one, and nothing is there twice or held by a client.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broker_plugin.embedded.errors import AmqpError
from broker_plugin.embedded.queues.durable_queue import DurableQueue
from broker_plugin.embedded.queues.windows import WindowLimits
from tests.broker_plugin.embedded.cluster_harness import ClusterHarness
from tests.broker_plugin.embedded.harness import Client
from tests.support.examples import examples
from txobserver.xid import Global, Xid

JOBS = [b"%d" % number for number in range(12)]
XIDS = [Xid(1, b"g", b"1"), Xid(1, b"g", b"2"), Xid(1, b"h", b"1")]
CHANNELS = range(3)

_channel = st.sampled_from(CHANNELS)
_xid = st.sampled_from(XIDS)
_flag = st.booleans()
STEP = st.one_of(
    st.tuples(st.just("start"), _channel, _xid, _flag, _flag),
    st.tuples(st.just("work"), _channel),
    st.tuples(st.just("end"), _channel, _xid, _flag, _flag),
    st.tuples(st.just("prepare"), _channel, _xid),
    st.tuples(st.just("commit"), _channel, _xid, _flag),
    st.tuples(st.just("rollback"), _channel, _xid),
    st.tuples(st.just("forget"), _channel, _xid),
    st.tuples(st.just("decide"), _channel, st.sampled_from([each.globally for each in XIDS]), _flag),
    st.tuples(st.just("operator"), _xid, _flag),
    st.tuples(st.just("close"), _channel),
    st.tuples(st.just("pass_time")),
    st.tuples(st.just("progress"), st.integers(1, 4)),
    st.tuples(st.just("crash"), _flag),
)
ENDINGS = ([], ["prepare"], ["prepare", "commit"], ["prepare", "rollback"], ["commit in one phase"], ["rollback"])


def _story(number: int, xid: Xid, work: int, ending: list[str], join: bool) -> list[tuple[Any, ...]]:
    """What a proper client does."""
    steps: list[tuple[Any, ...]] = [("start", number, xid, join, False), *[("work", number)] * work]
    steps.append(("end", number, xid, False, False))
    for each in ending:
        if each.startswith("commit"):
            steps.append(("commit", number, xid, each != "commit"))
        else:
            steps.append((each, number, xid))
        steps.append(("progress", 9))
    return steps


STORY = st.builds(_story, _channel, _xid, st.integers(0, 2), st.sampled_from(ENDINGS), _flag)
STEPS = st.lists(STORY | STEP.map(lambda step: [step]), min_size=5, max_size=25)


class Play:
    """One cluster and three channels. A channel with a request on its way asks nothing more, as on the wire."""

    def __init__(self) -> None:
        self.harness = ClusterHarness(WindowLimits(messages=2))
        setup = self.harness.client()
        setup.declare("jobs")
        setup.declare("results")
        setup.publish("jobs", *JOBS)
        self.harness.settle()
        self.now = 0.0
        self.channels = [self.open() for _ in CHANNELS]
        self.busy: set[int] = set()

    def open(self) -> Client:
        client = self.harness.client()
        client.channel.mode.select_dtx()
        return client

    def ask(self, number: int, request: Callable[[Client, Callable[..., None]], Any]) -> None:
        """On a channel that is free; an error closes it, and another one is opened."""
        client = self.channels[number]
        if client.channel.closed or client.errors:
            self.channels[number] = client = self.open()
            self.busy.discard(number)
        if number in self.busy:
            return
        self.busy.add(number)
        try:
            if request(client, lambda *answer: self.busy.discard(number)) is not None:
                self.busy.discard(number)
        except AmqpError as error:
            assert not error.hard, error
            client.failed(error)

    # -- steps

    def start(self, number: int, xid: Xid, join: bool, resume: bool) -> None:
        self.ask(number, lambda client, reply: client.channel.mode.start_branch(xid, join, resume))

    def end(self, number: int, xid: Xid, fail: bool, suspend: bool) -> None:
        self.ask(number, lambda client, reply: client.channel.mode.end_branch(xid, fail, suspend))

    def work(self, number: int) -> None:
        client = self.channels[number]
        if number in self.busy or client.channel.closed or client.channel.mode.work is None:
            return
        answers = client.ask_get("jobs")
        self.harness.settle()
        if answers and answers[0] is not None and not client.errors:
            client.publish("results", answers[0].message.body)
            client.channel.ack(answers[0].delivery_tag, False)

    def prepare(self, number: int, xid: Xid) -> None:
        operations = self.harness.broker.operations.branches
        self.ask(number, lambda client, reply: operations.prepare(client.channel, xid, reply))

    def commit(self, number: int, xid: Xid, one_phase: bool) -> None:
        operations = self.harness.broker.operations.branches
        self.ask(number, lambda client, reply: operations.commit(client.channel, xid, one_phase, reply))

    def rollback(self, number: int, xid: Xid) -> None:
        operations = self.harness.broker.operations.branches
        self.ask(number, lambda client, reply: operations.rollback(client.channel, xid, reply))

    def forget(self, number: int, xid: Xid) -> None:
        operations = self.harness.broker.operations.branches
        self.ask(number, lambda client, reply: operations.forget(client.channel, xid, reply))

    def decide(self, number: int, which: Global, commit: bool) -> None:
        operations = self.harness.broker.operations.branches
        self.ask(number, lambda client, reply: operations.decide_globally(client.channel, which, commit, reply))

    def operator(self, xid: Xid, commit: bool) -> None:
        try:
            self.harness.broker.operations.branches.decide_heuristically(xid, commit, lambda error: None)
        except AmqpError as error:
            assert error.code in (404, 409)

    def close(self, number: int) -> None:
        self.channels[number].channel.close()

    def pass_time(self) -> None:
        for _ in range(2):
            self.harness.broker.tick(self.now)
            self.now += 60

    def progress(self, steps: int) -> None:
        self.harness.progress(steps)

    def crash(self, all_at_once: bool) -> None:
        self.harness.crash(all_at_once)
        self.channels = [self.open() for _ in CHANNELS]
        self.busy.clear()

    # -- the end

    def finish(self) -> None:
        """Every client leaves, what is in doubt is rolled back, and what is left is counted."""
        self.harness.settle()
        for client in self.channels:
            client.channel.close()
        self.harness.settle()
        broker, last = self.harness.broker, self.open()
        for _ in range(4):  # what is not prepared times out, and is forgotten
            self.harness.broker.tick(self.now)
            self.now += 3600
        for xid in [each for each in broker.branches.recover() if self.harness.content.prepared_branch(each)]:
            broker.operations.branches.rollback(last.channel, xid, lambda status: None)
        self.harness.settle()
        assert not last.errors and not broker.branches._known and not broker.branches._unprepared
        assert not self.harness.node.core.replica.buffers, "the stream holds no transaction open"
        for queue in broker.numbered.values():
            assert isinstance(queue, DurableQueue) and not queue._out, "held by no client"
        found = last.drain("jobs") + last.drain("results")
        assert sorted(found) == sorted(JOBS)


@examples(100)
@given(STEPS, st.booleans())
def test_each_job_is_done_once_or_still_there(parts: list[list[tuple[Any, ...]]], settling: bool) -> None:
    play = Play()
    for part in parts:
        for name, *arguments in part:
            getattr(play, name)(*arguments)
            if settling:
                play.harness.settle()
    play.finish()
