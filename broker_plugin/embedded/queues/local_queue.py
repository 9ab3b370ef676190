"""A queue of this node's memory: not durable, or exclusive. It ends when the node is no longer primary."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from broker_plugin.embedded.memory_budget import MESSAGE_BYTES, QUEUE_BYTES, QUEUES, Holder
from broker_plugin.embedded.queues.owner import Owner
from broker_plugin.embedded.queues.queue import Queue
from broker_plugin.embedded.queues.subscriber import Taken
from broker_plugin.embedded.queues.turn import Turn
from txobserver.events import Message, Removal
from txobserver.message_size import size_of


class LocalQueue(Queue):
    """A queue whose messages are here and nowhere else. They count for ``holder``: its owner's, or no client's.

    A message in several queues counts in each of them: what it takes is not free before the last one has let it go.
    ``bytes``: of its messages; ``own_bytes``: that it counts for when it is empty.
    """

    def __init__(
        self,
        name: str,
        auto_delete: bool,
        arguments: Mapping[str, Any],
        turn: Turn,
        holder: Holder,
        owner: Owner | None = None,
    ) -> None:
        super().__init__(name, auto_delete, arguments, turn, owner)
        self.bytes = 0
        self.own_bytes = QUEUE_BYTES + (len(repr(self.arguments)) if self.arguments else 0)
        self._holder = holder
        holder.hold(QUEUES, self.own_bytes)
        self._last = 0
        self._fresh: deque[tuple[int, Message]] = deque()
        self._returned: list[tuple[int, Message]] = []
        self._out: dict[int, Message] = {}
        self._out_bytes = 0

    @property
    def out(self) -> int:
        return len(self._out)

    @property
    def ready(self) -> int:
        return len(self._fresh) + len(self._returned) - self._unseen

    def enqueue(self, message: Message) -> None:
        """A message behind all others; nothing if the queue was deleted while the message's transaction was open."""
        if self.deleted:
            return
        self._last += 1
        self._fresh.append((self._last, message))
        self._count(size_of(message) + MESSAGE_BYTES)
        if not self._woken and (self.consumers or self._getters):
            self.wake()

    def settle(self, offsets: Sequence[int], reason: Removal) -> None:
        for offset in offsets:
            message = self._out.pop(offset, None)
            if message is not None:
                self._out_bytes -= size_of(message) + MESSAGE_BYTES
                self._count(-size_of(message) - MESSAGE_BYTES)

    def _return(self, offsets: Sequence[int]) -> int:
        count = 0
        for offset in offsets:
            message = self._out.pop(offset, None)
            if message is not None:
                count += 1
                self._out_bytes -= size_of(message) + MESSAGE_BYTES
                heapq.heappush(self._returned, (offset, message))
        return count

    def purge(self) -> int:
        """Remove everything that no client holds; returns how much that was."""
        count = self.ready
        self._let_waiting_go()
        self._count(self._out_bytes - self.bytes)
        return count

    def drop(self) -> None:
        if not self.deleted:
            self._holder.hold(QUEUES, -self.own_bytes)
        super().drop()
        self._let_waiting_go()
        self._turn.let_go(self._out)
        self._out, self._out_bytes = {}, 0
        self._count(-self.bytes)

    def _let_waiting_go(self) -> None:
        self._turn.let_go(self._fresh)
        self._turn.let_go(self._returned)
        self._fresh, self._returned = deque(), []

    def _count(self, size: int) -> None:
        self.bytes += size
        self._holder.hold(QUEUES, size)

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
        self._out_bytes += size_of(message) + MESSAGE_BYTES
        return offset, redelivered, message

    def _prepare(self) -> None:
        """Everything is at hand."""
