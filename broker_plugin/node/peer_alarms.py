"""PeerAlarms: a node tells its peers which alarms are in force with it, and keeps what they have told.

Promise: what is known of a peer is what it said last, on the newest connection that it has made to this node, and only
while that connection stands and this node's own to it. Of a peer that has said nothing on it, as one of an older
version, nothing is known.

Algorithm: a node sends on the connection that it has dialled, once when the peer has greeted it there, and then
whenever its alarms have changed (``look``). What comes is kept beside the connection on which it came, so that it goes
with that one, and a former connection that ends late takes nothing away.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from broker_plugin.amqp.alarms import LOW_ON_DISK, LOW_ON_MEMORY
from ha.messages.alarms import ALARMS_FEATURE, NO_ALARMS, AlarmsInForce


class PeerAlarms:
    """``send`` gives a message to the link to a peer. A connection is whatever stands for it, the same each time."""

    def __init__(self, send: Callable[[str, AlarmsInForce], object]) -> None:
        self._send = send
        self._own = NO_ALARMS
        self._links: dict[str, bool] = {}  # to linked peers: whether they want to be told
        self._told: dict[str, tuple[object, AlarmsInForce | None]] = {}

    # -- what this node tells

    def linked(self, peer: str, features: Collection[str]) -> None:
        """The link to this peer is up, and both sides know these features: tell it, if it wants to be told."""
        self._links[peer] = ALARMS_FEATURE in features
        if self._links[peer]:
            self._send(peer, self._own)

    def unlinked(self, peer: str) -> None:
        """The link to this peer is down."""
        self._links.pop(peer, None)

    def look(self, reasons: Collection[str]) -> None:
        """For these reasons, in the words of ``broker_plugin.amqp.alarms``, publishers are blocked here: tell it."""
        own = AlarmsInForce(LOW_ON_MEMORY in reasons, LOW_ON_DISK in reasons)
        if own != self._own:
            self._own = own
            for peer in [each for each, wants in self._links.items() if wants]:
                self._send(peer, own)

    # -- what peers tell

    def came(self, peer: str, connection: object) -> None:
        """The peer has made this connection, and greeted; it has told nothing on it yet."""
        self._told[peer] = (connection, None)

    def told(self, peer: str, connection: object, alarms: AlarmsInForce) -> None:
        """The peer says on this connection which alarms are in force there."""
        if self._is_newest(peer, connection):
            self._told[peer] = (connection, alarms)

    def left(self, peer: str, connection: object) -> None:
        """This connection has ended."""
        if self._is_newest(peer, connection):
            del self._told[peer]

    def of(self, peer: str) -> list[str] | None:
        """Why publishers are blocked there, or would be, in the words of a node's own alarms; None: it is not known."""
        _, alarms = self._told.get(peer, (None, None))
        if alarms is None or peer not in self._links:
            return None
        return [reason for reason, on in ((LOW_ON_MEMORY, alarms.memory), (LOW_ON_DISK, alarms.disk)) if on]

    def _is_newest(self, peer: str, connection: object) -> bool:
        return peer in self._told and self._told[peer][0] is connection
