"""The promises P1 to P12 of PROTOCOL, and P13 of calls: a checker for each, in the order in which they are asked."""

from __future__ import annotations

from tests.simulation.branch_checkers import BranchAgreement, LockedStays, OneOutcome, PreparedIsListed, PreparedStays
from tests.simulation.call_checkers import CallsInOrder
from tests.simulation.checker import Checker
from tests.simulation.handover_checkers import Drained
from tests.simulation.link_checkers import LinkLife
from tests.simulation.member_checkers import Members
from tests.simulation.message_checkers import (
    Atomic,
    Counts,
    Durable,
    NoDuplicates,
    NoPhantom,
    NothingFromNowhere,
    Order,
)
from tests.simulation.name_checkers import Bindings, IfEmpty, SameNames
from tests.simulation.node_checkers import (
    Agreement,
    DurableBeforeAcknowledgement,
    DurableBeforeAnswer,
    Gate,
    Live,
    OneDecision,
    OnePrimary,
)
from tests.simulation.user_checkers import SameUsers
from tests.simulation.version_checkers import Versions

CHECKERS: tuple[type[Checker], ...] = (
    NothingFromNowhere,
    Atomic,
    Durable,
    NoDuplicates,
    NoPhantom,
    OneDecision,
    Agreement,
    Order,
    Gate,
    OnePrimary,
    DurableBeforeAnswer,
    DurableBeforeAcknowledgement,
    Counts,
    IfEmpty,
    Bindings,
    SameNames,
    PreparedStays,
    LockedStays,
    OneOutcome,
    BranchAgreement,
    PreparedIsListed,
    Versions,
    CallsInOrder,
    SameUsers,
    LinkLife,
    Drained,
    Members,
    Live,
)
