"""What of a queue is at its consumer: messages by their places, and the tags with which they were delivered."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

import pika
from pika.adapters.blocking_connection import BlockingChannel


class Delivery(NamedTuple):
    """A message as it was delivered first."""

    place: int
    redelivered: bool
    exchange: str
    routing_key: str
    properties: pika.BasicProperties
    body: bytes


class Prefetched:
    """A message is here, in no batch or in one that is planned, until it is left out; a tag is that of one channel."""

    def __init__(self) -> None:
        self._messages: dict[int, Delivery] = {}
        self._planned: set[int] = set()
        self._tags: dict[int, int] = {}
        self.highest = -1
        """The highest place that this channel has delivered, -1 before the first"""

    @property
    def count(self) -> int:
        """How many deliveries of this channel are not settled."""
        return len(self._tags)

    @property
    def places(self) -> Collection[int]:
        """Those of the deliveries that are not settled."""
        return self._tags.keys()

    def come_again(self) -> None:
        """A new channel delivers everything once more; only what is planned is kept meanwhile."""
        self._tags.clear()
        self.highest = -1
        self._messages = {place: each for place, each in self._messages.items() if place in self._planned}

    def forget(self) -> None:
        """The places were those of other messages."""
        self._planned.clear()
        self._messages.clear()

    def delivered(self, tag: int, message: Delivery, unseen: bool) -> None:
        """It has come, maybe once more; ``unseen``: and is only to be settled."""
        place = message.place
        self._tags[place] = tag
        self.highest = max(self.highest, place)
        if place not in self._messages and not unseen:
            self._messages[place] = message

    def fresh(self) -> list[int]:
        """Places of what is here and in no batch."""
        return [place for place in self._messages if place not in self._planned]

    def plan(self, places: Iterable[int]) -> None:
        """These are in a batch."""
        self._planned.update(places)

    def missing(self, places: set[int]) -> set[int]:
        """Which of them are not here."""
        return places - self._messages.keys()

    def messages(self, places: set[int]) -> list[Delivery]:
        """Those of them that are here, in order of their places."""
        return [self._messages[place] for place in sorted(places & self._messages.keys())]

    def leave_out(self, done: set[int]) -> None:
        """These have been read for good; they stay unsettled until ``acknowledge``."""
        self._planned -= done
        for place in done & self._messages.keys():
            del self._messages[place]

    def acknowledge(self, channel: BlockingChannel, done: set[int]) -> set[int]:
        """All of these that can be, which are returned; with one frame for those that were delivered before all others.

        Raises pika's errors.
        """
        settled = done & self._tags.keys()
        outstanding = sorted(self._tags.items(), key=lambda entry: entry[1])
        first = next((index for index, (place, _) in enumerate(outstanding) if place not in settled), len(outstanding))
        if first:
            channel.basic_ack(outstanding[first - 1][1], multiple=True)
        for place, tag in outstanding[first:]:
            if place in settled:
                channel.basic_ack(tag)
        for place in settled:
            del self._tags[place]
        return settled
