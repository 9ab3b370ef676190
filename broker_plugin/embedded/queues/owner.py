"""A client connection as queues know it: the owner of exclusive ones."""

from __future__ import annotations


class Owner:
    """``exclusive``: the names of its exclusive queues, which go with it."""

    def __init__(self) -> None:
        self.exclusive: dict[str, None] = {}
