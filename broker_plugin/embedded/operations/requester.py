"""A channel as the operations know it: who has asked for one, and is told what came of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from broker_plugin.embedded.errors import AmqpError
from broker_plugin.embedded.message_counters import MessageCounters
from broker_plugin.embedded.queues.consumer import Receiver
from broker_plugin.embedded.queues.outlet import ChannelOutlet
from broker_plugin.embedded.queues.owner import Owner
from broker_plugin.embedded.queues.turn import Turn


class Requester(Receiver):
    """What it asks for waits for its own publishes where it must find what they left."""

    def __init__(
        self, turn: Turn, owner: Owner, outlet: ChannelOutlet, flowing: bool, counters: MessageCounters
    ) -> None:
        super().__init__(turn, owner, outlet, flowing, counters)
        self._publishing = 0
        self._when_quiet: Callable[[], None] | None = None

    def when_quiet(self, operation: Callable[[], None]) -> None:
        """Do this when every publish of this channel has its outcome: a client finds what it published itself."""
        if self._publishing:
            self._when_quiet = partial(self.attempt, operation)
        else:
            operation()

    def attempt(self, operation: Callable[[], None]) -> None:
        """Carry out something that waited; its error ends the channel as if it had not waited."""
        if self.closed:
            return
        try:
            operation()
        except AmqpError as error:
            self.fail(error)

    def fail(self, error: AmqpError) -> None:
        """Something that the client asked for before cannot be done."""
        if not self.closed:
            self.outlet.failed(error)
