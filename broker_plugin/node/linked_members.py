"""Whom a node dials and whom it lets greet: the members in the coordination record, or the peers in its own file."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from broker_plugin.logs.formats import tell
from broker_plugin.logs.link_events import AddressDiffers
from broker_plugin.node.links import Links, PeerAddress
from ha.core import NodeCore
from ha.membership.belonging import membership_of, objection_to
from ha.membership.members import ANY_ADDRESS, ClusterNode, Membership, shown

log = logging.getLogger("txha.links")


class LinkedMembers:
    """Of one node. ``configured``: the peers that its file lists; ``own``: where the file lets it listen."""

    def __init__(self, core: NodeCore, links: Links, configured: Sequence[PeerAddress], own: PeerAddress) -> None:
        self._core = core
        self._links = links
        self._configured = list(configured)
        self._own = own
        self._seen: Membership | msgspec.UnsetType = msgspec.UNSET
        self._told: tuple[str, int] | None = None
        core.founding = tuple(ClusterNode(each.name, each.host, each.port) for each in (own, *configured))

    def look(self) -> None:
        """A turn has ended: another record may be known. Between changes it costs a comparison."""
        record = self._core.record
        found = record.membership if record is not None else msgspec.UNSET
        if found == self._seen:
            return
        self._seen = found
        membership = membership_of(record)
        if record is None or membership is None:
            self._links.follow(self._configured)
        elif objection_to(record, self._core.member) is not None:
            self._links.follow([])
        else:
            others = [each for each in membership.nodes if each.name != self._own.name]
            self._links.follow([PeerAddress(each.name, each.host, each.port) for each in others])
            self._compare(membership.find(self._own.name))

    def _compare(self, listed: ClusterNode | None) -> None:
        """Say once where the record has other nodes look for this one, if that is not where it listens."""
        own = self._own
        if listed is None or (listed.host, listed.port) == self._told:
            return
        self._told = listed.host, listed.port
        if listed.port != own.port or (listed.host != own.host and own.host not in ANY_ADDRESS):
            where = shown(listed.host, listed.port), shown(own.host, own.port)
            tell(log, logging.WARNING, AddressDiffers(own.name, *where))
