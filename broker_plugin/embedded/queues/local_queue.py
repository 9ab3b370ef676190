"""A queue of this node's memory: not durable, or exclusive. It ends when the node is no longer primary."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from broker_plugin.embedded.queues.owner import Owner
from broker_plugin.embedded.queues.queue import Queue
from broker_plugin.embedded.queues.subscriber import Taken
from broker_plugin.embedded.queues.turn import Turn
from txobserver.events import Message, Removal


class LocalQueue(Queue):
    """A queue whose messages are here and nowhere else."""

    def __init__(
        self,
        name: str,
        auto_delete: bool,
        arguments: Mapping[str, Any],
        turn: Turn,
        owner: Owner | None = None,
    ) -> None:
        super().__init__(name, auto_delete, arguments, turn, owner)
        self._last = 0
        self._fresh: deque[tuple[int, Message]] = deque()
        self._returned: list[tuple[int, Message]] = []
        self._out: dict[int, Message] = {}

    @property
    def ready(self) -> int:
        return len(self._fresh) + len(self._returned)

    def enqueue(self, message: Message) -> None:
        """A message behind all others."""
        self._last += 1
        self._fresh.append((self._last, message))
        if not self._woken and (self.consumers or self._getters):
            self.wake()

    def settle(self, offsets: Sequence[int], reason: Removal) -> None:
        for offset in offsets:
            self._out.pop(offset, None)

    def give_back(self, offsets: Sequence[int]) -> None:
        for offset in offsets:
            message = self._out.pop(offset, None)
            if message is not None:
                heapq.heappush(self._returned, (offset, message))
        self.wake()

    def purge(self) -> int:
        """Remove everything that no client holds; returns how much that was."""
        count = self.ready
        self._fresh.clear()
        self._returned.clear()
        return count

    def drop(self) -> None:
        super().drop()
        self._fresh.clear()
        self._returned.clear()
        self._out.clear()

    def _take(self) -> Taken | None:
        if self._returned:
            offset, message = heapq.heappop(self._returned)
            redelivered = True
        elif self._fresh:
            offset, message = self._fresh.popleft()
            redelivered = False
        else:
            return None
        self._out[offset] = message
        return offset, redelivered, message

    def _prepare(self) -> None:
        """Everything is at hand."""
