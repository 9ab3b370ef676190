"""Which commands of the administration wait for other nodes, for the disk, or for the verification of a password.

A command that is not named here may wait, and comes to its end by itself when its asker has gone.
"""

from __future__ import annotations

from typing import Final

from broker_plugin.admin.places import Waits

WAITS: Final = Waits(
    at_once=frozenset(
        {
            *("status", "transactions", "promote"),
            *("door.health", "door.nodes", "changes.list", "users.list", "rules.list"),
            *("metrics.node", "metrics.totals", "metrics.queues"),
            *("dtx.list", "dtx.show"),
            *("calls.status", "calls.list", "calls.inspect"),  # they do without the primary after two seconds
        }
    ),
    lasting=frozenset({"calls.call"}),
)
