"""Poll: a candidate asks the reachable members of the ready set how far their logs go, and ranks what they answer."""

from __future__ import annotations

from collections.abc import Callable, Collection

from ha.effects import Effect, Send
from ha.membership.record import Record
from ha.messages.election import Probe, ProbeReply
from ha.settings import Settings
from txobserver.ids import Member, Position


class Poll:
    """One round of questions at a time. ``replies``: each member's position, by node, of the round at hand."""

    def __init__(self, me: Member, settings: Settings, emit: Callable[[Effect], None]) -> None:
        self.replies: dict[str, Position] = {}
        self._me = me
        self._settings = settings
        self._emit = emit
        self._round = 0
        self._asked_at: float | None = None
        self._asked: set[str] = set()

    @property
    def under_way(self) -> bool:
        """Whether members have been asked, and what came of it has not been looked at."""
        return self._asked_at is not None

    def end(self) -> None:
        """No answer is waited for any more."""
        self._asked_at = None

    def begin(self, record: Record, linked: Collection[str], now: float) -> None:
        """Ask the members of this record that can be reached."""
        self._round += 1
        self._asked_at = now
        self.replies = {}
        self._asked = {m.node for m in record.ready if m != self._me and m.node in linked}
        self.ask(self._asked, record)

    def ask(self, nodes: Collection[str], record: Record) -> None:
        """Send the question of the round at hand to these nodes."""
        for node in sorted(nodes):
            self._emit(Send(node, Probe(record.generation, self._round)))

    def reply(self, message: ProbeReply, record: Record | None) -> None:
        """A ready member says how far its log goes."""
        if message.round == self._round and record is not None and message.member in record.ready:
            self.replies[message.member.node] = message.tail

    def over(self, now: float) -> bool:
        """Whether every node that was asked has answered, or ``probe_timeout`` has passed."""
        assert self._asked_at is not None
        return self._asked <= self.replies.keys() or now - self._asked_at >= self._settings.probe_timeout

    def before(self, record: Record, ours: Position) -> list[str]:
        """The reachable members that have precedence; between equals a handover's choice has it, then the name."""

        def rank(node: str, position: Position) -> tuple[Position, bool, str]:
            return position, record.released and node == record.preferred, node

        mine = rank(self._me.node, ours)
        return [node for node, position in sorted(self.replies.items()) if rank(node, position) > mine]
