"""The end of clients that this node serves no more: they are told so, and hear it."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Protocol

HEARD_SECONDS = 0.5
"""How long a client that was answered has to say something behind that; then it is told that outcomes may be unknown.
No other client waits for it: the next primary serves meanwhile."""
LAST_WORD_SECONDS = 1.0
LAST_WORD_GLANCE = 0.01
"""How long a server that stops waits for the close-ok of clients that it has closed, and how often it looks."""


class Parting(Protocol):
    """One client's socket."""

    @property
    @abstractmethod
    def parting(self) -> bool:
        """Whether the client has been told that this node serves no more, and has not answered that."""


async def heard(protocols: Callable[[], Iterable[Parting]]) -> None:
    """Wait until no client is parting, or time is up.

    A socket that is closed before is reset where its client goes on sending, and the client may not hear why.
    """
    for _ in range(round(LAST_WORD_SECONDS / LAST_WORD_GLANCE)):
        if not any(each.parting for each in protocols()):
            return
        await asyncio.sleep(LAST_WORD_GLANCE)
