"""What a broker has done since its process began, in numbers that never fall: an addition for each message.

They are the node's, not a channel's or a connection's, so they do not fall when one ends, nor when the node is primary
no more (rabbitmq_prometheus calls such ones *global counters*, for the same reason).
"""

from __future__ import annotations

COUNTED = (
    "received",
    "received_confirm",
    "routed",
    "unroutable_returned",
    "unroutable_dropped",
    "confirmed",
    "delivered_consume_manual",
    "delivered_consume_auto",
    "delivered_get_manual",
    "delivered_get_auto",
    "get_empty",
    "redelivered",
    "acknowledged",
    "transactions_committed",
    "transactions_failed",
    "transactions_rolled_back",
    "channels_opened",
    "channels_closed",
)
"""The names, as they are shown."""


class MessageCounters:
    """Of messages: ``received`` from publishers, ``routed`` to a queue, or to none; ``confirmed``; handed to a client
    by basic.consume or basic.get, with acknowledgement or without; ``acknowledged`` by one.

    What is routed, not routed and acknowledged within a transaction (class tx) counts when it has committed; of
    branches of distributed transactions only what is received counts.
    """

    def __init__(self) -> None:
        self.received = 0
        self.received_confirm = 0
        self.routed = 0
        self.unroutable_returned = 0
        self.unroutable_dropped = 0
        self.confirmed = 0
        self.delivered_consume_manual = 0
        self.delivered_consume_auto = 0
        self.delivered_get_manual = 0
        self.delivered_get_auto = 0
        self.get_empty = 0
        self.redelivered = 0
        self.acknowledged = 0
        self.transactions_committed = 0
        self.transactions_failed = 0
        self.transactions_rolled_back = 0
        self.channels_opened = 0
        self.channels_closed = 0

    def shown(self) -> dict[str, int]:
        """All of them by their names."""
        return {name: int(getattr(self, name)) for name in COUNTED}
