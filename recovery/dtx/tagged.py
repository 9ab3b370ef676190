"""Channels of pika on which a message of an earlier channel cannot be settled.

AMQP counts delivery tags on each channel from 1. A client that goes on on another channel after a loss would settle
another message by a tag of the lost one. So the channels of one client count on, one after the other: a channel adds
what the highest tag was when it was opened, and takes it off again of what is settled. A tag up to there is of an
earlier channel: its message has gone back to its queue, and is delivered again. No tag (0) stands for all
messages that were delivered, and does not say on which channel; behind a loss it is refused once, so that no caller
settles what it has not seen.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from typing import Any

from pika.adapters.select_connection import SelectConnection
from pika.channel import Channel
from pika.exceptions import ChannelWrongStateError

from recovery.dtx.errors import StaleDelivery


class StaleTag(StaleDelivery, ChannelWrongStateError):  # type: ignore[misc]
    """StaleDelivery, for who handles pika's errors: as to settle something on the lost channel would have been."""


class Tags:
    """What the channels of one client have in common. ``highest``: the highest tag that any of them has delivered.

    ``untold``: messages went back with a channel that was lost, and the client's user has not been told.
    """

    def __init__(self) -> None:
        self.highest = 0
        self.untold = False

    def left(self, channel: TaggedChannel) -> None:
        """A channel is used no more: what it delivered and was not settled is delivered again."""
        self.untold = self.untold or channel.unsettled


class TaggedChannel(Channel):  # type: ignore[misc]
    """pika's channel, inside of BlockingChannel; all other code sees the tags that are counted on."""

    def __init__(
        self, connection: TaggedConnection, number: int, on_open: Callable[[Channel], Any] | None, tags: Tags
    ) -> None:
        super().__init__(connection, number, on_open)
        self._tags = tags
        self._before = tags.highest
        self._open_tags: dict[int, None] = {}
        self._settles_what_it_gets = False

    @property
    def unsettled(self) -> bool:
        """Whether a message was delivered here that has to be settled, and is not."""
        return bool(self._open_tags)

    # -- what is delivered

    def basic_get(self, queue: str, callback: Callable[..., Any], auto_ack: bool = False) -> None:
        """As pika's."""
        super().basic_get(queue, callback, auto_ack)
        self._settles_what_it_gets = auto_ack

    def _on_getok(self, method_frame: Any, header_frame: Any, body: bytes) -> None:
        self._deliver(method_frame.method, self._settles_what_it_gets)
        super()._on_getok(method_frame, header_frame, body)

    def _on_deliver(self, method_frame: Any, header_frame: Any, body: bytes) -> None:
        self._deliver(method_frame.method, method_frame.method.consumer_tag in self._consumers_with_noack)
        super()._on_deliver(method_frame, header_frame, body)

    def _deliver(self, method: Any, settled: bool) -> None:
        tag = method.delivery_tag = method.delivery_tag + self._before
        self._tags.highest = max(self._tags.highest, tag)
        if not settled:
            self._open_tags[tag] = None

    # -- what is settled

    def basic_ack(self, delivery_tag: int = 0, multiple: bool = False) -> None:
        """As pika's. Raises StaleTag."""
        super().basic_ack(self._settle(delivery_tag, multiple), multiple)

    def basic_nack(self, delivery_tag: int = 0, multiple: bool = False, requeue: bool = True) -> None:
        """As pika's. Raises StaleTag."""
        super().basic_nack(self._settle(delivery_tag, multiple), multiple, requeue)

    def basic_reject(self, delivery_tag: int = 0, requeue: bool = True) -> None:
        """As pika's. Raises StaleTag."""
        super().basic_reject(self._settle(delivery_tag, False), requeue)

    def _settle(self, tag: int, multiple: bool) -> int:
        """This channel's own number for a tag."""
        self._raise_if_not_open()
        stale = self._tags.untold if tag == 0 else tag <= self._before
        self._tags.untold = False
        if stale:
            raise StaleTag(
                "what this tag stands for was delivered on a channel that is lost, and is delivered again: settle that"
            )
        if multiple:
            for each in list(takewhile(lambda each: tag == 0 or each <= tag, self._open_tags)):
                del self._open_tags[each]
        else:
            self._open_tags.pop(tag, None)
        return tag - self._before if tag else 0


class TaggedConnection(SelectConnection):  # type: ignore[misc]
    """pika's connection, inside of BlockingConnection. ``tags`` is given to it before its first channel."""

    tags: Tags

    def _create_channel(self, channel_number: int, on_open_callback: Callable[[Channel], Any] | None) -> Channel:
        return TaggedChannel(self, channel_number, on_open_callback, self.tags)
