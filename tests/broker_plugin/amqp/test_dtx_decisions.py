"""Decisions on prepared branches, by coordinators and operators, and the answers about them, on real connections."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp.commands import Basic, Channel, Tx

from broker_plugin.amqp.protocol.codec import OVERHEAD
from broker_plugin.embedded.errors import AmqpError
from tests.broker_plugin.amqp.conftest import ServedByCore
from tests.broker_plugin.amqp.dtx_client import DtxChannel, xid
from tests.broker_plugin.amqp.plain_channel import Refused
from txobserver import dtx_wire as dtx
from txobserver.dtx_wire import XidFields
from txobserver.outcomes import BranchOutcome
from txobserver.xid import Xid

X, Y = xid("x"), xid("y")
OK, ROLLED_BACK, HEURISTICALLY_COMMITTED, HEURISTICALLY_ROLLED_BACK, MIXED = 0, 1, 4, 5, 6


def heuristically(core: ServedByCore, which: XidFields, commit: bool) -> None:
    """An operator decides."""
    answers: list[str | None] = []
    core.call(lambda: core.broker.operations.branches.decide_heuristically(Xid(*which), commit, answers.append))
    core.wait_for(lambda: answers == [None])


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
        protocol.connection.max_payload = 4096 - OVERHEAD
        first = channel.ask(dtx.Recover())
        assert first.more and 20 < len(dtx.unpack_xids(first.xids)) < 40
        assert channel.recover() == names
        decision, branches = channel.globally("g" * 60)
        assert decision == 0 and list(branches) == names and set(branches.values()) == {BranchOutcome.PREPARED}


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

    def test_on_its_way(self, core: ServedByCore, channel: DtxChannel) -> None:
        other = channel.another()
        self.branches(channel, "1")
        core.hold()
        channel.send(dtx.Decide(1, b"g", True))
        core.wait_for(lambda: core.broker.content.global_decision(1, b"g") is BranchOutcome.PENDING)
        assert other.globally("g") == (4, {xid("g", "1"): BranchOutcome.PENDING})
        for _ in range(2):
            with pytest.raises(Refused, match="on its way") as error:
                channel.another().commit(xid("g", "1"))
            assert error.value.code == 409
        core.release()
        assert channel.answer().status == OK and channel.globally("g")[0] == 1

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
            {
                idle: BranchOutcome.ACTIVE,
                prepared: BranchOutcome.PREPARED,
                decided: BranchOutcome.HEURISTICALLY_COMMITTED,
            },
        )


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
        otherwise = HEURISTICALLY_ROLLED_BACK if commit else HEURISTICALLY_COMMITTED
        assert channel.decide("x", commit) == otherwise
        assert channel.globally("x") == (1 if commit else 2, {X: otherwise})

    @pytest.mark.parametrize("commit", [True, False])
    def test_some_of_it_decided_otherwise(self, core: ServedByCore, channel: DtxChannel, commit: bool) -> None:
        one, other = (channel.prepared(xid("g", name), "out", b"1") for name in "12")
        heuristically(core, one, not commit)
        heuristically(core, other, commit)
        assert channel.decide("g", commit) == MIXED
        assert channel.globally("g")[0] == (1 if commit else 2)

    @pytest.mark.parametrize("verb", [dtx.Commit(X), dtx.Commit(X, True), dtx.Rollback(X)])
    @pytest.mark.parametrize("commit", [True, False])
    def test_coordinator_told_ok_for_heuristic(
        self, core: ServedByCore, channel: DtxChannel, commit: bool, verb: Any
    ) -> None:
        """The operator's decision is on its way when the coordinator's comes: it is told that, and forgets."""
        channel.prepared(X, "out", b"1")
        core.hold()
        operator: list[str | None] = []
        core.call(lambda: core.broker.operations.branches.decide_heuristically(Xid(*X), commit, operator.append))
        channel.send(verb)
        core.wait_for(lambda: len(core.broker.branches.find(Xid(*X)).waiting) == 2)
        assert not operator, "not before it has passed the commit point"
        core.release()
        assert channel.answer().status == (HEURISTICALLY_COMMITTED if commit else HEURISTICALLY_ROLLED_BACK)
        assert operator == [None] and channel.recover() == [X]
        channel.forget(X)
        assert channel.recover() == [] and channel.outcome(X) == BranchOutcome.UNKNOWN

    @pytest.mark.parametrize("commit", [True, False])
    def test_an_operator_joins_the_coordinator(self, core: ServedByCore, channel: DtxChannel, commit: bool) -> None:
        """What the coordinator decided first is no heuristic decision; the other one is refused."""
        channel.prepared(X, "out", b"1")
        core.hold()
        channel.send(dtx.Commit(X) if commit else dtx.Rollback(X))
        core.wait_for(lambda: core.broker.branches.find(Xid(*X)).state == "deciding")
        told: list[str | None] = []
        decide = core.broker.operations.branches.decide_heuristically
        core.call(lambda: decide(Xid(*X), commit, told.append))
        with pytest.raises(AmqpError, match="is being"):
            core.call(lambda: decide(Xid(*X), not commit, told.append))
        core.release()
        assert channel.answer().status == OK and told == [None]
        assert channel.outcome(X) == (BranchOutcome.COMMITTED if commit else BranchOutcome.ROLLED_BACK)
        assert channel.recover() == []

    def test_the_same_decision_is_no_news(self, core: ServedByCore, channel: DtxChannel) -> None:
        channel.prepared(X, "out", b"1")
        heuristically(core, X, True)
        assert channel.decide("x", True) == OK


class TestOutcome:
    def test_each(self, core: ServedByCore, channel: DtxChannel) -> None:
        assert channel.outcome(X) == BranchOutcome.UNKNOWN
        channel.start(X)
        assert channel.outcome(X) == BranchOutcome.ACTIVE
        channel.publish("out", b"1")
        channel.end(X)
        channel.prepare(X)
        assert channel.outcome(X) == BranchOutcome.PREPARED
        channel.commit(X)
        assert channel.outcome(X) == BranchOutcome.COMMITTED
        channel.start(Y)
        channel.end(Y, fail=True)
        assert channel.outcome(Y) == BranchOutcome.ROLLED_BACK

    def test_of_one_phase(self, channel: DtxChannel) -> None:
        channel.publish_in(X, "out", b"1")
        channel.commit(X, one_phase=True)
        assert channel.another().outcome(X) == BranchOutcome.COMMITTED

    def test_what_is_on_its_way_is_pending(self, core: ServedByCore, channel: DtxChannel) -> None:
        other = channel.another()
        channel.prepared(X, "out", b"1")
        channel.publish_in(Y, "out", b"1")
        core.hold()
        channel.send(dtx.Commit(X))
        core.wait_for(lambda: core.broker.branches.find(Xid(*X)).state == "deciding")
        assert other.outcome(X) == BranchOutcome.PENDING and other.recover() == [X]
        with pytest.raises(Refused, match="being committed"):
            other.rollback(X)
        core.release()
        assert channel.answer().status == OK
        assert channel.outcome(X) == BranchOutcome.COMMITTED

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
        assert channel.outcome_of(b"first") == BranchOutcome.ACTIVE
        plain.ask(Tx.Commit())
        assert plain.outcome_of(b"first") == BranchOutcome.COMMITTED
        plain.ask(dtx.Token(b"second"))
        plain.publish("out", b"2")
        plain.ask(Channel.Close(200, "", 0, 0))
        assert channel.outcome_of(b"second") != BranchOutcome.COMMITTED
        assert channel.drain("out") == [b"1"]

    def test_a_token_is_active_before_the_first_event(self, channel: DtxChannel) -> None:
        """A client that lost the answer would else be told that nothing happened, and then the commit arrives."""
        plain = channel.another().beside(select=False)
        plain.ask(Tx.Select())
        got = plain.get("in")
        assert got is not None
        plain.send(Basic.Ack(got[0]))  # which becomes an event at the commit
        plain.ask(dtx.Token(b"t"))
        assert channel.outcome_of(b"t") == BranchOutcome.ACTIVE
        plain.ask(Tx.Commit())
        assert channel.outcome_of(b"t") == BranchOutcome.COMMITTED

    def test_what_was_begun_behind_all_that_is_forgotten_has_not_expired(
        self, core: ServedByCore, channel: DtxChannel
    ) -> None:
        """Else no client could be told that nothing of a transaction has arrived, once one outcome is forgotten."""
        core.call(lambda: core.node.core.replica.contents.table.outcomes.keep(1, 3600))
        plain = channel.another().beside(select=False)
        plain.ask(Tx.Select())
        since = {}
        for token in (b"forgotten", b"last", b"rolled back"):
            since[token] = plain.ask(dtx.Token(token)).since
            if token != b"rolled back":
                plain.publish("out", b"1")
            plain.ask(Tx.Rollback() if token == b"rolled back" else Tx.Commit())
        asked = [
            channel.ask(dtx.Outcome(1, XidFields(0, token, b""), at)).outcome
            for token in since
            for at in (since[token], 0)
        ]
        assert asked == [BranchOutcome.EXPIRED] * 2 + [BranchOutcome.COMMITTED] * 2 + [
            BranchOutcome.UNKNOWN,
            BranchOutcome.EXPIRED,
        ]

    def test_the_same_of_a_branch(self, core: ServedByCore, channel: DtxChannel) -> None:
        core.call(lambda: core.node.core.replica.contents.table.outcomes.keep(1, 3600))
        for name in "ab":
            channel.publish_in(xid(name), "out", b"1")
            channel.commit(xid(name), one_phase=True)
        since = channel.ask(dtx.Start(X)).since
        channel.end(X)
        channel.rollback(X)
        assert channel.outcome(X) == BranchOutcome.EXPIRED
        assert channel.ask(dtx.Outcome(0, X, since)).outcome == BranchOutcome.UNKNOWN
        assert channel.ask(dtx.Outcome(0, xid("a"), since - 9)).outcome == BranchOutcome.EXPIRED

    def test_a_token_that_is_in_use(self, channel: DtxChannel) -> None:
        first, second = (channel.another().beside(select=False) for _ in range(2))
        for plain in (first, second):
            plain.ask(Tx.Select())
        first.ask(dtx.Token(b"t"))
        with pytest.raises(Refused) as error:
            second.ask(dtx.Token(b"t"))
        assert error.value.code == 530
