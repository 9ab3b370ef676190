"""How many bytes a message counts for wherever bytes are bounded.

A function that is compiled, and no property: the hot path asks for it several times for each message.
"""

from __future__ import annotations

from txobserver.events import Message


def size_of(message: Message) -> int:
    """Bytes that it takes for certain: headers may be as large as a frame, and there may be no body."""
    return len(message.properties) + len(message.body)
