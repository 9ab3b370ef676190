"""Faults put into coordinators on purpose, each one that the product once had, and what must find it.

``plant`` makes the change for as long as the ExitStack is open. Nothing here is ever switched on but by the tests.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import recovery.coordinator.broker_resource as broker_module
import recovery.coordinator.data_manager as data_manager_module
import recovery.coordinator.own_statements as own_statements
import recovery.coordinator.postgresql as postgresql_module
import recovery.coordinator.recover as recover_module
import recovery.coordinator.table as table_module
from recovery.coordinator.data_manager import BrokerDataManager
from recovery.coordinator.deciding import DecidingSession
from recovery.coordinator.log_file import LogFile
from recovery.coordinator.postgresql import Postgresql
from recovery.dtx.tagged import Tags
from tests.coordinator_model.pg_client import FakeConnection
from tests.coordinator_model.run import Result, Run
from tests.support.planted import first_that_breaks
from txobserver.outcomes import BranchOutcome
from txobserver.xid import Xid


@dataclass(frozen=True)
class Seeded:
    """``seed``: one that finds it. ``promises``: what it breaks."""

    name: str
    seed: int
    promises: tuple[str, ...]
    plant: Callable[[ExitStack], None]


SEEDED: list[Seeded] = []


def seeded(seed: int, *promises: str) -> Callable[[Callable[[ExitStack], None]], Callable[[ExitStack], None]]:
    """Register a fault under the name of its function."""

    def register(plant: Callable[[ExitStack], None]) -> Callable[[ExitStack], None]:
        SEEDED.append(Seeded(plant.__name__, seed, promises, plant))
        return plant

    return register


def find(fault: Seeded, seeds: int, first: int = 0) -> Result | None:
    """The first seed in which the fault breaks a promise that it was meant to break."""
    return first_that_breaks(fault.plant, fault.promises, lambda seed: Run(seed).run(), range(first, first + seeds))


def replace(stack: ExitStack, owner: Any, name: str, by: Any) -> None:
    """For as long as the stack is open."""
    stack.enter_context(patch.object(owner, name, by, create=True))


def without_intents(stack: ExitStack) -> None:
    """A recovery run that takes no decision for an abort, whatever intents say: they would hide some other faults."""
    replace(stack, recover_module, "check", lambda *asked: None)


@seeded(80, "both or neither")
def no_number_is_nothing_written(stack: ExitStack) -> None:
    """A branch without a number is rolled back, and the transaction goes on without it."""
    original = Postgresql.prepare

    def prepare(self: Postgresql, xid: Xid) -> Any:
        with self._session.answered() as connection:
            postgresql_module._check(connection)
            ticket, *_ = connection.execute(postgresql_module.TICKET).fetchone() or (None, False)
            if ticket is None:
                connection.tpc_rollback()
                self._session.at_hand = None
                return None
        return original(self, xid)

    replace(stack, Postgresql, "prepare", prepare)


@seeded(4, "once", "both or neither")
def tags_of_every_channel_begin_at_one(stack: ExitStack) -> None:
    """A tag of a lost channel settles another message, and the application is not told of the loss."""
    replace(stack, Tags, "highest", property(lambda self: 0, lambda self, value: None))
    replace(stack, Tags, "untold", property(lambda self: False, lambda self, value: None))


@seeded(746, "both or neither", "told what happened")
def all_tables_of_a_database_are_one(stack: ExitStack) -> None:
    """The names of transactions do not say in which table they are decided."""
    original = table_module.find_table

    def find_table(*given: Any) -> Any:
        found = original(*given)
        return found._replace(whose=found.earlier, earlier="", alone=True)

    replace(stack, table_module, "find_table", find_table)
    replace(stack, data_manager_module, "find_table", find_table)


@seeded(2, "both or neither", "told what happened", "a run goes on")
def the_vote_writes_on_any_connection(stack: ExitStack) -> None:
    """It is not looked whether the session is in its transaction still."""
    replace(stack, BrokerDataManager, "check_session", lambda self: None)
    replace(stack, BrokerDataManager, "_check_connection", lambda self: None)
    replace(stack, BrokerDataManager, "_number", lambda self, ticket: ticket.number)


@seeded(5, "both or neither", "told what happened")
def a_decision_is_as_durable_as_the_database_likes(stack: ExitStack) -> None:
    """The decision is committed with the setting that is there."""
    replace(stack, own_statements, "DURABLE", "SELECT 1")
    replace(stack, table_module, "DURABLE", "SELECT 1")


@seeded(23, "both or neither", "told what happened", "nothing unforeseen", "nothing is left in doubt")
def a_link_is_replaced_by_a_file(stack: ExitStack) -> None:
    """A log that is named by a symbolic link is made smaller beside the file that it leads to."""
    replace(stack, LogFile, "_file", property(lambda self: self.path))


@seeded(103, "told what happened", "both or neither")
def sessions_vote_by_chance(stack: ExitStack) -> None:
    """The one that decides, too."""
    replace(stack, DecidingSession, "sortKey", lambda self: super(DecidingSession, self).sortKey())


@seeded(7, "nothing is left in doubt", "both or neither", "told what happened")
def a_database_is_called_as_its_client_calls_it(stack: ExitStack) -> None:
    """Whatever name a pooler has for it."""

    def in_doubt(self: Postgresql) -> list[Xid]:
        with self._session.answered() as connection:
            connection.rollback()
            found = [each for each in connection.tpc_recover() if each.database == connection.info.dbname]
            return [
                Xid(each.format_id, each.gtrid.encode(), each.bqual.encode())
                for each in found
                if each.format_id is not None and each.bqual is not None
            ]

    replace(stack, Postgresql, "in_doubt", in_doubt)


@seeded(2, "nothing is left in doubt", "both or neither", "told what happened")
def clusters_are_known_by_their_names(stack: ExitStack) -> None:
    """Which two may share."""
    replace(stack, broker_module, "broker_name", lambda cluster, identity: f"amqp:{cluster}")
    replace(stack, recover_module, "is_unique", lambda resource: True)


@seeded(16, "nothing unforeseen", "every application can go on", "both or neither", "nothing stood in the way")
def a_child_works_on_with_its_parent_s_log(stack: ExitStack) -> None:
    """And with its lock."""
    replace(stack, LogFile, "forked", lambda self: None)


@seeded(16, "told of operators", "told what happened", "both or neither")
def what_is_not_known_is_success(stack: ExitStack) -> None:
    """A resource that does not know any more is taken to have committed."""
    replace(
        stack,
        BranchOutcome,
        "confirms",
        lambda self, commit: self is not BranchOutcome.PREPARED and not self.contradicts(commit),
    )


@seeded(50, "told what happened")
def a_lost_commit_is_a_failed_one(stack: ExitStack) -> None:
    """The database is not asked what became of it before the caller is told."""
    replace(stack, DecidingSession, "_has_committed", lambda self, error: False)


@seeded(23, "every application can go on", "nothing unforeseen", "nothing stood in the way")
def a_smaller_log_belongs_to_who_made_it(stack: ExitStack) -> None:
    """Whose ever the old one was."""
    original = LogFile._write_new
    replace(stack, LogFile, "_write_new", lambda self, path, lines, old: original(self, path, lines, None))


@seeded(5, "told what happened", "both or neither")
def an_engine_in_autocommit_is_joined(stack: ExitStack) -> None:
    """Its session's commit decides nothing."""

    def transaction_only(self: BrokerDataManager) -> None:
        """Whether the connection is in a transaction is not asked."""

    replace(stack, BrokerDataManager, "_check_connection", transaction_only)
    joins = data_manager_module.TransactionalBroker.join
    joining: set[int] = set()

    def join(self: Any, *given: Any) -> Any:
        joining.add(threading.get_ident())
        try:
            return joins(self, *given)
        finally:
            joining.discard(threading.get_ident())

    def autocommit(self: FakeConnection) -> bool:
        return self._is_autocommit and threading.get_ident() not in joining

    replace(stack, data_manager_module.TransactionalBroker, "join", join)
    replace(stack, FakeConnection, "autocommit", property(autocommit, FakeConnection.autocommit.fset))


@seeded(373, "a run goes on")
def an_unknown_decision_ends_the_run(stack: ExitStack) -> None:
    """At REPEATABLE READ, to have waited for a commit is an error of which it is not known what it means."""

    class Other(Exception):
        """Is never raised."""

    settings = table_module._SETTINGS.replace("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; ", "")
    replace(stack, table_module, "_SETTINGS", settings)
    original = table_module._ask

    def ask(*given: Any) -> Any:
        try:
            return original(*given)
        except table_module.errors.SerializationFailure as error:
            raise table_module.DecisionUnknown(str(error)) from error

    replace(stack, table_module, "_ask", ask)
    replace(stack, recover_module, "DecisionUnknown", Other)


@seeded(71, "nothing is left in doubt")
def a_clock_far_ahead_keeps_a_branch(stack: ExitStack) -> None:
    """What seems to begin in the future is left to its coordinator."""
    replace(stack, recover_module, "abs", lambda value: value)


@seeded(1458, "both or neither", "told what happened")
def a_record_behind_a_failed_sync_is_believed(stack: ExitStack) -> None:
    """Who opens the log takes what he reads there for what is on the disk."""
    without_intents(stack)
    replace(stack, LogFile, "_write_again", lambda self: None)
