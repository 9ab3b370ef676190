"""What a command waits for when it has asked the core, which calls back in a turn of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
LET_IN_NO_MORE = "let_in_no_more"
"""Why a change is refused, as a word for programs: its user had been let in at the HTTP door, and would not be now"""


def answering(answer: asyncio.Future[T]) -> Callable[[T], None]:
    """What gives the answer. It may be called again, or when its asker has given up: then it does nothing."""

    def give(found: T) -> None:
        if not answer.done():
            answer.set_result(found)

    return give
