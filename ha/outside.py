"""Outside: the role of a node that the record does not count among the members of the cluster."""

from __future__ import annotations

from ha.effects import LogLine
from ha.log_events import NoMember
from ha.node import Node
from ha.role import Waiting


class Outside(Waiting):
    """It waits until an operator adds the node, or for ever: it stands not, is attached to none, answers no probe."""

    def __init__(self, node: Node, why: str) -> None:
        super().__init__(node)
        self.why = why
        node.emit(LogLine(NoMember(why), warning=True))

    @property
    def refusal(self) -> str | None:
        """Why the node does not belong."""
        return self.why

    def tick_admitted(self) -> None:
        """Nothing is stood for."""

    def refuses_promotion(self, accept_data_loss: bool, version: int) -> str | None:
        """Also with the loss of data: what another cluster of members has gone on from is not taken back."""
        return self.why
