"""For brokers whose transactions txha is to replicate: what such a host asks of the stream, and what it is told.

A host offers ``Host`` and is given a ``Ledger`` and the ``Content`` of the durable queues; each transaction of a client
goes to an ``Observer`` or ``BranchObserver``. The embedded broker is such a host. How a host that is a program of its
own is connected is not part of this yet, so these names may still change.
"""

from __future__ import annotations

from txobserver.configuration import (
    BindingSpec,
    Configuration,
    Configured,
    ExchangeSpec,
    QueueSpec,
    Refusal,
    binding_step,
    delete_exchange_step,
    delete_queue_step,
    exchange_step,
    queue_step,
)
from txobserver.observer import BranchSink, DtxObserver, TransactionObserver, TransactionObserverFactory, TxSink
from txobserver.outcomes import PreparedBranch
from txobserver.ports.ledger import BranchObserver, Content, Done, Found, Host, Ledger, Observer, Work, pages
from txobserver.ports.store import Above, Asked, At, Entry, QueueSummary

__all__ = [
    "Host",
    "Ledger",
    "Content",
    "Done",
    "Work",
    "Observer",
    "BranchObserver",
    "Asked",
    "Above",
    "At",
    "Found",
    "Entry",
    "QueueSummary",
    "PreparedBranch",
    "pages",
    "Configuration",
    "Configured",
    "Refusal",
    "QueueSpec",
    "ExchangeSpec",
    "BindingSpec",
    "queue_step",
    "exchange_step",
    "binding_step",
    "delete_queue_step",
    "delete_exchange_step",
    "TransactionObserverFactory",
    "TransactionObserver",
    "DtxObserver",
    "TxSink",
    "BranchSink",
]
