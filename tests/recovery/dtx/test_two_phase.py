"""PEP 249's two-phase methods, and above all: every answer that may follow a lost one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from recovery.dtx.arguments import make_xid
from recovery.dtx.conversation import Steps
from recovery.dtx.errors import (
    Conflict,
    HeuristicCommit,
    HeuristicMixed,
    HeuristicRollback,
    OperationalError,
    OutcomeUnknown,
    ProgrammingError,
    RolledBack,
    TimedOut,
    UnknownXid,
)
from recovery.dtx.others import OtherBranches
from recovery.dtx.two_phase import ACTIVE, IDLE, IN_DOUBT, PREPARED, READ_ONLY, ROLLED_BACK, TwoPhase
from tests.recovery.dtx.script import (
    ASKED,
    COMMIT,
    END,
    FIELDS,
    LOST,
    OK,
    ONE_PHASE,
    OURS,
    PREPARE,
    ROLLBACK,
    START,
    Answer,
    X,
    play,
    refused,
)
from txobserver import dtx_wire as dtx
from txobserver.outcomes import BranchOutcome, XaStatus
from txobserver.xid import Xid

HEURISTICS = [
    (BranchOutcome.HEURISTICALLY_COMMITTED, HeuristicCommit),
    (BranchOutcome.HEURISTICALLY_ROLLED_BACK, HeuristicRollback),
    (BranchOutcome.MIXED, HeuristicMixed),
]
NOT_THERE = [BranchOutcome.UNKNOWN, BranchOutcome.EXPIRED]


@pytest.fixture
def branch() -> TwoPhase:
    """With a branch begun, and all the patience in the world."""
    found = TwoPhase(60)
    play(found.begin(X), (START, OK))
    assert found.state == ACTIVE and found.xid == X
    return found


@pytest.fixture
def hasty() -> TwoPhase:
    """The same without any patience."""
    found = TwoPhase(0)
    play(found.begin(X), (START, OK))
    return found


@pytest.fixture
def prepared(branch: TwoPhase) -> TwoPhase:
    assert play(branch.prepare(), (END, OK), (PREPARE, OK))
    assert branch.state == PREPARED
    return branch


class TestBegin:
    def test_with_a_timeout(self) -> None:
        branch = TwoPhase(60)
        play(branch.begin(X, 5), (START, OK), (dtx.SetTimeout(FIELDS, 5), dtx.SetTimeoutOk()))

    def test_a_timeout_over_the_limit_leaves_nothing_behind(self) -> None:
        branch = TwoPhase(60)
        with pytest.raises(ProgrammingError) as error:
            play(branch.begin(X, 9999), (START, OK), (dtx.SetTimeout(FIELDS, 9999), refused(542)), (ROLLBACK, OK))
        assert error.value.code == 542 and branch.state == IDLE and branch.xid is None

    def test_an_xid_in_use(self) -> None:
        branch = TwoPhase(60)
        with pytest.raises(ProgrammingError, match="530 known"):
            play(branch.begin(X), (START, refused(530, "known")))
        assert branch.state == IDLE

    @pytest.mark.parametrize("outcome", NOT_THERE)
    def test_on_a_connection_that_was_lost_long_ago(self, outcome: BranchOutcome) -> None:
        branch = TwoPhase(60)
        play(branch.begin(X), (START, LOST), (ASKED, outcome), (START, OK))
        assert branch.state == ACTIVE

    @pytest.mark.parametrize("outcome", [BranchOutcome.ACTIVE, BranchOutcome.ROLLED_BACK])
    def test_whose_answer_was_lost(self, outcome: BranchOutcome) -> None:
        """It belongs to a channel that is gone: no client can work on it."""
        branch = TwoPhase(60)
        with pytest.raises(OperationalError, match="cannot go on"):
            play(branch.begin(X), (START, LOST), (ASKED, outcome))
        assert branch.state == IDLE

    def test_one_at_a_time(self, branch: TwoPhase) -> None:
        with pytest.raises(ProgrammingError, match="has not ended"):
            play(branch.begin(X))

    @pytest.mark.parametrize(
        "parts", [(-1, "g", ""), (1 << 31, "g", ""), (1, "", ""), (1, "g" * 65, ""), (1, "g", "b" * 65)]
    )
    def test_what_is_no_xid(self, parts: tuple[int, str, str]) -> None:
        with pytest.raises(ProgrammingError):
            make_xid(*parts)

    def test_an_xid(self) -> None:
        assert make_xid(1, "gr\xfc\xdfe", b"\xff") == Xid(1, "gr\xfc\xdfe".encode(), b"\xff")


class TestPrepare:
    def test_nothing_to_prepare(self, branch: TwoPhase) -> None:
        assert not play(branch.prepare(), (END, OK), (PREPARE, XaStatus.READ_ONLY))
        assert branch.state == READ_ONLY
        play(branch.commit())
        assert branch.state == IDLE

    @pytest.mark.parametrize(("status", "error"), [(XaStatus.ROLLED_BACK, RolledBack), (XaStatus.TIMED_OUT, TimedOut)])
    def test_refused(self, branch: TwoPhase, status: XaStatus, error: type[RolledBack]) -> None:
        with pytest.raises(error):
            play(branch.prepare(), (END, OK), (PREPARE, status))
        assert branch.state == ROLLED_BACK
        with pytest.raises(ProgrammingError, match="nothing to commit"):
            play(branch.commit())
        play(branch.rollback())
        assert branch.state == IDLE

    def test_work_that_was_refused(self, branch: TwoPhase) -> None:
        """A publish to no exchange, say, has closed the channel; the branch is told off and its name free."""
        with pytest.raises(RolledBack, match="404 no exchange"):
            play(branch.prepare(), (END, refused(404, "no exchange")), (ROLLBACK, XaStatus.ROLLED_BACK))
        assert branch.state == ROLLED_BACK

    @pytest.mark.parametrize("outcome", [BranchOutcome.PREPARED, BranchOutcome.COMMITTED, *(o for o, _ in HEURISTICS)])
    def test_lost_and_done(self, branch: TwoPhase, outcome: BranchOutcome) -> None:
        assert play(branch.prepare(), (END, OK), (PREPARE, LOST), (OURS, outcome))
        assert branch.state == PREPARED

    @pytest.mark.parametrize("outcome", NOT_THERE)
    def test_lost_and_gone(self, branch: TwoPhase, outcome: BranchOutcome) -> None:
        with pytest.raises(RolledBack):
            play(branch.prepare(), (END, OK), (PREPARE, LOST), (OURS, outcome))
        assert branch.state == ROLLED_BACK

    def test_lost_before_it_arrived(self, branch: TwoPhase) -> None:
        assert play(branch.prepare(), (END, OK), (PREPARE, LOST), (OURS, BranchOutcome.ACTIVE), (PREPARE, OK))

    def test_end_lost(self, branch: TwoPhase) -> None:
        """The channel went while it worked on the branch, so it is rollback-only, and says so."""
        with pytest.raises(RolledBack):
            play(branch.prepare(), (END, LOST), (OURS, BranchOutcome.ROLLED_BACK), (PREPARE, XaStatus.ROLLED_BACK))

    def test_lost_again_and_again(self, branch: TwoPhase) -> None:
        play(
            branch.prepare(),
            *((END, OK), (PREPARE, LOST), (OURS, LOST), (OURS, BranchOutcome.PENDING), (OURS, BranchOutcome.ACTIVE)),
            *((PREPARE, LOST), (OURS, BranchOutcome.PREPARED)),
        )
        assert branch.state == PREPARED

    def test_the_earlier_connection_seems_to_work_on_it(self, branch: TwoPhase) -> None:
        with pytest.raises(RolledBack):
            play(
                branch.prepare(),
                *((END, LOST), (OURS, BranchOutcome.ACTIVE), (PREPARE, refused(409))),
                *((OURS, BranchOutcome.ROLLED_BACK), (PREPARE, XaStatus.ROLLED_BACK)),
            )

    def test_it_ends_between_question_and_request(self, branch: TwoPhase) -> None:
        with pytest.raises(RolledBack):
            play(
                branch.prepare(),
                *((END, OK), (PREPARE, LOST), (OURS, BranchOutcome.ROLLED_BACK), (PREPARE, refused(404))),
            )

    @pytest.mark.parametrize("outcome", [BranchOutcome.PENDING, LOST])
    def test_nobody_knows(self, hasty: TwoPhase, outcome: Answer) -> None:
        with pytest.raises(OutcomeUnknown) as error:
            play(hasty.prepare(), (END, OK), (PREPARE, LOST), (OURS, outcome))
        assert error.value.outcome == (outcome if isinstance(outcome, BranchOutcome) else None)
        assert hasty.state == IN_DOUBT
        play(hasty.rollback(), (OURS, BranchOutcome.PREPARED), (ROLLBACK, OK))
        assert hasty.state == IDLE

    def test_nobody_is_there(self, hasty: TwoPhase) -> None:
        with pytest.raises(OutcomeUnknown, match="no answer"):
            play(hasty.prepare(), (END, OK), (PREPARE, LOST), connected=False)


class TestCommit:
    def test_in_two_phases(self, prepared: TwoPhase) -> None:
        play(prepared.commit(), (COMMIT, OK))
        assert prepared.state == IDLE and prepared.xid is None

    def test_lost_and_done(self, prepared: TwoPhase) -> None:
        play(prepared.commit(), (COMMIT, LOST), (OURS, BranchOutcome.PENDING), (OURS, BranchOutcome.COMMITTED))
        assert prepared.state == IDLE

    def test_lost_before_it_arrived(self, prepared: TwoPhase) -> None:
        play(prepared.commit(), (COMMIT, LOST), (OURS, BranchOutcome.PREPARED), (COMMIT, OK))

    @pytest.mark.parametrize("outcome", NOT_THERE)
    def test_lost_and_gone(self, prepared: TwoPhase, outcome: BranchOutcome) -> None:
        with pytest.raises(OutcomeUnknown) as error:
            play(prepared.commit(), (COMMIT, LOST), (OURS, outcome))
        assert error.value.outcome is outcome and prepared.state == IDLE

    def test_nobody_knows(self, hasty: TwoPhase) -> None:
        play(hasty.prepare(), (END, OK), (PREPARE, OK))
        with pytest.raises(OutcomeUnknown):
            play(hasty.commit(), (COMMIT, LOST), (OURS, BranchOutcome.PENDING))
        assert hasty.state == IDLE

    @pytest.mark.parametrize(("outcome", "error"), HEURISTICS)
    @pytest.mark.parametrize("lost", [True, False])
    def test_an_operator_was_faster(
        self, prepared: TwoPhase, outcome: BranchOutcome, error: type[OperationalError], lost: bool
    ) -> None:
        script: list[tuple[dtx.DtxMethod, Answer]] = [(COMMIT, XaStatus(outcome))]
        if lost:
            script = [(COMMIT, LOST), (OURS, outcome)]
        with pytest.raises(error):
            play(prepared.commit(), *script)
        assert prepared.state == IDLE

    def test_another_coordinator_was_faster(self, prepared: TwoPhase) -> None:
        play(prepared.commit(), (COMMIT, refused(404)), (OURS, BranchOutcome.COMMITTED))

    def test_another_coordinator_has_rolled_it_back(self, prepared: TwoPhase) -> None:
        with pytest.raises(RolledBack):
            play(prepared.commit(), (COMMIT, refused(404)), (OURS, BranchOutcome.ROLLED_BACK))
        assert prepared.state == ROLLED_BACK

    def test_another_coordinator_rolls_it_back(self, prepared: TwoPhase) -> None:
        with pytest.raises(Conflict):
            play(prepared.commit(), (COMMIT, refused(409)))
        assert prepared.state == IDLE


class TestOnePhase:
    def test_done(self, branch: TwoPhase) -> None:
        play(branch.commit(), (END, OK), (ONE_PHASE, OK))
        assert branch.state == IDLE

    def test_refused(self, branch: TwoPhase) -> None:
        with pytest.raises(TimedOut):
            play(branch.commit(), (END, OK), (ONE_PHASE, XaStatus.TIMED_OUT))
        play(branch.rollback())
        assert branch.state == IDLE

    def test_lost_and_done(self, branch: TwoPhase) -> None:
        play(branch.commit(), (END, OK), (ONE_PHASE, LOST), (OURS, BranchOutcome.COMMITTED))

    def test_lost_before_it_arrived(self, branch: TwoPhase) -> None:
        play(branch.commit(), (END, OK), (ONE_PHASE, LOST), (OURS, BranchOutcome.ACTIVE), (ONE_PHASE, OK))

    def test_it_arrives_after_the_question(self, branch: TwoPhase) -> None:
        play(
            branch.commit(),
            *((END, OK), (ONE_PHASE, LOST), (OURS, BranchOutcome.ACTIVE), (ONE_PHASE, refused(404))),
            (OURS, BranchOutcome.COMMITTED),
        )

    def test_never_heard_of(self, branch: TwoPhase) -> None:
        with pytest.raises(RolledBack):
            play(branch.commit(), (END, OK), (ONE_PHASE, LOST), (OURS, BranchOutcome.UNKNOWN))

    def test_expired_is_not_rolled_back(self, branch: TwoPhase) -> None:
        with pytest.raises(OutcomeUnknown, match="not remembered"):
            play(branch.commit(), (END, OK), (ONE_PHASE, LOST), (OURS, BranchOutcome.EXPIRED))
        assert branch.state == IDLE


class TestRollback:
    def test_of_an_open_branch(self, branch: TwoPhase) -> None:
        play(branch.rollback(), (END, OK), (ROLLBACK, OK))
        assert branch.state == IDLE

    def test_of_one_that_timed_out(self, branch: TwoPhase) -> None:
        play(branch.rollback(), (END, XaStatus.TIMED_OUT), (ROLLBACK, XaStatus.TIMED_OUT))
        assert branch.state == IDLE

    @pytest.mark.parametrize("outcome", NOT_THERE)
    def test_lost_and_done(self, branch: TwoPhase, outcome: BranchOutcome) -> None:
        play(branch.rollback(), (END, LOST), (OURS, outcome))
        assert branch.state == IDLE

    def test_lost_before_it_arrived(self, prepared: TwoPhase) -> None:
        play(prepared.rollback(), (ROLLBACK, LOST), (OURS, BranchOutcome.PREPARED), (ROLLBACK, OK))
        assert prepared.state == IDLE

    @pytest.mark.parametrize("outcome", NOT_THERE)
    def test_of_a_prepared_one_lost_and_done(self, prepared: TwoPhase, outcome: BranchOutcome) -> None:
        play(prepared.rollback(), (ROLLBACK, LOST), (OURS, outcome))
        assert prepared.state == IDLE

    def test_somebody_has_committed_it(self, prepared: TwoPhase) -> None:
        with pytest.raises(Conflict, match="is committed"):
            play(prepared.rollback(), (ROLLBACK, refused(404)), (OURS, BranchOutcome.COMMITTED))
        assert prepared.state == IDLE

    @pytest.mark.parametrize(("outcome", "error"), HEURISTICS)
    def test_an_operator_was_faster(self, prepared: TwoPhase, outcome: BranchOutcome, error: type[Exception]) -> None:
        with pytest.raises(error):
            play(prepared.rollback(), (ROLLBACK, XaStatus(outcome)))


class TestBranchesOfOthers:
    def test_commit(self) -> None:
        play(TwoPhase(60).others.commit(X), (ASKED, BranchOutcome.PREPARED), (COMMIT, OK))

    def test_commit_of_what_is_committed(self) -> None:
        play(TwoPhase(60).others.commit(X), (ASKED, BranchOutcome.COMMITTED))

    def test_rollback(self) -> None:
        play(TwoPhase(60).others.rollback(X), (ASKED, BranchOutcome.PREPARED), (ROLLBACK, OK))

    def test_of_what_was_rolled_back(self) -> None:
        play(TwoPhase(60).others.rollback(X), (ASKED, BranchOutcome.ROLLED_BACK), (ROLLBACK, refused(404)))
        with pytest.raises(RolledBack):
            play(TwoPhase(60).others.commit(X), (ASKED, BranchOutcome.ROLLED_BACK))

    @pytest.mark.parametrize("outcome", NOT_THERE)
    @pytest.mark.parametrize("end", [OtherBranches.commit, OtherBranches.rollback])
    def test_unknown(self, end: Callable[[OtherBranches, Xid], Steps[None]], outcome: BranchOutcome) -> None:
        with pytest.raises(UnknownXid, match=outcome.name.lower()):
            play(end(TwoPhase(60).others, X), (ASKED, outcome))

    def test_somebody_works_on_it(self) -> None:
        with pytest.raises(Conflict):
            play(TwoPhase(60).others.rollback(X), (ASKED, BranchOutcome.ACTIVE), (ROLLBACK, refused(409)))
        with pytest.raises(Conflict, match="is active"):
            play(TwoPhase(60).others.commit(X), (ASKED, BranchOutcome.ACTIVE))

    @pytest.mark.parametrize(
        "question",
        [
            lambda branch: branch.others.commit(X),
            lambda branch: branch.others.rollback(X),
            lambda branch: branch.others.recover(),
            lambda branch: branch.others.outcome(X),
            lambda branch: branch.others.decide(X.globally, True),
            lambda branch: branch.others.look(X.globally),
            lambda branch: branch.others.forget(X),
        ],
    )
    def test_not_while_a_branch_is_at_hand(self, branch: TwoPhase, question: Callable[[TwoPhase], Steps[None]]) -> None:
        with pytest.raises(ProgrammingError, match="has not ended"):
            play(question(branch))

    @pytest.mark.parametrize("end", [TwoPhase.prepare, TwoPhase.commit, TwoPhase.rollback])
    def test_only_while_a_branch_is_at_hand(self, end: Callable[[TwoPhase], Steps[None]]) -> None:
        with pytest.raises(ProgrammingError, match="is idle"):
            play(end(TwoPhase(60)))


class TestQuestions:
    def test_pages_are_those_of_one_channel(self) -> None:
        """A page lost in the middle begins the list again."""
        names = [dtx.XidFields(1, b"%d" % number, b"") for number in range(3)]
        pages = [dtx.RecoverOk(dtx.pack_xids([name]), more=name != names[-1]) for name in names]
        first, more = dtx.Recover(), dtx.Recover(True)
        script = [(first, LOST), (first, pages[0]), (more, LOST), (first, pages[0]), (more, pages[1]), (more, pages[2])]
        assert play(TwoPhase(60).others.recover(), *script) == [Xid(*name) for name in names]

    def test_global(self) -> None:
        first, more = dtx.Global(1, b"x"), dtx.Global(1, b"x", True)
        page = dtx.pack_states([(FIELDS, BranchOutcome.PREPARED)])
        script = [(first, dtx.GlobalOk(4, page, True)), (more, dtx.GlobalOk(4, b"", False))]
        state = (BranchOutcome.PENDING, {X: BranchOutcome.PREPARED})
        assert play(TwoPhase(60).others.look(X.globally), *script) == state

    def test_decisions_are_asked_for_until_answered(self) -> None:
        request = dtx.Decide(1, b"x", True)
        play(TwoPhase(60).others.decide(X.globally, True), (request, LOST), (request, OK))
        with pytest.raises(HeuristicMixed):
            play(TwoPhase(60).others.decide(X.globally, True), (request, XaStatus.MIXED))
        with pytest.raises(Conflict):
            play(TwoPhase(60).others.decide(X.globally, True), (request, refused(409)))
        with pytest.raises(OperationalError, match="no host answers"):
            play(TwoPhase(0).others.decide(X.globally, True), (request, LOST), connected=False)

    def test_forgotten_by_a_request_whose_answer_was_lost(self) -> None:
        for name, request in ((X, dtx.Forget(FIELDS)), (X.globally, dtx.ForgetGlobal(1, b"x"))):
            play(TwoPhase(60).others.forget(name), (request, LOST), (request, refused(404)))
            with pytest.raises(UnknownXid):
                play(TwoPhase(60).others.forget(name), (request, refused(404)))
