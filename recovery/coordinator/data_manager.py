"""A broker in the transactions of the package ``transaction``, together with a SQLAlchemy session of zope.sqlalchemy.

    broker = TransactionalBroker(Broker(*urls))
    with transaction.manager:
        channel = broker.join(session)
        order = session.get(Order, 17)
        channel.basic_publish("", "invoices", order.number)

The broker votes first: it prepares, and inserts the decision into the session's database
(``recovery.coordinator.table``). The session votes last (``recovery.coordinator.deciding``), and its vote is its
commit, as zope.sqlalchemy does it. So the database's commit decides, and whatever crashes, a recovery run finds its row
or does not. Every other data manager of the transaction votes in between, and its "no" rolls both back.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import Any

import psycopg
import transaction
from pika.adapters.blocking_connection import BlockingChannel
from psycopg.pq import TransactionStatus
from sqlalchemy.orm import Session
from transaction._transaction import Status
from transaction.interfaces import IDataManager
from zope.interface import implementer
from zope.sqlalchemy import mark_changed

from recovery.coordinator.broker_resource import Broker
from recovery.coordinator.coordinated_branches import PATIENCE, TransactionRolledBack, settled
from recovery.coordinator.deciding import DecidingSession, check_one_commit, deciding
from recovery.coordinator.decisions import LONGEST_TRANSACTION, TOO_OLD, DecisionRefused, DecisionUnknown
from recovery.coordinator.names import branch_xid
from recovery.coordinator.own_statements import (
    ABORTED,
    BEGAN,
    COMMITTED,
    ENDED_BY_SQL,
    FUTURE,
    Ticket,
    ask,
    current_ticket,
    in_one_message,
)
from recovery.coordinator.resources import BranchRolledBack, Participant, ResourceLost, ResourceRefused
from recovery.coordinator.steps import Reached, unwatched
from recovery.coordinator.table import TableDecisions, find_table, insert_commit
from txobserver.outcomes import BranchOutcome

log = logging.getLogger("txha.coordinator")


class TransactionalBroker:
    """A broker for one thread's transactions, one after the other.

    ``patience``: seconds for which the end of a transaction waits for a lost broker; then a recovery run has to do it.
    ``reached``: for tests; it is told each step by name.
    """

    def __init__(self, broker: Broker, patience: float = PATIENCE, reached: Reached = unwatched) -> None:
        self.broker = broker
        self.patience = patience
        self.reached = reached
        self.finished: list[str] = []
        """Transactions whose rows the next one takes away, or a recovery run."""
        self.joined: BrokerDataManager | None = None
        self._process = os.getpid()

    def join(self, session: Session, manager: Any = transaction.manager) -> BlockingChannel:
        """Take part in the present transaction, if that is not so yet; the channel for the work.

        The session is registered with zope.sqlalchemy, on psycopg, in transactions of its own, and not two-phase: its
        commit is the decision. The table that ``create_table`` makes is there. Raises ResourceLost, ValueError,
        TransactionRolledBack if the session has left the transaction that the broker had joined, and RuntimeError
        while another thread's transaction has the broker.
        """
        present = manager.get()
        if self.joined is None or self.joined.transaction is not present:
            self._check_alone()
            if session.twophase:
                raise ValueError("the session is two-phase, and its commit has to be the decision")
            connection = session.connection().connection.driver_connection  # here the session joins, if it has not
            if not isinstance(connection, psycopg.Connection):
                raise ValueError("the session's database is not PostgreSQL over psycopg")
            if connection.autocommit:
                raise ValueError("the engine is in AUTOCOMMIT, and the session's commit has to be the decision")
            joined = BrokerDataManager(self, deciding(session, present), connection, manager)
            present.join(joined)
            self.joined = joined
        self.joined.check_session()
        return self.broker.channel

    def _check_alone(self) -> None:
        """Else the work of one thread would be done in the branch of the other. Raises RuntimeError."""
        if self._process != os.getpid():
            raise RuntimeError("this broker was made before fork, and its connection is the parent's: make one")
        if self.joined is not None and self.joined.goes_on_elsewhere():
            raise RuntimeError("a TransactionalBroker is for one transaction at a time: take one for each thread")


@implementer(IDataManager)
class BrokerDataManager:
    """The broker's part in one transaction; made by ``TransactionalBroker.join``."""

    def __init__(
        self, owner: TransactionalBroker, decider: DecidingSession, connection: psycopg.Connection[Any], manager: Any
    ) -> None:
        self.transaction_manager = manager
        self.transaction = manager.get()
        self._thread = threading.current_thread()
        self._owner = owner
        self._decider = decider
        self._session: Session = decider.session
        self._connection = connection
        self._database = connection.info.dsn, connection.info.password or None
        self._began = time.clock_gettime(time.CLOCK_BOOTTIME)
        with in_one_message(connection):
            began = ask(connection, BEGAN)
            self._table = find_table(connection)
            [(self._began_there,)] = began.fetchall()
        self._name = str(self._table.new_name())
        self._xid = branch_xid(self._name, "broker")
        self._participant: Participant | None = None
        self._ticket = ""
        self._committed: bool | None = None
        self._voted = False
        self._removing: list[str] = []
        owner.broker.begin(self._xid)
        owner.reached("broker begun")

    def goes_on_elsewhere(self) -> bool:
        """Whether another thread is in the middle of this transaction."""
        elsewhere = self._thread is not threading.current_thread() and self._thread.is_alive()
        return elsewhere and self.transaction.status in (Status.ACTIVE, Status.DOOMED, Status.COMMITTING)

    def sortKey(self) -> str:
        """Before the session (``~sqlalchemy:…``), which commits when it votes."""
        return f"txha:{self._name}"

    def tpc_begin(self, transaction: Any) -> None:
        """Nothing to do: the branch has begun when the broker joined."""

    def commit(self, transaction: Any) -> None:
        """The session must commit even if nothing but the decision is new in it."""
        mark_changed(self._session, self.transaction_manager)

    def tpc_vote(self, transaction: Any) -> None:
        """Prepare, and insert the decision. Raises TransactionRolledBack, and what the database raises."""
        self.check_session()
        self._check_connection()
        try:
            if time.clock_gettime(time.CLOCK_BOOTTIME) - self._began > LONGEST_TRANSACTION:
                raise TransactionRolledBack(TOO_OLD)
            participant = self._owner.broker.prepare(self._xid)
        except (BranchRolledBack, ResourceLost, ResourceRefused) as error:
            raise TransactionRolledBack(str(error)) from error
        self._owner.reached("broker prepared")
        if participant is None:
            self._session.flush()
            self._ticket = self._number(current_ticket(self._connection))
            self._decider.learn = self._decider.learn or self._learn_alone
            self._voted = True
            return
        self._participant = participant
        here = f"{self._table.whose}."
        self._removing = [name for name in self._owner.finished if name.startswith(here)]
        written = insert_commit(self._connection, self._table, self._name, participant, self._removing)
        self._ticket = self._number(written)
        self._decider.learn, self._decider.decides = self._learn, True
        self._voted = True
        self._owner.reached("decision written")

    def _number(self, ticket: Ticket) -> str:
        """PostgreSQL's own number of the transaction. Raises TransactionRolledBack for another than the one joined.

        And for one that is too old by the server's clock, by which a recovery run forgets that it has aborted it.
        It is looked at behind the row of the decision, which is rolled back then with all that followed.
        """
        if ticket.began != self._began_there:
            raise TransactionRolledBack(f"the session's {ENDED_BY_SQL}")
        if ticket.age > LONGEST_TRANSACTION:
            raise TransactionRolledBack(TOO_OLD)
        return ticket.number

    def check_session(self) -> None:
        """Raises TransactionRolledBack if the session is not in the transaction any more that the broker has joined.

        What it did there is gone, and its connection may serve another transaction by now. Raises it, too, if the
        session's commit would be no decision.
        """
        present = self._session.get_transaction()
        if present is None or present is not self._decider.tx or not present.is_active:
            raise TransactionRolledBack(
                "the session has rolled back (or closed) the transaction that the broker had joined: begin again"
            )
        check_one_commit(present)

    def _check_connection(self) -> None:
        status = self._connection.info.transaction_status
        if status == TransactionStatus.INERROR:
            raise TransactionRolledBack("a statement has failed, so PostgreSQL rolls the transaction back")
        if status != TransactionStatus.INTRANS or self._connection.autocommit:
            raise TransactionRolledBack("the session's connection is lost, or its transaction was ended without it")

    def _learn(self) -> bool:
        """Whether the database has committed; if not, it never will. Raises DecisionRefused, DecisionUnknown."""
        if self._committed is None:
            dsn, password = self._database
            decisions = TableDecisions(dsn, self._table.name, password=password)
            self._committed = decisions.decide(self._name, False) or self._has_finished(decisions)
        return self._committed

    def _has_finished(self, decisions: TableDecisions) -> bool:
        """Whether there is no row because a recovery run has carried the commit out, and removed it.

        It may have taken long to notice that the answer of the COMMIT was lost. A transaction that PostgreSQL calls
        committed may be another one that was given the number again, when a crash or a failover had lost this one;
        but no run removes the row while the broker's branch is prepared. Raises DecisionUnknown.
        """
        if decisions.status(self._ticket) in (ABORTED, FUTURE):
            return False
        try:
            self._owner.broker.close()  # its connection is in the middle of the branch
            fate = self._owner.broker.fate(self._xid, "")
        except (ResourceLost, ResourceRefused) as error:
            raise DecisionUnknown(f"{self._name} is not in its table; the broker cannot be asked: {error}") from error
        if fate not in (BranchOutcome.COMMITTED, BranchOutcome.PREPARED):
            raise DecisionUnknown(f"{self._name} is not in its table; the broker's branch is {fate.word}")
        return fate is BranchOutcome.COMMITTED

    def _learn_alone(self) -> bool:
        """The same where the broker had no part, and no row tells. Raises DecisionUnknown if the COMMIT was lost.

        If it was not, the server has not crashed since, and nothing else has had the transaction's number. One without
        a number may have written to a foreign table: it has committed if its COMMIT was answered.
        """
        status = None
        if self._ticket:
            dsn, password = self._database
            status = TableDecisions(dsn, self._table.name, password=password).status(self._ticket)
        if not self._ticket and not self._connection.closed:
            return self._decider.is_answered
        if status in (ABORTED, FUTURE):
            return False
        if status != COMMITTED or self._connection.closed:
            raise DecisionUnknown("no row tells whether it took effect: the broker had nothing to commit")
        return True

    def tpc_finish(self, transaction: Any) -> None:
        """The database has committed, so the broker does. Raises nothing: what cannot be done now, recovery does."""
        self._forget_finished()
        if self._participant is not None:
            self._owner.reached("database committed")
            self._settle(True)

    def _forget_finished(self) -> None:
        """Rows that this transaction has removed, or has tried to."""
        self._owner.finished = [name for name in self._owner.finished if name not in self._removing]

    def abort(self, transaction: Any) -> None:
        """Roll back what has not been voted on.

        Behind the decision ``tpc_abort`` has asked the database. If that could not tell, a recovery run will; a failed
        transaction is aborted once more, at the latest when the next one begins, which must not decide it.
        """
        if self._owner.joined is self:
            self._owner.joined = None  # the transaction may go on, from a savepoint before the broker joined
        if self._voted:
            return
        try:
            self._owner.broker.abandon(self._xid)
        except (ResourceLost, ResourceRefused) as error:
            log.warning("%s is rolled back by the broker itself, or by a recovery run: %s", self._name, error)

    def tpc_abort(self, transaction: Any) -> None:
        """Roll back; but if the session may have committed before it failed, its database is asked.

        It has not if this vote was none: the session votes behind it.

        A connection that was lost may hold the rows that it was to remove for as long as its server does not notice:
        the next transaction would wait for it, so they are left to a recovery run.
        """
        if self._connection.closed:
            self._forget_finished()
        if self._participant is None or not self._voted:
            self.abort(transaction)
            return
        try:
            self._settle(self._learn())
        except (DecisionRefused, DecisionUnknown) as error:
            log.warning("%s is left to a recovery run: %s", self._name, error)

    def _settle(self, commit: bool) -> None:
        deadline = time.monotonic() + self._owner.patience
        fate = settled(self._owner.broker, self._xid, commit, "", deadline)
        if fate is None:
            log.warning("%s is left to a recovery run: the broker is lost", self._name)
        elif fate.contradicts(commit):
            log.error("%s: an operator has decided the broker's branch otherwise: %s", self._name, fate.word)
        elif commit and not fate.confirms(commit):
            log.error("%s: the broker does not know any more what became of its branch", self._name)
        elif commit:
            self._owner.reached("broker committed")
            self._owner.finished.append(self._name)
