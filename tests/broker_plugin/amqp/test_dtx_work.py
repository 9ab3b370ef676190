"""What is done in branches of distributed transactions, as clients on real connections see it."""

from __future__ import annotations

import pytest
from pamqp.commands import Basic, Queue

from tests.broker_plugin.amqp.conftest import ServedByCore
from tests.broker_plugin.amqp.dtx_client import DtxChannel, xid
from tests.broker_plugin.amqp.plain_channel import Refused
from txobserver import dtx_wire as dtx
from txobserver.xid import Xid

X, Y = xid("x"), xid("y")
OK, ROLLED_BACK, READ_ONLY = 0, 1, 7


class TestWork:
    def test_nothing_is_seen_before_the_commit(self, channel: DtxChannel) -> None:
        other = channel.another()
        channel.start(X)
        assert channel.take("in") == b"job 1"
        channel.publish("out", b"result")
        channel.end(X)
        assert other.count("out") == 0 and other.count("in") == 1
        channel.prepare(X)
        assert other.count("out") == 0 and other.count("in") == 1
        assert channel.commit(X) == OK
        assert other.drain("out") == [b"result"] and other.drain("in") == [b"job 2"]

    def test_one_phase(self, channel: DtxChannel) -> None:
        channel.start(X)
        channel.take("in")
        channel.publish("out", b"result")
        channel.end(X)
        assert channel.commit(X, one_phase=True) == OK
        channel.client.close()
        other = channel.another()
        assert other.drain("out") == [b"result"] and other.drain("in") == [b"job 2"]

    @pytest.mark.parametrize("prepared", [False, True])
    def test_what_was_taken_goes_back_to_its_place(self, channel: DtxChannel, prepared: bool) -> None:
        channel.start(X)
        channel.take("in")
        channel.publish("out", b"result")
        channel.end(X)
        if prepared:
            channel.prepare(X)
        assert channel.rollback(X) == OK
        other = channel.another()
        assert other.get("in") == (1, True, b"job 1") and other.get("in") == (2, False, b"job 2")
        assert other.drain("out") == []

    def test_outside_a_branch_everything_acts_at_once(self, channel: DtxChannel) -> None:
        channel.publish("out", b"now")
        channel.start(X)
        channel.publish("out", b"in the branch")
        channel.end(X)
        channel.take("in")
        channel.publish("out", b"now too")
        assert channel.count("out") == 2
        assert channel.another().drain("out") == [b"now", b"now too"]
        assert channel.rollback(X) == OK
        channel.client.close()
        assert channel.another().drain("in") == [b"job 2"]

    def test_while_it_is_suspended_everything_acts_at_once(self, channel: DtxChannel) -> None:
        channel.start(X)
        channel.end(X, suspend=True)
        channel.publish("out", b"now")
        assert channel.another().drain("out") == [b"now"]

    def test_interleaved_branches_of_one_channel(self, channel: DtxChannel) -> None:
        channel.start(X)
        channel.publish("out", b"x1")
        channel.end(X, suspend=True)
        channel.start(Y)
        channel.publish("out", b"y1")
        channel.end(Y, suspend=True)
        channel.start(X, resume=True)
        channel.publish("out", b"x2")
        channel.end(X)
        channel.start(Y, resume=True)
        channel.publish("out", b"y2")
        channel.end(Y)
        assert channel.commit(Y, one_phase=True) == OK
        assert channel.another().drain("out") == [b"y1", b"y2"]
        assert channel.commit(X, one_phase=True) == OK
        assert channel.another().drain("out") == [b"x1", b"x2"]

    def test_one_branch_of_several_channels(self, channel: DtxChannel) -> None:
        other = channel.another()
        channel.start(X)
        other.start(X, join=True)
        channel.publish("out", b"1")
        assert other.take("in") == b"job 1"
        channel.end(X)
        other.end(X)
        third = channel.another()
        assert third.prepare(X) == OK and other.commit(X) == OK
        assert third.drain("out") == [b"1"] and third.drain("in") == [b"job 2"]

    def test_a_branch_that_has_ended_can_be_joined_again(self, channel: DtxChannel) -> None:
        channel.publish_in(X, "out", b"1")
        other = channel.another()
        other.start(X, join=True)
        other.publish("out", b"2")
        other.end(X)
        assert other.commit(X, one_phase=True) == OK
        assert channel.drain("out") == [b"1", b"2"]

    def test_rejections(self, channel: DtxChannel) -> None:
        """Rejected for good, and given back: both when the branch is committed."""
        channel.start(X)
        first, second = channel.get("in"), channel.get("in")
        assert first and second
        channel.send(Basic.Reject(first[0], False), Basic.Reject(second[0], True))
        channel.end(X)
        assert channel.count("in") == 0
        channel.commit(X, one_phase=True)
        assert channel.get("in") == (3, True, b"job 2") and channel.get("in") is None

    def test_queues_of_this_node_s_memory(self, channel: DtxChannel) -> None:
        channel.declare("memory", durable=False)
        channel.publish("memory", b"0")
        channel.start(X)
        channel.take("memory")
        channel.publish("memory", b"1")
        channel.publish("out", b"1")
        channel.end(X)
        channel.prepare(X)
        assert channel.drain("memory") == []
        assert channel.commit(X) == OK
        assert channel.drain("memory") == [b"1"]

    def test_what_no_queue_takes_is_returned_at_once(self, channel: DtxChannel) -> None:
        channel.start(X)
        channel.publish("nowhere", b"lost", mandatory=True)
        channel.end(X)
        assert channel.returned == [b"lost"]
        assert channel.commit(X, one_phase=True) == OK

    @pytest.mark.parametrize("when", ["at once", "late"])
    def test_a_prepare_that_fails_has_rolled_back(self, core: ServedByCore, channel: DtxChannel, when: str) -> None:
        """Because nothing can be committed at the moment, or because a participant votes against it."""
        primary = core.node.core.leading.primary
        assert primary is not None
        channel.start(X)
        channel.take("in")
        channel.publish("out", b"result")
        channel.end(X)
        if when == "at once":
            core.call(lambda: setattr(primary.decisions, "below_min_ready", True))
            channel.send(dtx.Prepare(X))
        else:
            core.hold()
            channel.send(dtx.Prepare(X))
            core.wait_for(lambda: core.broker.branches.find(Xid(*X)).state == "preparing")
            cancel, buffers = primary.decisions.cancel, core.node.core.replica.buffers
            core.call(lambda: [cancel(tx, "its disk is full") for tx in buffers])
            core.release()
        assert channel.answer().status == ROLLED_BACK
        core.call(lambda: setattr(primary.decisions, "below_min_ready", False))
        assert channel.recover() == []
        assert channel.drain("in") == [b"job 1", b"job 2"] and channel.drain("out") == []
        with pytest.raises(Refused, match="404"):
            channel.rollback(X)

    @pytest.mark.parametrize("empty", [False, True])
    def test_nothing_to_prepare(self, channel: DtxChannel, empty: bool) -> None:
        channel.start(X)
        if not empty:
            assert channel.get("in")
        channel.end(X)
        assert channel.prepare(X) == READ_ONLY
        with pytest.raises(Refused, match="404"):
            channel.commit(X)


class TestLocked:
    """What a prepared branch dequeues is held by no consumer."""

    @pytest.fixture
    def held(self, channel: DtxChannel) -> DtxChannel:
        """A branch that has taken job 1 is prepared, and its client is gone."""
        client = channel.another()
        client.start(X)
        client.take("in")
        client.end(X)
        assert client.prepare(X) == OK
        client.client.close()
        return channel

    def test_it_is_not_got_delivered_or_counted(self, held: DtxChannel) -> None:
        assert held.count("in") == 1
        held.ask(Basic.Consume(0, "in", "c"))
        held.wait_for_deliveries(1)
        assert held.count("in") == 0
        assert [delivery[2] for delivery in held.deliveries] == [b"job 2"]
        assert held.another().get("in") is None

    def test_it_is_not_purged(self, held: DtxChannel) -> None:
        assert held.ask(Queue.Purge(0, "in")).message_count == 1
        assert held.rollback(X) == OK
        assert held.get("in") == (1, True, b"job 1")

    def test_it_is_handed_out_when_the_branch_is_rolled_back(self, held: DtxChannel) -> None:
        held.ask(Basic.Consume(0, "in", "c"))
        other = held.another()
        held.wait_for_deliveries(1)
        assert other.rollback(X) == OK
        held.wait_for_deliveries(2)
        assert held.deliveries == [(1, False, b"job 2"), (2, True, b"job 1")]

    def test_it_counts_for_nobody_s_prefetch(self, channel: DtxChannel) -> None:
        channel.ask(Basic.Qos(0, 1))
        channel.ask(Basic.Consume(0, "in", "c"))
        channel.wait_for_deliveries(1)
        channel.start(X)
        channel.send(Basic.Ack(channel.deliveries[0][0]))
        channel.end(X)
        channel.count("in")
        assert len(channel.deliveries) == 1
        channel.prepare(X)
        channel.wait_for_deliveries(2)
        assert [delivery[2] for delivery in channel.deliveries] == [b"job 1", b"job 2"]
