"""Additions: messages that are on their way into queues, and that consumers may be waiting for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from txobserver.events import Delivered, TxEnqueue
from txobserver.ports.ledger import Host
from txobserver.tx_buffer import TxBuffer


class Additions:
    """Messages that a consumer waits for are marked in the group that brings them, which saves a round."""

    def __init__(self) -> None:
        self._places: dict[int, list[int]] = {}

    def add(self, queues: Sequence[int], place: int) -> None:
        """A message gets this place in these queues."""
        for queue in queues:
            self._places.setdefault(queue, []).append(place)

    def committed(self, buffer: TxBuffer) -> None:
        """So do the messages of a transaction that is decided to commit."""
        for place, event in buffer.placed():
            if isinstance(event, TxEnqueue):
                self.add(event.queues, place)

    def wanted(self, host: Host | None) -> Iterator[Delivered]:
        """Marks for what came since the last call, as far as the host's consumers have room; no host: for nothing."""
        additions, self._places = self._places, {}
        if host is None:
            return
        for queue, places in additions.items():
            wanted = host.appetite(queue, len(places))
            if wanted > 0:
                yield Delivered(queue, places[wanted - 1])
