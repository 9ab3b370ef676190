"""What the tester takes for a broken promise, and what not."""

from __future__ import annotations

import pytest

from tests.coordinator_model.run import Run
from tests.coordinator_model.truth import (
    COMMITTED,
    NOTIFIED,
    PROTECTION,
    ROLLED_BACK,
    UNKNOWN,
    BrokenPromise,
    Effect,
    Truth,
)

BODY = b"a0"


def taken(told: str, protected: int, message: int | None = None) -> Truth:
    """One transaction took a message, and read; ``message``: how often the one is there that it has published."""
    truth = Truth()
    attempt = truth.begin("0.1")
    attempt.told = told
    attempt.consumed.append(BODY)
    attempt.effects.append(Effect(PROTECTION, lambda: protected))
    if message is not None:
        attempt.effects.append(Effect("message", lambda: message))
    return truth


def judge(truth: Truth, left: int) -> None:
    truth.judge()
    truth.judge_inputs(lambda body: left, [BODY])


def test_a_reader_that_ended_before_the_decision_has_taken_nothing() -> None:
    """The database had only read, and has committed that; the coordinator is killed as it writes the decision, and a
    recovery run rolls the broker's branch back: the message is in its queue, and no client has taken it.
    """
    assert Run(2459).run().broken == ""
    judge(taken(UNKNOWN, protected=1, message=0), left=1)
    judge(taken(ROLLED_BACK, protected=1, message=0), left=1)
    judge(taken(ROLLED_BACK, protected=1), left=1)


@pytest.mark.parametrize(
    ("truth", "left", "promise"),
    [
        (taken(UNKNOWN, protected=1, message=1), 1, "once"),
        (taken(UNKNOWN, protected=1, message=0), 0, "once"),
        (taken(COMMITTED, protected=1, message=1), 1, "once"),
        (taken(COMMITTED, protected=1), 1, "once"),
        (taken(ROLLED_BACK, protected=1), 0, "once"),
        (taken(COMMITTED, protected=0), 0, "told what happened"),
        (taken(COMMITTED, protected=0, message=1), 0, "both or neither"),
        (taken(ROLLED_BACK, protected=1, message=1), 0, "told what happened"),
    ],
)
def test_what_was_taken_twice_or_by_nobody_is_seen(truth: Truth, left: int, promise: str) -> None:
    with pytest.raises(BrokenPromise) as raised:
        judge(truth, left)
    assert raised.value.promise == promise


def notified(told: str, row: int, notification: int, lazy: bool, message: int | None = None) -> Truth:
    """One transaction wrote a row and notified, and perhaps published."""
    truth = Truth()
    attempt = truth.begin("0.1")
    attempt.told, attempt.lazy = told, lazy
    for what, count in (("row", row), (NOTIFIED, notification), ("message", message)):
        if count is not None:
            attempt.effects.append(Effect(what, lambda count=count: count))  # type: ignore[misc]
    return truth


def test_a_lazy_commit_of_a_database_alone_may_be_lost_behind_its_notification() -> None:
    """``synchronous_commit`` is off, and the database crashes when listeners have been told. No broker took part."""
    for seed in (11113, 15425):
        assert Run(seed).run().broken == ""
    for told in (COMMITTED, UNKNOWN):
        notified(told, row=0, notification=1, lazy=True).judge()


@pytest.mark.parametrize(
    "truth",
    [
        notified(COMMITTED, row=0, notification=1, lazy=False),
        notified(COMMITTED, row=1, notification=0, lazy=True),
        notified(COMMITTED, row=0, notification=1, lazy=True, message=1),
        notified(COMMITTED, row=0, notification=1, lazy=True, message=0),
        notified(ROLLED_BACK, row=0, notification=1, lazy=True),
    ],
)
def test_what_is_halved_in_any_other_way_is_seen(truth: Truth) -> None:
    with pytest.raises(BrokenPromise):
        truth.judge()
