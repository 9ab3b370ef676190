"""Connections that may stay no longer: some end in each turn, and those that have gone by themselves are left alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from broker_plugin.embedded.channels.expulsions import EXPELLED, Expulsions
from broker_plugin.embedded.errors import AmqpError
from broker_plugin.embedded.queues.turn import Turn

GONE = AmqpError(320, "CONNECTION_FORCED - user 'u' is deleted")


class Sessions:
    """``ended``: which ones were, in their order."""

    def __init__(self, count: int) -> None:
        self.ended: list[int] = []
        self.all: list[Any] = [self._session(number) for number in range(count)]
        self.there = list(self.all)
        self.turn = Turn(lambda: None)
        self.expulsions = Expulsions(self.turn, lambda: self.there)

    def _session(self, number: int) -> Any:
        def expel(error: AmqpError) -> None:
            assert error is GONE
            self.ended.append(number)

        return SimpleNamespace(outlet=SimpleNamespace(expel=expel))


def test_some_end_in_each_turn() -> None:
    sessions = Sessions(2 * EXPELLED + 1)
    sessions.expulsions.begin(sessions.all, GONE)
    assert sessions.ended == []
    for most in (EXPELLED, 2 * EXPELLED, 2 * EXPELLED + 1):
        sessions.turn.run()
        assert sessions.ended == list(range(most))


def test_one_that_has_gone_meanwhile_is_left_alone() -> None:
    sessions = Sessions(EXPELLED + 2)
    sessions.expulsions.begin(sessions.all, GONE)
    sessions.there.remove(sessions.all[1])
    sessions.turn.run()
    sessions.there.remove(sessions.all[EXPELLED])
    sessions.turn.run()
    assert sessions.ended == [number for number in range(EXPELLED + 2) if number not in (1, EXPELLED)]
