"""PostgreSQL as a resource: branches are prepared transactions, named as psycopg names them."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import errors
from psycopg.pq import TransactionStatus

from recovery.coordinator.branch_session import BranchSession, in_pipeline, sentence
from recovery.coordinator.dsn import check_dsn
from recovery.coordinator.own_statements import (
    ABORTED,
    COMMIT_MARKED,
    COMMITTED,
    ENDED_BY_SQL,
    MARK,
    OWNER,
    ROLE,
    TICKET,
    ask,
    ask_status,
    in_one_message,
)
from recovery.coordinator.resources import BranchRolledBack, Participant, ResourceLost, ResourceRefused
from txobserver.outcomes import BranchOutcome
from txobserver.xid import Xid

BUSY_SECONDS = 5.0
"""How long a branch may be in the hands of another session that settles it, too."""
BUSY_WAIT = 0.02

_PREPARED = b"SELECT gid, prepared, owner, database FROM pg_prepared_xacts"
_ENDED = f"the database's {ENDED_BY_SQL}"
_FATES = {COMMITTED: BranchOutcome.COMMITTED, ABORTED: BranchOutcome.ROLLED_BACK, "in progress": BranchOutcome.PREPARED}


class Postgresql:
    """One database, over one connection that is opened when it is needed, and again when it was lost.

    ``max_prepared_transactions`` of the server must be as great as the branches that can be prepared at a time.
    ``options`` are psycopg's for ``connect``. A branch can be settled by the role that prepared it, and by superusers.
    Raises ValueError for a DSN that cannot be.

    Statements are not prepared by the server, unless ``prepare_threshold`` is among the options: a pooler that gives
    connections away behind each transaction would have it execute, under the same name, what another client has
    prepared.
    """

    def __init__(self, dsn: str, **options: Any) -> None:
        check_dsn(dsn)
        self._session = BranchSession(dsn, options)
        self._name: str | None = None
        self._role = ""

    @property
    def connection(self) -> psycopg.Connection[Any]:
        """For work in the branch that is begun. Raises ResourceLost, also if that was begun on one that is lost."""
        return self._session.for_work()

    @property
    def name(self) -> str:
        """The server's own identifier, and the database."""
        if self._name is None:
            with self._session.answered() as connection:
                query = "SELECT system_identifier, current_database() FROM pg_control_system()"
                identifier, database = _row(connection, query)
                self._name = f"postgresql:{identifier}/{database}"
        return self._name

    # -- work

    def connection_in(self, xid: Xid) -> psycopg.Connection[Any]:
        """The connection, for work in this branch. Raises ResourceLost, also if another one has begun over it since."""
        self._session.check_at_hand(xid, ResourceLost)
        return self.connection

    def begin(self, xid: Xid) -> None:
        """A transaction of its own, which sees what was committed before, and is marked as this branch."""
        self._session.leave()
        connection = self._session.open()
        self._session.at_hand = xid  # first: a begin that is interrupted is left by the next one
        try:
            connection.rollback()
            with in_one_message(connection):
                connection.tpc_begin(_psycopg_xid(connection, xid))
                ask(connection, MARK, _mark(xid))
                role = ask(connection, ROLE)
            [(self._role,)] = role.fetchall()
        except BaseException as error:
            lost = connection.closed
            self._session.close()  # whatever state the session was left in
            if not isinstance(error, psycopg.Error):
                raise
            raise (ResourceLost if lost else ResourceRefused)(sentence(error)) from error

    def prepare(self, xid: Xid) -> Participant | None:
        """The ticket is PostgreSQL's own number of the transaction, and who has none needs no second phase.

        To have no number is not to have done nothing: a foreign table was written to, a notification is to be sent, or
        what a serializable transaction has read must be protected. PREPARE TRANSACTION refuses the first two, and keeps
        the third; so it is asked in any case, and what it took without a number is committed here.
        """
        self._session.check_at_hand(xid)
        with self._session.answered() as connection:
            try:
                _check(connection)
                [(ticket, standby, mark, role)] = ask(connection, TICKET).fetchall()
                if mark != _mark(xid):
                    raise BranchRolledBack(_ENDED)
                if standby:  # where nothing can be prepared, and nothing can have been written
                    connection.tpc_commit()
                    self._session.at_hand = None
                    return None
                participant = Participant(self.name, xid.bqual.decode(), ticket or "")
                if role != self._role:
                    self._take_back_role(connection)
                connection.tpc_prepare()
                if ticket is None:
                    connection.tpc_commit()
                    self._session.at_hand = None
                    return None
            except psycopg.Error as error:
                _rolled_back(connection, error)
        return participant

    def _take_back_role(self, connection: psycopg.Connection[Any]) -> None:
        """Whose role it is at its end, its branch belongs to; and behind a SET LOCAL ROLE this session could not settle
        it.

        What is deferred to the end is done in the role that the application has chosen.
        """
        ask(connection, b"SET CONSTRAINTS ALL IMMEDIATE")
        ask(connection, OWNER, self._role)

    def commit_in_one_phase(self, xid: Xid) -> None:
        """A plain COMMIT."""
        self._session.check_at_hand(xid)
        with self._session.answered() as connection:
            try:
                _check(connection)
                ask(connection, COMMIT_MARKED, _mark(xid))
                connection.tpc_commit()  # psycopg's own state: nothing is sent
                self._session.at_hand = None
            except psycopg.Error as error:
                if connection.closed:
                    raise
                # a COMMIT that fails leaves no transaction
                ended = isinstance(error, errors.DivisionByZero) and _status(connection) == TransactionStatus.INERROR
                self._end(connection)
                raise BranchRolledBack(_ENDED if ended else sentence(error)) from error
            except BranchRolledBack:
                self._end(connection)
                raise

    def _end(self, connection: psycopg.Connection[Any]) -> None:
        """Leave a branch that has not prepared: questions may be asked over the connection again."""
        if in_pipeline(connection):
            self._session.close()
            return
        try:
            connection.tpc_rollback()
            self._session.at_hand = None
        except psycopg.Error:
            self._session.close()

    def abandon(self, xid: Xid) -> None:
        """In its own session if that stands. A lost one has rolled back by itself, unless it had prepared."""
        connection = self._session.standing(xid)
        if connection is not None:
            with suppress(psycopg.Error):
                connection.tpc_rollback()
                self._session.at_hand = None
                return
        self._session.close()
        if self.fate(xid, "") is BranchOutcome.PREPARED:
            self.settle(xid, False, "")

    # -- branches that are prepared

    def in_doubt(self) -> list[Xid]:
        """Of this database: those of others cannot be settled from here.

        The server says which one it is: by way of a pooler the connection may have been given another name for it.
        """
        with self._session.answered() as connection:
            connection.rollback()
            (here,) = _row(connection, "SELECT current_database()")
            rows = ask(connection, _PREPARED).fetchall()
            connection.rollback()
            found = [psycopg.Xid.from_string(gid) for gid, _, _, database in rows if database == here]
            return [
                Xid(each.format_id, each.gtrid.encode(), each.bqual.encode())
                for each in found
                if each.format_id is not None and each.bqual is not None
            ]

    def settle(self, xid: Xid, commit: bool, ticket: str) -> BranchOutcome:
        """COMMIT PREPARED or ROLLBACK PREPARED; if another session was faster, what has become of it."""
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            error = self._settle(xid, commit)
            if error is None:
                return BranchOutcome.COMMITTED if commit else BranchOutcome.ROLLED_BACK
            self._session.close()
            if isinstance(error, errors.UndefinedObject):
                return self.fate(xid, ticket)
            if time.monotonic() > deadline:
                raise ResourceRefused(sentence(error)) from error
            time.sleep(BUSY_WAIT)

    def _settle(self, xid: Xid, commit: bool) -> psycopg.Error | None:
        """An error that says that another session has settled the branch, or is doing so, or has to."""
        with self._session.answered() as connection:
            settle = connection.tpc_commit if commit else connection.tpc_rollback
            try:
                if self._session.at_hand == xid:
                    settle()
                    self._session.at_hand = None
                else:
                    connection.rollback()
                    settle(_psycopg_xid(connection, xid))
            except (errors.UndefinedObject, errors.ObjectNotInPrerequisiteState) as error:
                return error
            except errors.InsufficientPrivilege as error:
                if self._session.at_hand != xid:
                    raise
                return error  # its session has another role now than the branch, of which the next one knows nothing
        return None

    def fate(self, xid: Xid, ticket: str) -> BranchOutcome:
        """By its ticket PostgreSQL knows what has become of a transaction, for as long as it keeps commit statuses."""
        if xid in self.in_doubt():
            return BranchOutcome.PREPARED
        if not ticket:
            return BranchOutcome.UNKNOWN
        with self._session.answered() as connection:
            status = ask_status(connection, ticket)
        return BranchOutcome.UNKNOWN if status is None else _FATES.get(status, BranchOutcome.UNKNOWN)

    def fence(self, xid: Xid) -> None:
        """PostgreSQL cannot: what prepares later is in doubt until the next recovery run."""

    def forget(self, xid: Xid) -> None:
        """PostgreSQL remembers nothing that would have to be forgotten."""

    def leave(self) -> None:
        """Close the connection if a branch is at hand on it, which has no owner any more; else it stays."""
        self._session.leave()

    def close(self) -> None:
        """Close the connection."""
        self._session.close()


def _check(connection: psycopg.Connection[Any]) -> None:
    """Raises BranchRolledBack for a branch of which nothing is there that PostgreSQL could commit.

    PostgreSQL answers the COMMIT of a transaction in which a statement has failed with a ROLLBACK, and no error.

    That of one which is not there any more it answers with a warning: what SQL has committed is not in this branch.
    Where more statements have followed, they are in another transaction, without the mark of this one.

    In psycopg's pipeline mode nothing is answered before it ends: a PREPARE TRANSACTION would seem to have succeeded.
    """
    if in_pipeline(connection):
        raise BranchRolledBack("the connection is in pipeline mode: leave its block before the transaction ends")
    if _status(connection) == TransactionStatus.IDLE:
        raise BranchRolledBack(_ENDED)
    if _status(connection) == TransactionStatus.INERROR:
        raise BranchRolledBack("a statement has failed, so PostgreSQL rolls the transaction back")


def _status(connection: psycopg.Connection[Any]) -> TransactionStatus:
    return connection.info.transaction_status


def _mark(xid: Xid) -> str:
    return xid.gtrid.decode()


def _psycopg_xid(connection: psycopg.Connection[Any], xid: Xid) -> psycopg.Xid:
    return connection.xid(xid.format_id, xid.gtrid.decode(), xid.bqual.decode())


def _row(connection: psycopg.Connection[Any], query: str, *values: Any) -> tuple[Any, ...]:
    """One row, asked for in no transaction but its own if there is none."""
    alone = connection.info.transaction_status == TransactionStatus.IDLE
    row = ask(connection, query.encode(), *values).fetchone()
    if alone:
        connection.rollback()
    assert row is not None
    return row


def _rolled_back(connection: psycopg.Connection[Any], error: psycopg.Error) -> None:
    if connection.closed:
        raise error
    raise BranchRolledBack(sentence(error)) from error
