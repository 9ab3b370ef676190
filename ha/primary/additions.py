"""Additions: messages that are on their way into queues, and the credit of consumers that wait for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from txobserver.events import Delivered, TxEnqueue
from txobserver.ports.ledger import Host
from txobserver.state.queues import Queues
from txobserver.tx_buffer import TxBuffer

MANY = 1000
"""A transaction that brings more messages to its queues is announced by counts: their offsets are not looked at"""


class Additions:
    """The group that brings messages raises the watermark over those that the host has granted credit for.

    That saves a round. ``queues``: those that exist; credit for any other one is forgotten.

    Credit is kept as a limit: the number of announced messages, since this primary serves, that consumers could take
    the first of. What arrived unseen by the host has used its part of that (``credit_for_what_has_passed_unseen``).
    What a great transaction brings uses credit too, and is not marked by it: consumers wait for it a round longer.
    """

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._offsets: dict[int, list[int]] = {}
        self._great: dict[int, list[tuple[int, int]]] = {}
        self._announced: dict[int, int] = {}
        self._limits: dict[int, int] = {}

    @property
    def waiting(self) -> bool:
        """Whether messages have come since the last group."""
        return bool(self._offsets)

    def add(self, queues: Sequence[int], offset: int) -> None:
        """A message gets this offset in these queues."""
        for queue in queues:
            self._offsets.setdefault(queue, []).append(offset)

    def committed(self, buffer: TxBuffer) -> None:
        """So do the messages of a transaction that is decided to commit."""
        if buffer.steps > MANY:
            for queue, count in buffer.enqueued.items():
                before = self._offsets.setdefault(queue, [])
                self._great.setdefault(queue, []).append((len(before), count))
            return
        for offset, event in buffer.placed():
            if isinstance(event, TxEnqueue):
                self.add(event.queues, offset)

    def grant(self, queue: int, messages: int, announced: int) -> None:
        """Consumers could take so many behind the first ``announced``. Raises ValueError for what cannot be."""
        if messages < 0:
            raise ValueError(f"credit is granted for no message or more, not for {messages}")
        if not self._queues.knows(queue):
            return
        there = self._announced.get(queue, 0)
        if not 0 <= announced <= there:
            raise ValueError(f"{there} messages of queue {queue} have been announced, and not {announced}")
        self._limits[queue] = announced + messages

    def queue_deleted(self, queue: int) -> None:
        """Nothing comes into this queue any more."""
        self._announced.pop(queue, None)
        self._limits.pop(queue, None)

    def end(self, host: Host | None) -> Iterator[Delivered]:
        """The group ends: watermarks for what came since the last one, as far as credit goes; no host: for nothing."""
        additions, self._offsets = self._offsets, {}
        great, self._great = self._great, {}
        if host is None:
            return
        for queue, offsets in additions.items():
            if not self._queues.knows(queue):
                continue  # it was deleted while they were on their way
            before, between = self._announced.get(queue, 0), great.get(queue, [])
            count = len(offsets) + sum(each for _, each in between)
            self._announced[queue] = before + count
            host.on_arriving(queue, count)
            taken = _marked(self._limits.get(queue, 0) - before, len(offsets), between)
            if taken > 0:
                yield Delivered(queue, offsets[taken - 1])


def _marked(credit: int, count: int, between: list[tuple[int, int]]) -> int:
    """How many of so many messages there is credit for; ``between``: behind which of them how many others come."""
    passed = 0
    for at, others in between:
        if credit < at + passed + others:
            return min(credit - passed, at)
        passed += others
    return min(credit - passed, count)
