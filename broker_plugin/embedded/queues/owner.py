"""A client connection as queues know it: the owner of exclusive ones."""

from __future__ import annotations

from broker_plugin.embedded.memory_budget import Holder
from broker_plugin.embedded.rights.rights import Rights


class Owner:
    """``exclusive``: the names of its exclusive queues, which go with it; ``gone``: it has ended, and they are going.

    ``holder``: what it makes the node hold; ``rights``: what its user may do.
    """

    def __init__(self, holder: Holder, rights: Rights | None = None) -> None:
        self.holder = holder
        self.rights = rights if rights is not None else Rights()
        self.exclusive: dict[str, None] = {}
        self.gone = False
