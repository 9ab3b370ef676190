"""When a client hears the last word of its node, and what that is (``broker_plugin.amqp.protocol.last_word``)."""

from __future__ import annotations

import pytest
from pamqp import commands

from broker_plugin.amqp.protocol.codec import encode_close, encode_method
from broker_plugin.amqp.protocol.last_word import LastWord, channels_in
from broker_plugin.embedded.errors import Forced

NOT_DONE, UNKNOWN = Forced("stopped", False), Forced("stopped", True)
ANSWER = b"an answer"


def said(error: Forced) -> bytes:
    return encode_close(commands.Connection.Close, error, 0)


@pytest.fixture
def word() -> LastWord:
    return LastWord()


def test_a_frame_begins_where_its_channel_has_come() -> None:
    one, two = (encode_method(commands.Tx.Commit(), number) for number in (1, 2))
    assert channels_in(one + two) == {1, 2} == channels_in(one + two[:7])
    assert channels_in(one + two[:6]) == {1} == channels_in(one) and channels_in(b"") == set()


def test_it_waits_for_each_channel_that_was_answered(word: LastWord) -> None:
    assert word.begin(NOT_DONE, [1, 2]) == b"" and word.due and word.waits
    assert word.heard(1) == b"" == word.heard(3) and word.waits
    assert word.heard(2) == said(NOT_DONE) and word.due and not word.waits
    assert word.heard(2) == b"" == word.time_is_up(), "once"


@pytest.mark.parametrize(("error", "unheard"), [(NOT_DONE, []), (UNKNOWN, [1])])
def test_it_waits_for_nothing_where_that_changes_nothing(word: LastWord, error: Forced, unheard: list[int]) -> None:
    assert word.begin(error, unheard) == said(error) and not word.waits


def test_it_names_the_channels_of_which_nothing_has_come_in_time(word: LastWord) -> None:
    """Those on which nothing that comes shows anything, which are negative, as the others."""
    assert word.time_is_up() == b"" == word.heard(1), "it is not due"
    word.begin(NOT_DONE, [1, 2, -3])
    word.heard(1)
    assert word.time_is_up() == said(Forced("stopped", False, [2, 3])) and not word.waits


def test_answers_that_are_forgotten_make_outcomes_unknown(word: LastWord) -> None:
    """Those that were forgotten before it is said, and those that stand before it."""
    assert word.forget([]) == [] and not word.answers_lost
    assert word.forget([ANSWER]) == [] and word.answers_lost
    assert word.begin(NOT_DONE, []) == said(UNKNOWN)
    other = LastWord()
    last = other.begin(NOT_DONE, [])
    assert other.forget([last]) == [last] and not other.answers_lost
    assert other.forget([ANSWER, last]) == [said(UNKNOWN)] and other.answers_lost
