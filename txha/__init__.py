"""What programs use of txha: clients, coordinators, exceptions; everything else is private and may change at any time.

``txha.resources`` is for coordinators of other databases, ``txha.spark`` for Spark, ``txha.events`` for readers of a
node's log, ``txha.spi`` for brokers that let txha replicate their transactions.

A name is imported when it is asked for, so ``import txha`` needs no extra. One whose extra is not installed raises
ModuleNotFoundError, which says what to install.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from txha._lazy import lazy
from txobserver.release import VERSION

__version__ = VERSION

if TYPE_CHECKING:
    from recovery.coordinator.broker_resource import Broker
    from recovery.coordinator.coordinated_branches import HeuristicTransaction, TransactionRolledBack
    from recovery.coordinator.coordinator import Coordinator, Transaction
    from recovery.coordinator.data_manager import TransactionalBroker
    from recovery.coordinator.decision_log import DecisionLog
    from recovery.coordinator.decisions import DecisionRefused, DecisionUnknown
    from recovery.coordinator.postgresql import Postgresql
    from recovery.coordinator.recover import Report
    from recovery.coordinator.resources import BranchRolledBack, ResourceLost, ResourceRefused
    from recovery.coordinator.table import TableDecisions, create_table
    from recovery.dtx.errors import (
        Conflict,
        DatabaseError,
        HeuristicCommit,
        HeuristicMixed,
        HeuristicOutcome,
        HeuristicRollback,
        NotSupportedError,
        OperationalError,
        OutcomeUnknown,
        ProgrammingError,
        RolledBack,
        StaleDelivery,
        TimedOut,
        UnknownXid,
    )
    from recovery.dtx.with_aio_pika import AioDtxConnection, AioTxConnection
    from recovery.dtx.with_pika import DtxConnection, TxConnection
    from recovery.pipeline.errors import PipelineError
    from recovery.reader.log_reader import LogReader
    from recovery.reader.log_reading import LogCut
    from recovery.store.log import LogReclaimed
    from txha import events, resources, spark, spi
    from txobserver.errors import Error
    from txobserver.outcomes import BranchOutcome, GlobalState
    from txobserver.ports.ledger import NameInUse
    from txobserver.ports.store import StoreBusy, StoreDamaged, StoreError, StoreFull
    from txobserver.xid import Global, Xid, parse_xid
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "recovery.coordinator.coordinated_branches": ("HeuristicTransaction", "TransactionRolledBack"),
            "recovery.coordinator.broker_resource": ("Broker",),
            "recovery.coordinator.coordinator": ("Coordinator", "Transaction"),
            "recovery.coordinator.data_manager": ("TransactionalBroker",),
            "recovery.coordinator.decisions": ("DecisionRefused", "DecisionUnknown"),
            "recovery.coordinator.decision_log": ("DecisionLog",),
            "recovery.coordinator.postgresql": ("Postgresql",),
            "recovery.coordinator.recover": ("Report",),
            "recovery.coordinator.resources": ("BranchRolledBack", "ResourceLost", "ResourceRefused"),
            "recovery.coordinator.table": ("TableDecisions", "create_table"),
            "recovery.dtx.errors": (
                "Conflict",
                "DatabaseError",
                "HeuristicCommit",
                "HeuristicMixed",
                "HeuristicOutcome",
                "HeuristicRollback",
                "NotSupportedError",
                "OperationalError",
                "OutcomeUnknown",
                "ProgrammingError",
                "RolledBack",
                "StaleDelivery",
                "TimedOut",
                "UnknownXid",
            ),
            "recovery.dtx.with_aio_pika": ("AioDtxConnection", "AioTxConnection"),
            "recovery.dtx.with_pika": ("DtxConnection", "TxConnection"),
            "recovery.pipeline.errors": ("PipelineError",),
            "recovery.reader.log_reader": ("LogReader",),
            "recovery.reader.log_reading": ("LogCut",),
            "recovery.store.log": ("LogReclaimed",),
            "txha.events": (),
            "txha.resources": (),
            "txha.spark": (),
            "txha.spi": (),
            "txobserver.errors": ("Error",),
            "txobserver.outcomes": ("BranchOutcome", "GlobalState"),
            "txobserver.ports.ledger": ("NameInUse",),
            "txobserver.ports.store": ("StoreBusy", "StoreDamaged", "StoreError", "StoreFull"),
            "txobserver.xid": ("Global", "Xid", "parse_xid"),
        },
        globals(),
    )

__all__ = [
    # clients of a broker
    "DtxConnection",
    "TxConnection",
    "AioDtxConnection",
    "AioTxConnection",
    "GlobalState",
    "BranchOutcome",
    "Xid",
    "Global",
    "parse_xid",
    # coordinators of a broker and a database
    "Coordinator",
    "Transaction",
    "Broker",
    "Postgresql",
    "DecisionLog",
    "TransactionalBroker",
    "create_table",
    "TableDecisions",
    "Report",
    # a node's log
    "LogReader",
    # exceptions
    "Error",
    "DatabaseError",
    "ProgrammingError",
    "UnknownXid",
    "NotSupportedError",
    "OperationalError",
    "StaleDelivery",
    "Conflict",
    "RolledBack",
    "TimedOut",
    "TransactionRolledBack",
    "BranchRolledBack",
    "OutcomeUnknown",
    "HeuristicOutcome",
    "HeuristicCommit",
    "HeuristicRollback",
    "HeuristicMixed",
    "HeuristicTransaction",
    "ResourceLost",
    "ResourceRefused",
    "DecisionRefused",
    "DecisionUnknown",
    "StoreError",
    "StoreFull",
    "StoreBusy",
    "StoreDamaged",
    "LogReclaimed",
    "LogCut",
    "PipelineError",
    "NameInUse",
    # modules of their own
    "events",
    "resources",
    "spark",
    "spi",
]
