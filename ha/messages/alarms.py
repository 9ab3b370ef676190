"""Which alarms are in force at a node: told to each peer that names the feature ``alarms``.

It is of the node's shell and not of the core, so it carries no generation: the last one of a connection counts.
"""

from __future__ import annotations

import msgspec

ALARMS_FEATURE = "alarms"
"""A feature of a node's shell, which the core does not know: the node tells its alarms, and is told those of others."""


class AlarmsInForce(msgspec.Struct, array_like=True, tag=60, frozen=True):
    """At the node that sends it: whether it is short of memory, and of disk. All alarms that there are, each time."""

    memory: bool
    disk: bool


NO_ALARMS = AlarmsInForce(memory=False, disk=False)
