"""Greeting: the first message of every connection between nodes, both ways, and what two nodes agree on by it.

A node speaks all versions of the peer protocol from the oldest to the newest that it names, and two nodes speak the
newest that both know. What came into one version later is a *feature* with a name: it is used where both name it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from ha.messages.beats import BEATS_FEATURE
from ha.messages.election import HANDOVER_FEATURE
from txobserver.access import USERS_FEATURE
from txobserver.actions import CERTIFICATES_FEATURE, MEMBERS_FLAG
from txobserver.calls import CALLS_FEATURE

LEASE_FEATURE = "lease"
"""Of a node that waits for ``Settings.lease_ttl`` before it stands, and not for ``Settings.lease_before``"""
WIRE_VERSION = 5
OLDEST_VERSION = 5
"""Version 4 is that of versions before 0.1.0, which speak with their own only."""
FEATURES: frozenset[str] = frozenset(
    {CALLS_FEATURE, USERS_FEATURE, BEATS_FEATURE, CERTIFICATES_FEATURE, HANDOVER_FEATURE, MEMBERS_FLAG, LEASE_FEATURE}
)
"""What this version of txha knows beside the newest version of the protocol."""
NO_PEERS: Mapping[str, frozenset[str]] = MappingProxyType({})
"""The features of each peer that can be reached, where none can"""
INTRODUCTIONS = "introductions"
"""A feature of a node's door for clients, which the core does not know: other nodes may say there where a client comes
from that they pass on."""

INTRODUCTIONS_TLS = "introductions_tls"
"""The same over TLS: what they say there, how each client has come, is understood. ``Hello`` says where."""


class Hello(msgspec.Struct, array_like=True, tag=0):
    """First message of every connection, both ways: who this is, and where its clients connect.

    ``version`` is the newest that it speaks and ``oldest`` the oldest; 0, from before 0.1.0, says that ``version`` is
    the only one. No version in common is refused with a sentence, another cluster as well, and so is a cluster of the
    same name that was founded apart (``cluster_id``, see ``ha.membership.record.Record``). ``amqps_port`` is 0 where no
    client is served by TLS.
    """

    version: int
    cluster: str
    node: str
    amqp_host: str
    amqp_port: int
    cluster_id: str = ""
    oldest: int = 0
    features: list[str] = []
    amqps_host: str = ""
    amqps_port: int = 0


class Agreed(NamedTuple):
    """The version that two nodes speak, and the features that both know."""

    version: int
    features: frozenset[str]


def greeting(
    cluster: str, node: str, amqp_host: str, amqp_port: int, cluster_id: str = "", others: Collection[str] = ()
) -> Hello:
    """What a node of this version says first. ``others``: features that it has beside those of the core."""
    features = sorted({*FEATURES, *others})
    return Hello(WIRE_VERSION, cluster, node, amqp_host, amqp_port, cluster_id, OLDEST_VERSION, features)


def agreed(ours: Hello, theirs: Hello) -> Agreed:
    """The newest common version, and what both know. Raises ValueError, with who is to be upgraded, if there is none.

    Both sides come to the same, whichever of them asks.
    """
    version = min(ours.version, theirs.version)
    if version < max(_oldest(ours), _oldest(theirs)):
        older = theirs.node if theirs.version < ours.version else ours.node
        raise ValueError(
            f"it speaks {_versions(theirs)} of the peer protocol and this node {_versions(ours)}: upgrade node {older}"
        )
    return Agreed(version, frozenset(ours.features) & frozenset(theirs.features))


def _oldest(hello: Hello) -> int:
    return hello.oldest or hello.version


def _versions(hello: Hello) -> str:
    oldest = _oldest(hello)
    return f"version {oldest}" if oldest == hello.version else f"versions {oldest} to {hello.version}"
