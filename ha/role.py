"""Role: what each role of a node answers, and Waiting, that of one without a primary to follow (``ha.roles``)."""

from __future__ import annotations

from ha.apply.replica import UNHEARD
from ha.calls.standing import CallsStanding
from ha.effects import ResetLog
from ha.messages.wire import Peer
from ha.node import Node
from ha.refusals import NO_PRIMARY
from txobserver.events import Configure
from txobserver.ports.ledger import Done


class Role:
    """What every role answers; what it does not do here, the roles that do it override."""

    def __init__(self, node: Node) -> None:
        self.node = node

    @property
    def refusal(self) -> str | None:
        """Why this role waits for an operator, in one sentence; None if it does not."""
        return None

    @property
    def desk_at(self) -> str:
        """The node with the desk for cluster calls, if this one is attached to it or has it; else none."""
        return ""

    def standing(self) -> CallsStanding:
        """Where the node stands for cluster calls."""
        node = self.node
        return CallsStanding(node.now, node.generation, 0, None, False)

    def tick(self) -> None:
        """Time has passed. A node whose record and store do not belong together does nothing."""
        if not self.node.gate.refused:
            self.tick_admitted()

    def tick_admitted(self) -> None:
        """Time has passed, and the record has been admitted: stand for primary, if that is due."""
        node = self.node
        node.candidate.tick(node.replica.tail, node.asked, node.now, node.replica.whole)

    def settle(self) -> None:
        """The turn ends. What has begun to be applied is finished, whatever the role is by now."""
        replica = self.node.replica
        if replica.in_parts:
            replica.apply(0, UNHEARD, self.node.settings.apply_steps)
            if replica.in_parts:
                self.node.wake()

    def unlinked(self, peer: str, since: float) -> None:
        """The connection to this peer is gone, or has been of no use since then."""

    def detached(self, retry_at_once: bool) -> None:
        """The attachment to a primary has ended."""

    def written(self, sequence: int) -> None:
        """The log is synced up to there."""
        replica = self.node.replica
        replica.durable = max(replica.durable, min(sequence, replica.tail.sequence))

    def store_failed(self, reason: str) -> None:
        """The store has failed."""

    def log_reset(self, asked: ResetLog) -> int | None:
        """The log has been begun anew; the sequence that the snapshot stands for, if this role asked for it."""
        return None

    def take(self, peer: str, message: Peer) -> None:
        """A message of a peer, of this node's generation or a later one."""

    def refuses_promotion(self, accept_data_loss: bool, version: int) -> str | None:
        """Why an operator's promotion cannot be; None: it has been set going."""
        node, candidate = self.node, self.node.candidate
        if candidate.record is None or node.gate.refused:
            return node.gate.refused or "the coordination record has not been read yet"
        if (refused := candidate.refuses(accept_data_loss, version)) is not None:
            return refused
        if not accept_data_loss:
            return self._asks_for_handover()
        if not node.replica.whole:
            return "this store is being overwritten by a snapshot and holds no whole state; choose another node"
        candidate.force(node.linked, node.now)
        return None

    def _asks_for_handover(self) -> str | None:
        return "only a ready backup can take over without losing data; see --accept-data-loss"

    def configure(self, step: Configure, done: Done) -> None:
        """An operator asks for a step of configuration."""
        done(NO_PRIMARY)

    def resign(self, reason: str) -> None:
        """This node is about to stop."""


class Waiting(Role):
    """No record is known, or it names no primary, or this node itself, which leads no more."""
