"""A session whose commit decides a transaction of the package ``transaction``: it votes last, and knows how that ended.

zope.sqlalchemy's data manager commits in its vote, and sessions vote in the order of numbers that say nothing. If
another session says no behind the decision, the transaction is committed here and rolled back there; so the deciding
one comes behind all others. And a COMMIT whose answer is lost may have taken effect. The others would be told to roll
back, and the caller of the commit that it failed; so the row of the decision is looked for before anything is said.

A session may work at several connections, and commits one after the other; and it may work in a transaction that
the application has begun on its connection, which it does not commit. Neither is a decision, so both are refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from sqlalchemy import Connection, NestedTransaction, event
from sqlalchemy.orm import Session, SessionTransaction
from sqlalchemy.orm.session import SessionTransactionState
from zope.sqlalchemy.datamanager import SessionDataManager

from recovery.coordinator.coordinated_branches import TransactionRolledBack
from recovery.coordinator.decisions import DecisionRefused, DecisionUnknown
from recovery.coordinator.own_statements import make_durable
from recovery.dtx.errors import OutcomeUnknown

log = logging.getLogger("txha.coordinator")

LAST = "\U0010ffff"
"""Sorts behind every key that begins with another character, and none is higher."""


class DecidingSession(SessionDataManager):  # type: ignore[misc]
    """zope.sqlalchemy's data manager of the session whose commit decides; made of one by ``deciding``.

    ``learn``: tells whether the decision stands in the database, and if not, that it never will; None until its row is
    inserted. It raises DecisionRefused and DecisionUnknown. ``decides``: whether there is such a row.
    """

    learn: Callable[[], bool] | None = None
    decides = False
    _told_of_commit = False

    def sortKey(self) -> str:
        """Behind all others."""
        return LAST + str(super().sortKey())

    def tpc_vote(self, trans: Any) -> None:
        """Commit. Raises what the session does if it has not committed, and OutcomeUnknown if that cannot be told.

        Raises TransactionRolledBack for a session whose commit is no decision.
        """
        try:
            if self.tx is not None and self.learn is not None:
                self.session.flush()  # which may take it to another connection
                check_one_commit(self.tx)
                if self.decides:
                    commit_durably(self.tx)
            with self._listening():
                super().tpc_vote(trans)
        except Exception as error:
            if self.state != "committed" and not self._has_committed(error):
                raise
            log.warning("the database has committed, though its session failed in or behind that: %r", error)
            if self.tx is not None:
                self.keep_session = False  # it does not know that its transaction is over, and can only be closed
                with suppress(Exception):
                    self._finish("committed")

    @property
    def is_answered(self) -> bool:
        """Whether the database has answered the COMMIT, and with no error."""
        # where a listener of the application's was told first, and failed, there is no public way to see it
        return self._told_of_commit or (self.tx is not None and self.tx._state is SessionTransactionState.COMMITTED)

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Hear of the answer: what fails behind it, as a listener at the transaction's end, leaves no trace of it."""
        session = self.session
        if session is None:  # there was no work to do
            yield
            return

        def committed(session: Session) -> None:
            self._told_of_commit |= not session.in_nested_transaction()

        event.listen(session, "after_commit", committed, insert=True)
        try:
            yield
        finally:
            event.remove(session, "after_commit", committed)

    def _has_committed(self, error: Exception) -> bool:
        if self.learn is None or (self.tx is not None and self.tx.is_active):
            return False  # it is open: nothing was committed
        try:
            return self.learn()
        except (DecisionRefused, DecisionUnknown) as unknown:
            raise OutcomeUnknown(f"the session failed in its commit ({error}), and {unknown}") from error


def check_one_commit(tx: SessionTransaction) -> None:
    """Raises TransactionRolledBack unless the commit of this transaction is one COMMIT of one database."""
    # there is no public way to the connections of a session
    found: set[Any] = set(tx._connections.values())
    if len(found) > 1:
        raise TransactionRolledBack(
            "the session works at several connections, which it commits one after the other, and only one commit can "
            "decide: give each database a session of its own"
        )
    if not all(commits and not isinstance(begun, NestedTransaction) for _, begun, commits, _ in found):
        raise TransactionRolledBack(
            "the session works in a transaction that was begun on its connection, and its commit does not commit that: "
            "bind the session to an engine"
        )


def commit_durably(tx: SessionTransaction) -> None:
    """The commit of this transaction is synced to the disk, whatever is set until then.

    That is seen to right before COMMIT: listeners of the session's come before, and may set it as they like
    (``a_listener_takes_the_sync_back``).
    """
    # there is no public way to the connections of a session
    for connection in {found[0] for found in tx._connections.values()}:
        event.listen(connection, "commit", _set_durable, once=True)


def _set_durable(connection: Connection) -> None:
    driver: Any = connection.connection.driver_connection
    make_durable(driver)


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
