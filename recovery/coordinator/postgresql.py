"""PostgreSQL as a resource: branches are prepared transactions, named as psycopg names them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import errors
from psycopg.pq import PipelineStatus, TransactionStatus

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
from recovery.coordinator.resources import LEFT, BranchRolledBack, Fate, Participant, ResourceLost, ResourceRefused
from txobserver.xid import Xid

BUSY_SECONDS = 5.0
"""How long a branch may be in the hands of another session that settles it, too."""
BUSY_WAIT = 0.02

_OPTIONS: dict[str, Any] = {"connect_timeout": 10, "prepare_threshold": None}
_PREPARED = b"SELECT gid, prepared, owner, database FROM pg_prepared_xacts"
_ENDED = f"the database's {ENDED_BY_SQL}"
_FATES = {COMMITTED: Fate.COMMITTED, ABORTED: Fate.ROLLED_BACK, "in progress": Fate.PREPARED}


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
        self._dsn = dsn
        self._options = options
        self._connection: psycopg.Connection[Any] | None = None
        self._name: str | None = None
        self._at_hand: Xid | None = None
        self._role = ""

    @property
    def connection(self) -> psycopg.Connection[Any]:
        """For work in the branch that is begun. Raises ResourceLost, also if that was begun on one that is lost."""
        if self._at_hand is not None and (self._connection is None or self._connection.closed):
            raise ResourceLost("the connection on which the branch was begun is lost")
        return self._open()

    def _open(self) -> psycopg.Connection[Any]:
        """The connection that stands, or a new one, on which no branch is at hand.

        It does not stand any more where somebody has left it in pipeline mode: nothing would be answered.
        """
        if self._at_hand is None and self._connection is not None and _in_pipeline(self._connection):
            self.close()
        if self._connection is None or self._connection.closed:
            self._at_hand = None
            try:
                self._connection = psycopg.connect(self._dsn, **{**_OPTIONS, **self._options})
            except psycopg.OperationalError as error:
                raise ResourceLost(_sentence(error)) from None
            except psycopg.Error as error:  # the DSN cannot be one
                raise ResourceRefused(_sentence(error)) from None
        return self._connection

    @property
    def name(self) -> str:
        """The server's own identifier, and the database."""
        if self._name is None:
            with self._answered() as connection:
                query = "SELECT system_identifier, current_database() FROM pg_control_system()"
                identifier, database = _row(connection, query)
                self._name = f"postgresql:{identifier}/{database}"
        return self._name

    @contextmanager
    def _answered(self) -> Iterator[psycopg.Connection[Any]]:
        """Errors become those of resources."""
        connection = self._open()
        try:
            yield connection
        except psycopg.Error as error:
            kind = ResourceLost if connection.closed else ResourceRefused
            if self._at_hand is None:
                self.close()  # whatever state the session was left in
            raise kind(_sentence(error)) from error

    # -- work

    def connection_in(self, xid: Xid) -> psycopg.Connection[Any]:
        """The connection, for work in this branch. Raises ResourceLost, also if another one has begun over it since."""
        self._check_at_hand(xid, ResourceLost)
        return self.connection

    def _check_at_hand(self, xid: Xid, left: type[Exception] = BranchRolledBack) -> None:
        """What is executed is of the branch at hand, and so is what is prepared."""
        if self._at_hand != xid:
            raise left(LEFT)

    def begin(self, xid: Xid) -> None:
        """A transaction of its own, which sees what was committed before, and is marked as this branch."""
        self.leave()
        connection = self._open()
        self._at_hand = xid  # first: a begin that is interrupted is left by the next one
        try:
            connection.rollback()
            with in_one_message(connection):
                connection.tpc_begin(_psycopg_xid(connection, xid))
                ask(connection, MARK, _mark(xid))
                role = ask(connection, ROLE)
            [(self._role,)] = role.fetchall()
        except BaseException as error:
            lost = connection.closed
            self.close()  # whatever state the session was left in
            if not isinstance(error, psycopg.Error):
                raise
            raise (ResourceLost if lost else ResourceRefused)(_sentence(error)) from error

    def prepare(self, xid: Xid) -> Participant | None:
        """The ticket is PostgreSQL's own number of the transaction, and who has none needs no second phase.

        To have no number is not to have done nothing: a foreign table was written to, a notification is to be sent, or
        what a serializable transaction has read must be protected. PREPARE TRANSACTION refuses the first two, and keeps
        the third; so it is asked in any case, and what it took without a number is committed here.
        """
        self._check_at_hand(xid)
        with self._answered() as connection:
            try:
                _check(connection)
                [(ticket, standby, mark, role)] = ask(connection, TICKET).fetchall()
                if mark != _mark(xid):
                    raise BranchRolledBack(_ENDED)
                if standby:  # where nothing can be prepared, and nothing can have been written
                    connection.tpc_commit()
                    self._at_hand = None
                    return None
                participant = Participant(self.name, xid.bqual.decode(), ticket or "")
                if role != self._role:
                    self._take_back_role(connection)
                connection.tpc_prepare()
                if ticket is None:
                    connection.tpc_commit()
                    self._at_hand = None
                    return None
            except psycopg.Error as error:
                self._rolled_back(connection, error)
        return participant

    def _take_back_role(self, connection: psycopg.Connection[Any]) -> None:
        """Whose role it is at its end, its branch belongs to; and behind a SET LOCAL ROLE nobody here could settle it.

        What is deferred to the end is done in the role that the application has chosen.
        """
        ask(connection, b"SET CONSTRAINTS ALL IMMEDIATE")
        ask(connection, OWNER, self._role)

    def commit_in_one_phase(self, xid: Xid) -> None:
        """A plain COMMIT."""
        self._check_at_hand(xid)
        with self._answered() as connection:
            try:
                _check(connection)
                ask(connection, COMMIT_MARKED, _mark(xid))
                connection.tpc_commit()  # psycopg's own state: nothing is sent
                self._at_hand = None
            except psycopg.Error as error:
                if connection.closed:
                    raise
                # a COMMIT that fails leaves no transaction
                ended = isinstance(error, errors.DivisionByZero) and _status(connection) == TransactionStatus.INERROR
                self._end(connection)
                raise BranchRolledBack(_ENDED if ended else _sentence(error)) from error
            except BranchRolledBack:
                self._end(connection)
                raise

    def _end(self, connection: psycopg.Connection[Any]) -> None:
        """Leave a branch that has not prepared: questions may be asked over the connection again."""
        if _in_pipeline(connection):
            self.close()
            return
        try:
            connection.tpc_rollback()
            self._at_hand = None
        except psycopg.Error:
            self.close()

    @staticmethod
    def _rolled_back(connection: psycopg.Connection[Any], error: psycopg.Error) -> None:
        if connection.closed:
            raise error
        raise BranchRolledBack(_sentence(error)) from error

    def abandon(self, xid: Xid) -> None:
        """In its own session if that stands. A lost one has rolled back by itself, unless it had prepared."""
        connection = self._connection
        if self._at_hand == xid and connection is not None and not connection.closed and not _in_pipeline(connection):
            with suppress(psycopg.Error):
                connection.tpc_rollback()
                self._at_hand = None
                return
        self.close()
        if self.fate(xid, "") is Fate.PREPARED:
            self.settle(xid, False, "")

    # -- branches that are prepared

    def in_doubt(self) -> list[Xid]:
        """Of this database: those of others cannot be settled from here.

        The server says which one it is: by way of a pooler the connection may have been given another name for it.
        """
        with self._answered() as connection:
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

    def settle(self, xid: Xid, commit: bool, ticket: str) -> Fate:
        """COMMIT PREPARED or ROLLBACK PREPARED; if somebody else was faster, what has become of it."""
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            error = self._settle(xid, commit)
            if error is None:
                return Fate.COMMITTED if commit else Fate.ROLLED_BACK
            self.close()
            if isinstance(error, errors.UndefinedObject):
                return self.fate(xid, ticket)
            if time.monotonic() > deadline:
                raise ResourceRefused(_sentence(error)) from error
            time.sleep(BUSY_WAIT)

    def _settle(self, xid: Xid, commit: bool) -> psycopg.Error | None:
        """An error that says that another session has settled the branch, or is doing so, or has to."""
        with self._answered() as connection:
            settle = connection.tpc_commit if commit else connection.tpc_rollback
            try:
                if self._at_hand == xid:
                    settle()
                    self._at_hand = None
                else:
                    connection.rollback()
                    settle(_psycopg_xid(connection, xid))
            except (errors.UndefinedObject, errors.ObjectNotInPrerequisiteState) as error:
                return error
            except errors.InsufficientPrivilege as error:
                if self._at_hand != xid:
                    raise
                return error  # its session has another role now than the branch, of which the next one knows nothing
        return None

    def fate(self, xid: Xid, ticket: str) -> Fate:
        """By its ticket PostgreSQL knows what has become of a transaction, for as long as it keeps commit statuses."""
        if xid in self.in_doubt():
            return Fate.PREPARED
        if not ticket:
            return Fate.UNKNOWN
        with self._answered() as connection:
            status = ask_status(connection, ticket)
        return Fate.UNKNOWN if status is None else _FATES.get(status, Fate.UNKNOWN)

    def fence(self, xid: Xid) -> None:
        """PostgreSQL cannot: what prepares later is in doubt until the next recovery run."""

    def forget(self, xid: Xid) -> None:
        """PostgreSQL remembers nothing that would have to be forgotten."""

    def leave(self) -> None:
        """Close the connection if a branch is at hand on it, which is nobody's any more; else it stays."""
        if self._at_hand is not None:
            self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection = self._at_hand = None


def _check(connection: psycopg.Connection[Any]) -> None:
    """Raises BranchRolledBack for a branch of which nothing is there that PostgreSQL could commit.

    PostgreSQL answers the COMMIT of a transaction in which a statement has failed with a ROLLBACK, and no error.

    That of one which is not there any more it answers with a warning: what SQL has committed is not in this branch.
    Where more statements have followed, they are in another transaction, without the mark of this one.

    In psycopg's pipeline mode nothing is answered before it ends: a PREPARE TRANSACTION would seem to have succeeded.
    """
    if _in_pipeline(connection):
        raise BranchRolledBack("the connection is in pipeline mode: leave its block before the transaction ends")
    if _status(connection) == TransactionStatus.IDLE:
        raise BranchRolledBack(_ENDED)
    if _status(connection) == TransactionStatus.INERROR:
        raise BranchRolledBack("a statement has failed, so PostgreSQL rolls the transaction back")


def _in_pipeline(connection: psycopg.Connection[Any]) -> bool:
    """Whether the application has begun it, and not left; what is ours does so in one go."""
    return not connection.closed and connection.pgconn.pipeline_status != PipelineStatus.OFF


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


def _sentence(error: psycopg.Error) -> str:
    return " ".join(str(error).split()) or type(error).__name__
