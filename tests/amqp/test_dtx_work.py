"""What is done in branches of distributed transactions, as clients on real connections see it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pamqp.commands import Basic, Channel, Queue, Tx

from broker_plugin.amqp import dtx_methods as dtx
from broker_plugin.amqp.dtx_methods import XidFields
from tests.amqp.conftest import ServedByCore
from tests.amqp.dtx_client import DtxChannel, Refused, xid
from txobserver.outcomes import Outcome
from txobserver.xid import Xid

X, Y = xid("x"), xid("y")
OK, ROLLED_BACK, HEURISTICALLY_COMMITTED, HEURISTICALLY_ROLLED_BACK, READ_ONLY = 0, 1, 4, 5, 7


@pytest.fixture
def channel(core: ServedByCore) -> Iterator[DtxChannel]:
    channel = DtxChannel(core.port)
    channel.declare("in")
    channel.declare("out")
    channel.publish("in", b"job 1", b"job 2")
    yield channel
    channel.client.close()


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
    """What a prepared branch dequeues is in nobody's hands."""

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


class TestRecover:
    def test_prepared_branches_and_no_others(self, channel: DtxChannel) -> None:
        channel.publish_in(xid("idle"), "out", b"1")
        names = [channel.prepared(xid(name), "out", b"1") for name in "abc"]
        assert channel.another().recover() == names
        channel.commit(names[0])
        channel.rollback(names[1])
        assert channel.recover() == names[2:]

    def test_page_by_page(self, core: ServedByCore, channel: DtxChannel) -> None:
        """A frame that the client can take holds as many as fit, and the rest is asked for."""
        names = [channel.prepared(XidFields(1, b"g" * 60, b"%063d" % number), "out", b"1") for number in range(70)]
        (protocol,) = core.server._protocols
        assert protocol.connection is not None
        protocol.connection.frame_max = 4096
        first = channel.ask(dtx.Recover())
        assert first.more and 20 < len(dtx.unpack_xids(first.xids)) < 40
        assert channel.recover() == names
        decision, branches = channel.globally("g" * 60)
        assert decision == 0 and list(branches) == names and set(branches.values()) == {Outcome.PREPARED}


class TestGlobally:
    def branches(self, channel: DtxChannel, *names: str) -> list[XidFields]:
        return [channel.prepared(xid("g", name), "out", name.encode()) for name in names]

    @pytest.mark.parametrize("commit", [True, False])
    def test_one_decision_for_all(self, channel: DtxChannel, commit: bool) -> None:
        self.branches(channel, "1", "2", "3")
        channel.prepared(xid("other"), "out", b"other")
        assert channel.decide("g", commit) == OK
        assert sorted(channel.drain("out")) == ([b"1", b"2", b"3"] if commit else [])
        assert channel.recover() == [xid("other")]
        assert channel.globally("g")[0] == (1 if commit else 2)

    @pytest.mark.parametrize("commit", [True, False])
    def test_who_prepares_late_is_refused(self, channel: DtxChannel, commit: bool) -> None:
        late = xid("g", "late")
        channel.publish_in(late, "out", b"late")
        channel.publish_in(xid("g", "one phase"), "out", b"late")
        channel.decide("g", commit)
        assert channel.prepare(late) == ROLLED_BACK
        assert channel.commit(xid("g", "one phase"), one_phase=True) == ROLLED_BACK
        assert channel.drain("out") == []

    def test_the_same_again_and_the_other_one(self, channel: DtxChannel) -> None:
        self.branches(channel, "1")
        assert channel.decide("g", True) == OK and channel.another().decide("g", True) == OK
        with pytest.raises(Refused) as error:
            channel.decide("g", False)
        assert error.value.code == 409
        assert channel.another().globally("g")[0] == 1

    def test_forgotten(self, channel: DtxChannel) -> None:
        channel.decide("g", True)
        channel.ask(dtx.ForgetGlobal(1, b"g"))
        assert channel.globally("g")[0] == 0
        with pytest.raises(Refused) as error:
            channel.ask(dtx.ForgetGlobal(1, b"g"))
        assert error.value.code == 404

    def test_what_became_of_each(self, core: ServedByCore, channel: DtxChannel) -> None:
        idle = xid("g", "idle")
        prepared, decided = self.branches(channel, "1", "2")
        channel.publish_in(idle, "out", b"1")
        heuristically(core, decided, True)
        assert channel.globally("g") == (
            0,
            {idle: Outcome.ACTIVE, prepared: Outcome.PREPARED, decided: Outcome.HEURISTICALLY_COMMITTED},
        )


def heuristically(core: ServedByCore, which: XidFields, commit: bool) -> None:
    """An operator decides."""
    answers: list[str | None] = []
    core.call(lambda: core.broker.branch_operations.decide_heuristically(Xid(*which), commit, answers.append))
    core.wait_for(lambda: answers == [None])


class TestHeuristic:
    @pytest.mark.parametrize("commit", [True, False])
    def test_a_coordinator_that_comes_late_is_told(self, core: ServedByCore, channel: DtxChannel, commit: bool) -> None:
        status = HEURISTICALLY_COMMITTED if commit else HEURISTICALLY_ROLLED_BACK
        channel.prepared(X, "out", b"1")
        heuristically(core, X, commit)
        assert channel.drain("out") == ([b"1"] if commit else [])
        assert channel.recover() == [X] and channel.outcome(X) == status
        assert channel.commit(X) == status and channel.rollback(X) == status
        with pytest.raises(Refused) as error:
            channel.start(X)
        assert error.value.code == 530
        other = channel.another()
        other.forget(X)
        assert other.recover() == []
        with pytest.raises(Refused) as error:
            other.commit(X)
        assert error.value.code == 404

    @pytest.mark.parametrize("commit", [True, False])
    def test_a_global_decision_that_comes_late(self, core: ServedByCore, channel: DtxChannel, commit: bool) -> None:
        channel.prepared(X, "out", b"1")
        heuristically(core, X, not commit)
        assert channel.decide("x", commit) == (HEURISTICALLY_ROLLED_BACK if commit else HEURISTICALLY_COMMITTED)

    def test_the_same_decision_is_no_news(self, core: ServedByCore, channel: DtxChannel) -> None:
        channel.prepared(X, "out", b"1")
        heuristically(core, X, True)
        assert channel.decide("x", True) == OK


class TestOutcome:
    def test_each(self, core: ServedByCore, channel: DtxChannel) -> None:
        assert channel.outcome(X) == Outcome.UNKNOWN
        channel.start(X)
        assert channel.outcome(X) == Outcome.ACTIVE
        channel.publish("out", b"1")
        channel.end(X)
        channel.prepare(X)
        assert channel.outcome(X) == Outcome.PREPARED
        channel.commit(X)
        assert channel.outcome(X) == Outcome.COMMITTED
        channel.start(Y)
        channel.end(Y, fail=True)
        assert channel.outcome(Y) == Outcome.ROLLED_BACK

    def test_of_one_phase(self, channel: DtxChannel) -> None:
        channel.publish_in(X, "out", b"1")
        channel.commit(X, one_phase=True)
        assert channel.another().outcome(X) == Outcome.COMMITTED

    def test_what_is_on_its_way_is_pending(self, core: ServedByCore, channel: DtxChannel) -> None:
        other = channel.another()
        channel.prepared(X, "out", b"1")
        channel.publish_in(Y, "out", b"1")
        core.hold()
        channel.send(dtx.Commit(X))
        core.wait_for(lambda: core.broker.branches.find(Xid(*X)).state == "deciding")
        assert other.outcome(X) == Outcome.PENDING and other.recover() == [X]
        with pytest.raises(Refused, match="being committed"):
            other.rollback(X)
        core.release()
        assert channel.answer().status == OK
        assert channel.outcome(X) == Outcome.COMMITTED

    def test_two_who_decide_the_same_are_both_answered(self, core: ServedByCore, channel: DtxChannel) -> None:
        other = channel.another()
        channel.prepared(X, "out", b"1")
        core.hold()
        for each in (channel, other):
            each.send(dtx.Commit(X))
        core.wait_for(lambda: len(core.broker.branches.find(Xid(*X)).waiting) == 2)
        core.release()
        assert channel.answer().status == OK and other.answer().status == OK

    def test_by_token(self, channel: DtxChannel) -> None:
        plain = channel.another().beside(select=False)
        plain.ask(Tx.Select())
        plain.publish("out", b"1")
        plain.ask(dtx.Token(b"first"))
        assert channel.outcome_of(b"first") == Outcome.ACTIVE
        plain.ask(Tx.Commit())
        assert plain.outcome_of(b"first") == Outcome.COMMITTED
        plain.ask(dtx.Token(b"second"))
        plain.publish("out", b"2")
        plain.ask(Channel.Close(200, "", 0, 0))
        assert channel.outcome_of(b"second") != Outcome.COMMITTED
        assert channel.drain("out") == [b"1"]

    def test_a_token_that_is_in_use(self, channel: DtxChannel) -> None:
        first, second = (channel.another().beside(select=False) for _ in range(2))
        for plain in (first, second):
            plain.ask(Tx.Select())
        first.ask(dtx.Token(b"t"))
        with pytest.raises(Refused) as error:
            second.ask(dtx.Token(b"t"))
        assert error.value.code == 530
