"""Additions: messages that are on their way into queues, and the credit of consumers that wait for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from txobserver.events import Delivered, TxEnqueue
from txobserver.ports.ledger import MOST_CREDIT, Host
from txobserver.state.queues import Queues
from txobserver.tx_buffer import TxBuffer


class Additions:
    """The group that brings messages raises the watermark over those that the host has granted credit for.

    That saves a round. ``queues``: those that exist; credit for any other one is forgotten.
    """

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._offsets: dict[int, list[int]] = {}
        self._credit: dict[int, int] = {}

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
        for offset, event in buffer.placed():
            if isinstance(event, TxEnqueue):
                self.add(event.queues, offset)

    def grant(self, queue: int, messages: int) -> None:
        """Consumers could take so many more messages. Raises ValueError for none."""
        if messages < 1:
            raise ValueError(f"credit is granted for one message or more, not for {messages}")
        if self._queues.knows(queue):
            self._credit[queue] = min(self._credit.get(queue, 0) + messages, MOST_CREDIT)

    def queue_deleted(self, queue: int) -> None:
        """Nothing comes into this queue any more."""
        self._credit.pop(queue, None)

    def end(self, host: Host | None) -> Iterator[Delivered]:
        """The group ends: watermarks for what came since the last one, as far as credit goes; no host: for nothing."""
        additions, self._offsets = self._offsets, {}
        if host is None:
            return
        for queue, offsets in additions.items():
            host.on_arriving(queue, len(offsets))
            taken = min(self._credit.get(queue, 0), len(offsets))
            if taken:
                self._spend(queue, taken)
                yield Delivered(queue, offsets[taken - 1])

    def _spend(self, queue: int, messages: int) -> None:
        left = self._credit[queue] - messages
        if left:
            self._credit[queue] = left
        else:
            del self._credit[queue]
