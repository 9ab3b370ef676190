"""Releases of txha that nodes of one cluster run, as far as they differ in what they know and speak.

All nodes run the product as it is. One of an older release does not know a step of configuration, and so refuses it
where it is received, read or made, and names no feature; one that is older still speaks only an earlier protocol. A
message whose feature a node does not name it cannot read: as a decoder of such a release, it ends the connection.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import msgspec

from ha.messages.beats import BEATS_FEATURE
from ha.messages.greeting import FEATURES, LEASE_FEATURE, OLDEST_VERSION, WIRE_VERSION, Hello
from ha.settings import Settings
from tests.support.since import feature_of_message
from txobserver.actions import SHIPPED, ActionRegistry
from txobserver.configuration import DECLARE_EXCHANGE, OPERATIONS

YOUNG = DECLARE_EXCHANGE
"""A step that the older releases do not know: clients of a run ask for it now and then, and can do without"""
FEATURE = "exchanges"
"""What a node names that knows it"""


@dataclass(frozen=True)
class Release:
    """``operations``: the steps of configuration that it knows; ``actions``: what cluster calls may name; ``version``,
    ``oldest``: which protocols it speaks."""

    name: str
    operations: frozenset[str] = OPERATIONS
    features: frozenset[str] = FEATURES
    actions: ActionRegistry = SHIPPED
    version: int = WIRE_VERSION
    oldest: int = OLDEST_VERSION

    def reads(self, message: Any) -> bool:
        """Whether its decoder knows this kind of message."""
        feature = feature_of_message(message.__struct_config__.tag)
        return feature is None or feature in self.features

    @property
    def waits(self) -> bool:
        """Whether its nodes wait for the whole lease before they stand."""
        return LEASE_FEATURE in self.features

    def settings(self, settings: Settings) -> Settings:
        """Those of a node of this release, where all have the same file."""
        if self.waits or not settings.lease_before:
            return settings
        return replace(settings, lease_ttl=settings.lease_before, lease_before=0.0)

    def greets(self, hello: Hello) -> Hello:
        """What a node of this release says first, where one of today's says ``hello``."""
        return msgspec.structs.replace(hello, version=self.version, oldest=self.oldest, features=sorted(self.features))


TODAY = Release("today's")
NEWER = Release("the newer", features=frozenset({FEATURE, BEATS_FEATURE, LEASE_FEATURE}))
OLDER = Release("the older", OPERATIONS - {YOUNG}, features=FEATURES - {BEATS_FEATURE, LEASE_FEATURE})
OLDEST = Release(
    "the oldest",
    OPERATIONS - {YOUNG},
    features=FEATURES - {BEATS_FEATURE, LEASE_FEATURE},
    version=WIRE_VERSION - 1,
    oldest=WIRE_VERSION - 1,
)


def understand(one: Hello, other: Hello) -> bool:
    """Whether there is a version of the protocol that both speak."""
    return max(one.oldest, other.oldest) <= min(one.version, other.version)
