"""How the broker of a new primary comes to serve what is configured: as much in a turn as it has room for.

A hundred thousand queues take half a second to be made. In one turn that cost a primary its lease on a machine that was
busy, and the next one's as well (``take_over_of_many_queues``). So a new primary makes virtual hosts, exchanges, queues
and bindings piece by piece, and then ends what an earlier primary's clients have left. It serves no client meanwhile
(``Serving.loading``). Each piece looks at what is configured then, so that steps that are applied meanwhile count; and
no queue is made in the middle of a transaction, of which it would count a part.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from broker_plugin.embedded.operations.operations import Operations
from broker_plugin.embedded.operations.replicated import Replicated
from broker_plugin.embedded.queues.turn import steps_now
from broker_plugin.embedded.serving import Serving

Stage = tuple[deque[Any], Callable[[Any], object]]
"""What waits, and what is done with each"""


class TakingOver:
    """Of one primary. ``branches`` takes over what is prepared; it is called when all queues are there."""

    def __init__(
        self, broker: Serving, operations: Operations, replicated: Replicated, branches: Callable[[], object]
    ) -> None:
        self._broker = broker
        self._operations = operations
        self._ended = False
        operations.exchanges.take_over()
        operations.expiry.take_over()
        self._stages = _stages(broker, operations, replicated, branches)
        broker.loading = True
        self._go_on()

    def end(self) -> None:
        """This node is no primary any more."""
        self._ended = True

    def _go_on(self) -> None:
        if self._ended:
            return
        turn = self._broker.turn
        until = turn.spent + steps_now(turn)
        while self._stages and turn.spent < until and self._broker.filling is None:
            waiting, one = self._stages[0]
            if waiting:
                turn.spent += 1
                one(waiting.popleft())
            else:
                self._stages.popleft()
        if self._stages:
            turn.later(self._go_on)
        else:
            self._broker.loading = False
            self._operations.vhosts.take_over()


def _stages(
    broker: Serving, operations: Operations, replicated: Replicated, branches: Callable[[], object]
) -> deque[Stage]:
    """In the order in which they need each other."""
    configuration = broker.content.configuration
    return deque(
        [
            _stage(broker.rights.vhosts(), replicated.add_vhost),
            _stage(configuration.exchanges, replicated.load_exchange),
            _stage(configuration.queues, replicated.load_queue),
            _stage(configuration.bindings, replicated.load_binding),
            _stage(["all"], lambda _: branches()),
            _stage(configuration.queues, operations.deletions.take_over),
            _stage(configuration.exchanges, operations.exchanges.lost_binding),
        ]
    )


def _stage(waiting: Iterable[Any], one: Callable[[Any], object]) -> Stage:
    return deque(waiting), one
