"""For coordinators of other databases: what a resource has to do, who decides, and the recovery run.

``Broker`` and ``Postgresql`` are such resources, ``DecisionLog`` and ``TableDecisions`` such decisions.
"""

from __future__ import annotations

from recovery.coordinator.coordinated_branches import CoordinatedBranches
from recovery.coordinator.decisions import Decision, Decisions
from recovery.coordinator.names import GlobalName, branch_xid, new_global_name
from recovery.coordinator.recover import Row, recover, recover_with_each
from recovery.coordinator.resources import Participant, Resource

__all__ = [
    "Resource",
    "Participant",
    "CoordinatedBranches",
    "Decisions",
    "Decision",
    "GlobalName",
    "new_global_name",
    "branch_xid",
    "recover",
    "recover_with_each",
    "Row",
]
