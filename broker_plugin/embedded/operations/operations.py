"""Every operation that clients ask for as a whole, for one broker."""

from __future__ import annotations

from broker_plugin.embedded.operations.binding_operations import BindingOperations
from broker_plugin.embedded.operations.branch_operations import BranchOperations
from broker_plugin.embedded.operations.consumer_operations import ConsumerOperations
from broker_plugin.embedded.operations.exchange_operations import ExchangeOperations
from broker_plugin.embedded.operations.queue_deletions import QueueDeletions
from broker_plugin.embedded.operations.queue_expiry import QueueExpiry
from broker_plugin.embedded.operations.queue_operations import QueueOperations
from broker_plugin.embedded.operations.vhost_deletions import VhostDeletions
from broker_plugin.embedded.serving import Serving


class Operations:
    """Which operation another one leads to is seen here: a queue that goes takes bindings, and these exchanges."""

    def __init__(self, broker: Serving) -> None:
        self.exchanges = ExchangeOperations(broker)
        self.bindings = BindingOperations(broker, self.exchanges)
        self.deletions = QueueDeletions(broker, self.exchanges)
        self.queues = QueueOperations(broker, self.deletions)
        self.consumers = ConsumerOperations(broker, self.deletions)
        self.expiry = QueueExpiry(broker, self.deletions)
        self.vhosts = VhostDeletions(broker, self.deletions)
        self.branches = BranchOperations(broker)
