"""What a command waits for when it has asked the core, which calls back in a turn of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def answering(answer: asyncio.Future[T]) -> Callable[[T], None]:
    """What gives the answer. It may be called again, or when its asker has given up: then it does nothing."""

    def give(found: T) -> None:
        if not answer.done():
            answer.set_result(found)

    return give
