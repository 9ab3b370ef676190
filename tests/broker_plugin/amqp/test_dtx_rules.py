"""AMQP 0-10's rules for class dtx, each through a real connection: the channel ends with the code, and only that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pamqp.commands import Basic, Channel, Confirm, Tx

from broker_plugin.amqp.protocol import handshake
from python_tests.harness.waiting import wait_until
from tests.broker_plugin.amqp.conftest import ServedByCore
from tests.broker_plugin.amqp.dtx_client import DtxChannel, xid
from tests.broker_plugin.amqp.plain_channel import Refused
from txobserver import dtx_wire as dtx
from txobserver.dtx_wire import XidFields
from txobserver.outcomes import BranchOutcome
from txobserver.xid import Xid

X, Y = xid("x"), xid("y")
OK, ROLLED_BACK, TIMED_OUT, READ_ONLY = 0, 1, 2, 7
UNSELECTED = (dtx.Select, dtx.Outcome, dtx.Token)
SELECTED = [method for method in dtx.METHODS.values() if method.synchronous and method not in UNSELECTED]
BAD = [(1, b"", b"b"), (1, b"g" * 65, b""), (1, b"g", b"b" * 65), (1 << 31, b"g", b"")]


def refused(code: int, ask: Callable[[], Any]) -> str:
    """The text of a channel close with this code, which names the method that was asked."""
    with pytest.raises(Refused) as error:
        ask()
    assert error.value.code == code, error.value.text
    assert error.value.method[0] == dtx.CLASS and error.value.method[1]
    return error.value.text


class TestModes:
    @pytest.mark.parametrize("method", SELECTED, ids=lambda method: method.__name__)
    def test_not_selected(self, channel: DtxChannel, method: type[dtx.DtxMethod]) -> None:
        assert "not selected" in refused(503, lambda: channel.beside(select=False).ask(method()))

    def test_selected_twice_is_no_error(self, channel: DtxChannel) -> None:
        assert isinstance(channel.ask(dtx.Select()), dtx.SelectOk)

    @pytest.mark.parametrize("first", [Tx.Select(), Confirm.Select()], ids=["tx", "confirm"])
    def test_one_mode_excludes_the_others(self, channel: DtxChannel, first: Any) -> None:
        with pytest.raises(Refused, match="from dtx to"):
            channel.ask(first)
        other = channel.another()
        plain = other.beside(select=False)
        plain.ask(first)
        with pytest.raises(Refused, match="to dtx mode"):
            plain.ask(dtx.Select())

    def test_the_server_says_that_it_can(self) -> None:
        assert handshake.start().server_properties["capabilities"]["dtx"] is True


class TestStart:
    def test_join_and_resume(self, channel: DtxChannel) -> None:
        channel.start(X)
        channel.end(X, suspend=True)
        assert "exclude each other" in refused(503, lambda: channel.start(X, join=True, resume=True))

    def test_a_known_branch_without_join(self, channel: DtxChannel) -> None:
        channel.start(X)
        refused(530, lambda: channel.another().start(X))
        refused(530, lambda: channel.start(X))

    def test_an_idle_or_prepared_branch_without_join(self, channel: DtxChannel) -> None:
        channel.publish_in(X, "out")
        refused(530, lambda: channel.another().start(X))
        channel.prepared(Y, "out", b"1")
        refused(530, lambda: channel.another().start(Y))

    def test_a_branch_that_is_remembered(self, channel: DtxChannel) -> None:
        channel.prepared(X, "out", b"1")
        assert channel.commit(X) == OK
        refused(530, lambda: channel.start(X))

    def test_a_rollback_only_branch_without_join(self, channel: DtxChannel) -> None:
        channel.start(X)
        channel.end(X, fail=True)
        refused(530, lambda: channel.start(X))

    def test_a_branch_that_was_rolled_back_may_begin_again(self, channel: DtxChannel) -> None:
        channel.publish_in(X, "out", b"1")
        assert channel.rollback(X) == OK
        assert channel.start(X) == OK

    def test_join_of_an_unknown_branch(self, channel: DtxChannel) -> None:
        refused(404, lambda: channel.start(X, join=True))

    def test_join_of_a_prepared_branch(self, channel: DtxChannel) -> None:
        channel.prepared(X, "out", b"1")
        refused(409, lambda: channel.start(X, join=True))

    def test_join_of_the_channel_s_own_branch(self, channel: DtxChannel) -> None:
        channel.start(X)
        refused(503, lambda: channel.start(X, join=True))

    def test_join_of_what_the_channel_has_suspended(self, channel: DtxChannel) -> None:
        channel.start(X)
        channel.end(X, suspend=True)
        refused(503, lambda: channel.start(X, join=True))

    def test_one_branch_at_a_time(self, channel: DtxChannel) -> None:
        channel.publish_in(Y, "out")
        for join in (False, True):
            channel.ask(dtx.Select())
            channel.start(xid(f"z{join}"))
            refused(503, lambda join=join: channel.start(Y if join else X, join=join))

    def test_resume_while_at_work(self, channel: DtxChannel) -> None:
        channel.start(X)
        channel.end(X, suspend=True)
        channel.start(Y)
        refused(503, lambda: channel.start(X, resume=True))

    @pytest.mark.parametrize("how", ["unknown", "ended", "of another channel"])
    def test_resume_of_what_was_not_suspended(self, channel: DtxChannel, how: str) -> None:
        other = channel.another()
        if how == "ended":
            channel.publish_in(X, "out")
        elif how == "of another channel":
            other.start(X)
            other.end(X, suspend=True)
        refused(503, lambda: channel.start(X, resume=True))


class TestEnd:
    def test_suspend_and_fail(self, channel: DtxChannel) -> None:
        channel.start(X)
        assert "exclude each other" in refused(503, lambda: channel.end(X, fail=True, suspend=True))

    def test_unknown(self, channel: DtxChannel) -> None:
        refused(404, lambda: channel.end(X))

    def test_of_a_branch_that_the_channel_does_not_work_on(self, channel: DtxChannel) -> None:
        channel.start(X)
        refused(409, lambda: channel.another().end(X))

    def test_suspended_twice(self, channel: DtxChannel) -> None:
        channel.start(X)
        channel.end(X, suspend=True)
        refused(409, lambda: channel.end(X, suspend=True))

    def test_what_is_suspended_can_be_ended(self, channel: DtxChannel) -> None:
        channel.start(X)
        channel.publish("out", b"1")
        channel.end(X, suspend=True)
        assert channel.end(X) == OK
        assert channel.commit(X, one_phase=True) == OK
        assert channel.drain("out") == [b"1"]


def asked(channel: DtxChannel) -> list[Callable[[XidFields], int]]:
    return [channel.prepare, channel.commit, lambda x: channel.commit(x, one_phase=True), channel.rollback]


ENDINGS = range(4)


class TestEndings:
    @pytest.mark.parametrize("which", ENDINGS)
    @pytest.mark.parametrize("how", ["at work", "suspended", "one of two ended"])
    def test_before_end(self, channel: DtxChannel, which: int, how: str) -> None:
        other = channel.another()
        other.start(X)
        if how == "suspended":
            other.end(X, suspend=True)
        elif how == "one of two ended":
            channel.start(X, join=True)
            channel.end(X)
        assert "end it first" in refused(409, lambda: asked(channel)[which](X))

    @pytest.mark.parametrize("which", ENDINGS)
    def test_unknown(self, channel: DtxChannel, which: int) -> None:
        refused(404, lambda: asked(channel)[which](X))

    def test_the_others_of_an_unknown_branch(self, channel: DtxChannel) -> None:
        for method in (dtx.Forget(X), dtx.GetTimeout(X), dtx.SetTimeout(X, 1), dtx.ForgetGlobal(1, b"x")):
            refused(404, lambda method=method: channel.another().ask(method))

    def test_one_phase_of_a_prepared_branch(self, channel: DtxChannel) -> None:
        channel.prepared(X, "out", b"1")
        refused(409, lambda: channel.commit(X, one_phase=True))
        assert channel.another().commit(X) == OK

    def test_two_phases_of_an_unprepared_branch(self, channel: DtxChannel) -> None:
        channel.publish_in(X, "out", b"1")
        refused(409, lambda: channel.commit(X))
        assert channel.another().commit(X, one_phase=True) == OK

    def test_prepared_twice(self, channel: DtxChannel) -> None:
        channel.prepared(X, "out", b"1")
        refused(409, lambda: channel.prepare(X))
        assert channel.another().recover() == [X]

    def test_forget_of_what_has_not_ended(self, channel: DtxChannel) -> None:
        channel.publish_in(X, "out", b"1")
        refused(409, lambda: channel.another().forget(X))
        channel.prepare(X)
        refused(409, lambda: channel.another().forget(X))

    def test_committed_twice(self, channel: DtxChannel) -> None:
        channel.prepared(X, "out", b"1")
        assert channel.commit(X) == OK
        assert "committed" in refused(404, lambda: channel.commit(X))


class TestRollbackOnly:
    @pytest.mark.parametrize("which", [0, 2, 3])
    def test_after_a_failed_end(self, channel: DtxChannel, which: int) -> None:
        channel.start(X)
        channel.publish("out", b"1")
        assert channel.end(X, fail=True) == ROLLED_BACK
        assert channel.start(X, join=True) == ROLLED_BACK
        assert asked(channel)[which](X) == ROLLED_BACK
        refused(404, lambda: asked(channel)[which](X))
        other = channel.another()
        assert other.drain("out") == [] and other.start(X) == OK

    def test_not_in_two_phases(self, channel: DtxChannel) -> None:
        channel.start(X)
        channel.end(X, fail=True)
        refused(409, lambda: channel.commit(X))

    def test_for_everybody_who_works_on_it(self, channel: DtxChannel) -> None:
        other = channel.another()
        channel.start(X)
        other.start(X, join=True)
        other.publish("out", b"1")
        assert channel.end(X, fail=True) == ROLLED_BACK
        other.publish("out", b"2")
        assert other.end(X) == ROLLED_BACK
        assert channel.prepare(X) == ROLLED_BACK
        assert channel.drain("out") == []

    @pytest.mark.parametrize("suspended", [False, True])
    @pytest.mark.parametrize("how", ["channel", "connection", "error"])
    def test_closing_the_session(self, core: ServedByCore, channel: DtxChannel, how: str, suspended: bool) -> None:
        other = channel.another()
        other.start(X)
        other.publish("out", b"1")
        if suspended:
            other.end(X, suspend=True)
        if how == "channel":
            other.ask(Channel.Close(200, "", 0, 0))
        elif how == "connection":
            other.client.close()
            core.wait_for(lambda: core.server.connections == 1)
        else:
            with pytest.raises(Refused):
                other.ask(Basic.Get(0, "no such queue"))
        assert channel.prepare(X) == ROLLED_BACK
        assert channel.drain("out") == []

    def test_not_when_the_session_had_ended_it(self, channel: DtxChannel) -> None:
        other = channel.another()
        other.publish_in(X, "out", b"1")
        other.client.close()
        assert channel.prepare(X) == OK and channel.commit(X) == OK
        assert channel.drain("out") == [b"1"]


class TestArguments:
    @pytest.mark.parametrize("bad", BAD)
    def test_an_xid_that_cannot_be(self, channel: DtxChannel, bad: tuple[int, bytes, bytes]) -> None:
        refused(542, lambda: channel.start(XidFields(*bad)))

    def test_a_kind_of_name_that_there_is_not(self, channel: DtxChannel) -> None:
        refused(542, lambda: channel.ask(dtx.Outcome(2, X)))

    @pytest.mark.parametrize("token", [b"", b"t" * 65])
    def test_a_token_that_cannot_be(self, channel: DtxChannel, token: bytes) -> None:
        plain = channel.beside(select=False)
        plain.ask(Tx.Select())
        refused(542, lambda: plain.ask(dtx.Token(token)))

    @pytest.mark.parametrize("token", [b"", b"t" * 65])
    def test_the_outcome_of_a_token_that_cannot_be(self, channel: DtxChannel, token: bytes) -> None:
        """A token that a client had cut or lengthened was told to have committed nothing."""
        refused(542, lambda: channel.ask(dtx.Outcome(dtx.BY_TOKEN, XidFields(0, token, b""))))

    def test_a_token_on_a_channel_without_tx(self, channel: DtxChannel) -> None:
        refused(406, lambda: channel.ask(dtx.Token(b"t")))


class TestTimeouts:
    def test_over_the_limit(self, channel: DtxChannel) -> None:
        channel.start(X)
        assert isinstance(channel.ask(dtx.SetTimeout(X, 3600)), dtx.SetTimeoutOk)
        refused(542, lambda: channel.ask(dtx.SetTimeout(X, 3601)))

    def test_what_was_set_is_told(self, channel: DtxChannel) -> None:
        channel.start(X)
        assert channel.ask(dtx.GetTimeout(X)).timeout == 60
        channel.ask(dtx.SetTimeout(X, 7))
        assert channel.ask(dtx.GetTimeout(X)).timeout == 7
        channel.ask(dtx.SetTimeout(X, 0))
        assert channel.ask(dtx.GetTimeout(X)).timeout == 0

    def test_each_answer_says_so(self, core: ServedByCore, channel: DtxChannel) -> None:
        suspended, one, another, third = xid("s"), xid("1"), xid("2"), xid("3")
        channel.start(suspended)
        channel.end(suspended, suspend=True)
        for which in (one, another, third):
            channel.publish_in(which, "out", b"1")
        channel.start(X)
        core.pass_time(60)
        assert channel.end(X) == TIMED_OUT
        assert channel.start(suspended, resume=True) == TIMED_OUT
        assert channel.start(X, join=True) == TIMED_OUT
        assert channel.prepare(one) == TIMED_OUT
        assert channel.commit(another, one_phase=True) == TIMED_OUT
        assert channel.rollback(third) == TIMED_OUT
        assert channel.drain("out") == []

    def test_never_early_and_never_for_what_has_none(self, core: ServedByCore, channel: DtxChannel) -> None:
        channel.publish_in(X, "out")
        channel.publish_in(Y, "out")
        channel.ask(dtx.SetTimeout(Y, 0))
        core.pass_time(59)
        assert channel.prepare(X) == READ_ONLY
        core.pass_time(10_000)
        assert channel.prepare(Y) == READ_ONLY

    def test_a_prepared_branch_is_never_touched(self, core: ServedByCore, channel: DtxChannel) -> None:
        channel.start(X)
        channel.publish("out", b"1")
        channel.ask(dtx.SetTimeout(X, 1))
        channel.end(X)
        channel.prepare(X)
        assert channel.ask(dtx.GetTimeout(X)).timeout == 0
        core.pass_time(10_000)
        refused(409, lambda: channel.another().ask(dtx.SetTimeout(X, 1)))
        assert channel.commit(X) == OK
        assert channel.drain("out") == [b"1"]

    def test_the_server_looks_at_its_clock(self, channel: DtxChannel) -> None:
        channel.publish_in(X, "out")
        channel.ask(dtx.SetTimeout(X, 1))
        wait_until(lambda: channel.outcome(X) == BranchOutcome.ROLLED_BACK, 20, "the end of the branch")
        assert channel.prepare(X) == TIMED_OUT

    def test_a_prepare_on_its_way_is_not_touched(self, core: ServedByCore, channel: DtxChannel) -> None:
        channel.publish_in(X, "out", b"1")
        core.hold()
        channel.send(dtx.Prepare(X))
        core.wait_for(lambda: core.broker.branches.find(Xid(*X)).state == "preparing")
        core.pass_time(10_000)
        core.release()
        assert channel.answer().status == OK and channel.commit(X) == OK
        assert channel.drain("out") == [b"1"]

    def test_what_nobody_asks_for_is_forgotten_in_the_end(self, core: ServedByCore, channel: DtxChannel) -> None:
        channel.publish_in(X, "out")
        core.pass_time(60)
        core.pass_time(3600)
        refused(404, lambda: channel.prepare(X))
