"""For brokers whose transactions txha is to replicate: what such a host asks of the stream, and what it is told.

A broker in a process of its own connects to its node by ``attach_broker``: it implements ``AttachedBroker``, and is
given a ``RemoteLedger``; each transaction of a client is a ``RemoteTransaction``, each branch a ``RemoteBranch``
(docs/hosts.md). A broker within the node's process, as the embedded one is, implements ``Host`` and is given a
``Ledger`` and the ``Content`` of the durable queues.
"""

from __future__ import annotations

from broker_plugin.host.broker_end import AttachedBroker, AttachmentEnded, attach_broker, lease_clock
from broker_plugin.host.from_node import Activated
from broker_plugin.host.remote_ledger import RemoteBranch, RemoteLedger, RemoteTransaction
from broker_plugin.host.wire import HOST_VERSION
from txobserver.bindings import Bindings
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
from txobserver.events import Configure, Message, Removal, Terms
from txobserver.observer import BranchSink, DtxObserver, TransactionObserver, TransactionObserverFactory, TxSink
from txobserver.outcomes import PreparedBranch
from txobserver.ports.ledger import BranchObserver, Content, Done, Found, Host, Ledger, Observer, Work, pages
from txobserver.ports.store import Above, Asked, At, Entry, QueueSummary

__all__ = [
    "attach_broker",
    "AttachedBroker",
    "AttachmentEnded",
    "Activated",
    "RemoteLedger",
    "RemoteTransaction",
    "RemoteBranch",
    "lease_clock",
    "HOST_VERSION",
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
    "Configure",
    "Message",
    "Removal",
    "Terms",
    "pages",
    "Configuration",
    "Configured",
    "Refusal",
    "QueueSpec",
    "ExchangeSpec",
    "BindingSpec",
    "Bindings",
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
