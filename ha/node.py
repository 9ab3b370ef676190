"""Node: what a node keeps whatever its role is: the time, the record, the log, the effects, who can be reached."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, get_args

from ha.apply.checkpointing import Checkpointing
from ha.apply.record_gate import RecordGate
from ha.apply.replica import Replica
from ha.calls.node_calls import NodeCalls
from ha.effects import Effect, LogLine, Send
from ha.feed.feed import Feed
from ha.link_beats import LinkBeats
from ha.log_events import StateChanged
from ha.membership.candidate import Candidate
from ha.membership.lease_length import LeaseLength
from ha.membership.members import ClusterNode
from ha.membership.node_state import ACTIVE, NODE_TABLE
from ha.messages.calls import DeskRequest
from ha.messages.election import ClientsClosed, Probe, ProbeReply
from ha.messages.member_asks import MemberAsk
from ha.messages.steps import StepAsk
from ha.relay import StepRelay
from ha.settings import Settings
from txobserver.calls import LocalCalls
from txobserver.ids import Member, Position
from txobserver.ports.ledger import Host

LOOKING_SECONDS = 0.5
"""Where a backup has lost its link with the primary, or hears that it hands over, it reads the record at every tick for
so long: within that time the lease is given up, also of a process that is gone
(docs/decisions/released-for-the-dead.md)."""
NO_FEATURES: frozenset[str] = frozenset()

ASKS: tuple[type, ...] = (StepAsk, MemberAsk, *get_args(DeskRequest))
"""What a node says to the primary, and no primary to another."""


class HandedOver(NamedTuple):
    """What the primary ``former`` has told of its ``clients``, and when this node heard of it."""

    former: str
    clients: ClientsClosed
    heard_at: float
    active_at: float | None = None
    """When this node served behind that"""


class Node:
    """``now`` is in seconds on a clock that counts suspension, ``wall_ms`` in milliseconds since 1970.

    ``log_first``: the first sequence that the log holds; ``feed``: what has passed the commit point; ``linked``: the
    peers that can be reached now; ``features``: of each of them, what both it and this node know; ``lease_length``: for
    how long others wait before they stand; ``beats``: what its links say; ``gone_since``: since when others cannot be
    reached; ``look_until``: until when the record is read at every tick; ``failed``: why the store has failed, if it
    has; ``sessions``: the number of the last attachment that was asked for; ``calls``: the node's part in cluster
    calls, of which ``local_calls`` is what it has kept durably; ``relay``: steps that operators ask for here;
    ``handed_over``: how the last primary that this node followed has handed over; ``founding``: the nodes that its own
    file lists, itself among them, for as long as the record does not say who is a member.
    """

    def __init__(
        self,
        member: Member,
        replica: Replica,
        host: Host,
        settings: Settings,
        log_first: int,
        cluster_id: str = "",
        first_session: int = 0,
        local_calls: LocalCalls | None = None,
    ) -> None:
        self.now = 0.0
        self.wall_ms = 0
        self.wake: Callable[[], None] = lambda: None
        self.state = NODE_TABLE.start
        self.member, self.replica, self.host, self.settings = member, replica, host, settings
        self.generation, self.log_first = replica.tail.generation, log_first
        self.founding: tuple[ClusterNode, ...] = ()
        self.feed = Feed(replica, settings.feed_bytes)
        self.linked: set[str] = set()
        self.features: dict[str, frozenset[str]] = {}
        self.lease_length = LeaseLength(settings, self.features)
        self.beats = LinkBeats(settings, self.features, self.emit)
        self.gone_since: dict[str, float] = {}
        self.failed: str | None = None
        self.look_until = -math.inf
        self.sessions = first_session
        self.gate = RecordGate(cluster_id, replica, self.emit)
        self.candidate = Candidate(member, settings, self.emit)
        self.checkpointing = Checkpointing(replica, settings, self.emit)
        self._effects: list[Effect] = []
        self.relay = StepRelay(replica, self.emit, first_session)
        self.handed_over: HandedOver | None = None
        self.calls = NodeCalls(member, replica, settings, self.emit, local_calls or LocalCalls())

    def emit(self, effect: Effect) -> None:
        """The next effect."""
        self._effects.append(effect)

    @property
    def asked(self) -> set[str]:
        """The peers that are asked who is to stand: not a primary that has said that it is about to end. It stands no
        more, and gives no answer soon, for which clients would wait."""
        handed = self.handed_over
        if handed is not None and handed.clients.stops and handed.clients.generation == self.generation:
            return self.linked - {handed.former}
        return self.linked

    def look(self, since: float) -> None:
        """Read the record at every tick, from then on for a while: its primary is about to change."""
        self.look_until = since + LOOKING_SECONDS

    def ask_no_primary(self) -> None:
        """This node is the primary: what it was about to ask of another one in this turn is not sent
        (``asked_in_the_turn_of_a_promotion``)."""
        self._effects = [each for each in self._effects if not _asks(each)]

    def take_effects(self) -> list[Effect]:
        """The effects since the last call, to be carried out in order."""
        effects, self._effects = self._effects, []
        return effects

    def move(self, event: str) -> None:
        """Go to the state that follows on this event."""
        self.state = NODE_TABLE.next(self.state, event)
        if self.state == ACTIVE and self.handed_over is not None and self.handed_over.active_at is None:
            self.handed_over = self.handed_over._replace(active_at=self.now)
        self.emit(LogLine(StateChanged(self.state)))

    def answer_probe(self, node: str, message: Probe, log_end: Position) -> None:
        """Tell a candidate how far this log goes, or nothing that could give this node precedence.

        ``log_end``: the last event that is here to stay, whatever becomes of this node's role in this turn.
        """
        may_stand = self.replica.whole and not self.gate.refused
        tail = self.candidate.precedence(log_end, may_stand, self.now)
        self.emit(Send(node, ProbeReply(message.generation, message.round, self.member, tail)))


def _asks(effect: Effect) -> bool:
    return isinstance(effect, Send) and isinstance(effect.message, ASKS)
