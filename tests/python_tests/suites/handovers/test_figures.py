"""The figures of a handover, from records that are written by hand; and how clients read the last word."""

from __future__ import annotations

import pytest

from broker_plugin.embedded.errors import Forced
from python_tests.harness.history import FAILED, OK, ROLLED_BACK, UNKNOWN, History
from python_tests.harness.last_words import raised_not_done, told_not_done
from python_tests.suites.handovers.figures import HandedOver, handed_over, longest_pause, percentile, summary

NOT_DONE, DOUBTED = Forced("handing over to b", False), Forced("handing over to b", True)


@pytest.mark.parametrize(
    ("times", "pause"),
    [
        ([], 0.0),
        ([1.0], 0.0),
        ([0.0, 0.5, 0.6], 0.1),
        ([0.9, 1.4, 1.5], 0.5),
        ([0.5, 3.0], 2.5),
        ([1.1, 1.2, 2.9, 9.0], 1.7),
    ],
)
def test_the_longest_pause_around_a_hand_over(times: list[float], pause: float) -> None:
    """Between 0.55 and 2.5: a pause counts whole that begins before or ends behind."""
    assert longest_pause(times, 0.55, 2.5) == pytest.approx(pause)


def test_percentile() -> None:
    assert percentile([], 95) == 0.0 and percentile([3.0], 95) == 3.0
    assert percentile([float(each) for each in range(1, 21)], 95) == 19.0
    assert percentile([float(each) for each in range(1, 51)], 95) == 48.0


@pytest.mark.parametrize(
    ("sent", "not_done", "outcome"),
    [(True, True, FAILED), (True, False, UNKNOWN), (False, True, ROLLED_BACK), (False, False, ROLLED_BACK)],
)
def test_an_attempt_whose_connection_was_closed_with_that_word_has_failed(
    sent: bool, not_done: bool, outcome: str
) -> None:
    history = History()
    attempt = history.begin("c")
    history.publishing(attempt, "q")
    if sent:
        history.committing(attempt)
    history.interrupted(attempt, not_done)
    assert attempt.outcome == outcome


def test_what_ended_around_it_is_counted() -> None:
    clock = iter([float(each) for each in range(100)])
    history = History(clock=lambda: next(clock))
    for outcome in (OK, UNKNOWN, FAILED, OK, FAILED):
        attempt = history.begin("c", plain=True)
        history.answer(attempt, outcome)
    found = handed_over(history, "promote", "a", 1.0, 3.0, {})
    assert found == HandedOver("promote", "a", 3.0, 1, 1, {})
    said = summary([found], ["partial: x"], 1)
    assert said["unknown"] == 1 and said["failed"] == 1 and said["broken"] == ["partial: x"]
    assert said["pause"] == {"p50": 3.0, "p95": 3.0, "max": 3.0}


def test_the_last_word_is_found_in_what_a_client_wraps_it_in() -> None:
    assert told_not_done(RuntimeError(NOT_DONE.reply_text), 1) and not told_not_done(
        RuntimeError(DOUBTED.reply_text), 1
    )
    assert not told_not_done(None, 1) and not told_not_done(ConnectionResetError("reset"), 1)
    try:
        try:
            raise RuntimeError(NOT_DONE.reply_text)
        except RuntimeError as error:
            raise ConnectionError("the channel is closed") from error
    except ConnectionError:
        assert raised_not_done(1)
    assert not raised_not_done(1)


def test_on_other_channels_than_those_that_are_named_it_was_not_done() -> None:
    named = RuntimeError(Forced("handing over to b", False, {1, 12}).reply_text)
    assert [told_not_done(named, number) for number in (1, 2, 12)] == [False, True, False]
    many = RuntimeError(Forced("handing over to b", False, range(1, 200)).reply_text)
    assert not told_not_done(many, 300)
