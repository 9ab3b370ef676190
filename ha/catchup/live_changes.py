"""LiveChanges: what the primary applies to the queues that are being copied, until the joiner has room for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ha.catchup.replicating_subscription import Live, ReplicatingSubscription
from txobserver.events import Message


class LiveChanges:
    """Of one joiner. ``subscriptions``: by queue; ``waiting``: bytes of changes that have not been sent."""

    def __init__(self) -> None:
        self.subscriptions: dict[int, ReplicatingSubscription] = {}
        self.waiting = 0
        self._changed: dict[int, ReplicatingSubscription] = {}

    def enqueued(self, queue: int, offset: int, rid: int, message: Message) -> None:
        """A message entered a queue."""
        subscription = self.subscriptions.get(queue)
        if subscription is not None:
            before = subscription.waiting
            subscription.enqueued(offset, rid, message)
            self._grown(subscription, before)

    def removed(self, queue: int, entries: Sequence[tuple[int, int]]) -> None:
        """Messages left a queue."""
        subscription = self.subscriptions.get(queue)
        if subscription is not None:
            before = subscription.waiting
            subscription.gone(entries)
            self._grown(subscription, before)

    def _grown(self, subscription: ReplicatingSubscription, before: int) -> None:
        if subscription.waiting > before:
            self.waiting += subscription.waiting - before
            self._changed[subscription.queue] = subscription

    def forget(self, subscription: ReplicatingSubscription) -> None:
        """Nothing of this queue counts as waiting any more; its walk is to be turned back."""
        self.waiting -= subscription.waiting
        self._changed.pop(subscription.queue, None)

    def changed(self) -> list[ReplicatingSubscription]:
        """Those with changes that wait, which count as sent, or as forgotten, from now on."""
        changed, self._changed, self.waiting = list(self._changed.values()), {}, 0
        return changed

    def take(self, limit: int) -> Iterator[tuple[int, Live]]:
        """What waits, by queue, at most ``limit`` bytes in each; none of it waits any more."""
        for subscription in self.changed():
            for live in subscription.take_changes(limit):
                yield subscription.queue, live
