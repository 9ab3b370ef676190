"""How connections end that may stay no longer: those of a deleted user, and those to a deleted virtual host."""

from __future__ import annotations

from collections.abc import Callable, Container

from broker_plugin.embedded.channels.session import Session
from broker_plugin.embedded.errors import AmqpError
from broker_plugin.embedded.queues.turn import Turn

EXPELLED = 20
"""Connections that are ended in one turn"""


class Expulsions:
    """``sessions``: those that are there."""

    def __init__(self, turn: Turn, sessions: Callable[[], Container[Session]]) -> None:
        self._turn = turn
        self._sessions = sessions

    def begin(self, sessions: list[Session], error: AmqpError) -> None:
        """These are ended with this error, some in each turn."""
        if sessions:
            self._turn.later(lambda: self._end_some(sessions, error))

    def _end_some(self, sessions: list[Session], error: AmqpError) -> None:
        there = self._sessions()
        for session in sessions[:EXPELLED]:
            if session in there:
                session.outlet.expel(error)
        self.begin(sessions[EXPELLED:], error)
