"""Who waits for messages, as a queue knows it."""

from __future__ import annotations

from abc import ABC, abstractmethod

from txobserver.events import Message

UNLIMITED = 1 << 40
"""Stands for "no limit" wherever messages are counted."""

Taken = tuple[int, bool, Message]
"""A message as it is handed out: offset, redelivered, message."""


class Subscriber(ABC):
    """Is handed messages as long as it has room for them."""

    @abstractmethod
    def capacity(self) -> int:
        """How many messages it could take right now."""

    @abstractmethod
    def deliver(self, taken: Taken) -> None:
        """Hand it a message."""

    @abstractmethod
    def gone(self) -> None:
        """The queue was deleted."""
