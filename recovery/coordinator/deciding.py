"""A session whose commit decides a transaction of the package ``transaction``: it votes last, and knows how that ended.

zope.sqlalchemy's data manager commits in its vote, and sessions vote in the order of numbers that say nothing. If
another session says no behind the decision, the transaction is committed here and rolled back there; so the deciding
one comes behind all others. And a COMMIT whose answer is lost may have taken effect. The others would be told to roll
back, and whoever asked for the commit that it failed; so the row of the decision is looked for before anything is said.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sqlalchemy.orm import Session
from zope.sqlalchemy.datamanager import SessionDataManager

from recovery.coordinator.branches import OutcomeUnknown
from recovery.coordinator.decisions import DecisionRefused, DecisionUnknown

log = logging.getLogger("txha.coordinator")

LAST = "\U0010ffff"
"""Sorts behind every key that begins with another character, and none is higher."""


class DecidingSession(SessionDataManager):  # type: ignore[misc]
    """zope.sqlalchemy's data manager of the session whose commit decides; made of one by ``deciding``.

    ``learn``: tells whether the decision stands in the database, and if not, that it never will; None until its row is
    inserted. It raises DecisionRefused and DecisionUnknown.
    """

    learn: Callable[[], bool] | None = None

    def sortKey(self) -> str:
        """Behind all others."""
        return LAST + str(super().sortKey())

    def tpc_vote(self, trans: Any) -> None:
        """Commit. Raises what the session does if it has not committed, and OutcomeUnknown if that cannot be told."""
        try:
            super().tpc_vote(trans)
        except Exception as error:
            if self.state != "committed" and not self._has_committed(error):
                raise
            log.warning("the database has committed, though its session failed in or behind that: %r", error)
            if self.tx is not None:
                self.keep_session = False  # it does not know that its transaction is over, and can only be closed
                with suppress(Exception):
                    self._finish("committed")

    def _has_committed(self, error: Exception) -> bool:
        if self.learn is None:
            return False
        try:
            return self.learn()
        except (DecisionRefused, DecisionUnknown) as unknown:
            raise OutcomeUnknown(f"the session failed in its commit ({error}), and {unknown}") from error


def deciding(session: Session, transaction: Any) -> DecidingSession:
    """The data manager of a session in a transaction, which decides from now on. Raises ValueError."""
    # the package has no public way to who has joined, and zope.sqlalchemy none to the data manager that it has made
    joined = [each for each in transaction._resources if isinstance(each, SessionDataManager)]
    found: Any = next((each for each in joined if each.session is session), None)
    if found is None:
        raise ValueError("the session takes no part in the transaction: register it with zope.sqlalchemy")
    if any(isinstance(each, DecidingSession) for each in joined if each is not found):
        raise ValueError("another session's commit decides this transaction already, and only one commit can")
    found.__class__ = DecidingSession
    assert isinstance(found, DecidingSession)
    return found
