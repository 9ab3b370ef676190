"""Additions: messages that are on their way into queues, and that consumers may be waiting for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from txobserver.events import Delivered, TxEnqueue
from txobserver.ports.ledger import Host
from txobserver.tx_buffer import TxBuffer


class Additions:
    """The group that brings messages raises the watermark over those that a consumer waits for, which saves a round."""

    def __init__(self) -> None:
        self._offsets: dict[int, list[int]] = {}

    def add(self, queues: Sequence[int], offset: int) -> None:
        """A message gets this offset in these queues."""
        for queue in queues:
            self._offsets.setdefault(queue, []).append(offset)

    def committed(self, buffer: TxBuffer) -> None:
        """So do the messages of a transaction that is decided to commit."""
        for offset, event in buffer.placed():
            if isinstance(event, TxEnqueue):
                self.add(event.queues, offset)

    def wanted(self, host: Host | None) -> Iterator[Delivered]:
        """Marks for what came since the last call, as far as the host's consumers have room; no host: for nothing."""
        additions, self._offsets = self._offsets, {}
        if host is None:
            return
        for queue, offsets in additions.items():
            wanted = host.appetite(queue, len(offsets))
            if wanted > 0:
                yield Delivered(queue, offsets[wanted - 1])
