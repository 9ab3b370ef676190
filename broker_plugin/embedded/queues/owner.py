"""A client connection as queues know it: the owner of exclusive ones."""

from __future__ import annotations

from broker_plugin.embedded.memory_budget import Holder


class Owner:
    """``exclusive``: the names of its exclusive queues, which go with it; ``gone``: it has ended, and they are going.

    ``holder``: what it makes the node hold.
    """

    def __init__(self, holder: Holder) -> None:
        self.holder = holder
        self.exclusive: dict[str, None] = {}
        self.gone = False
