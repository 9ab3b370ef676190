"""What goes wrong in a distributed transaction, as PEP 249 sorts it: brokers can be treated as databases are."""

from __future__ import annotations

from txobserver.outcomes import Outcome


class Error(Exception):
    """Everything that this package raises on purpose."""


class DatabaseError(Error):
    """The resource, here a broker, or the way to it. ``code``: what the broker closed the channel with, if it did."""

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code


class ProgrammingError(DatabaseError):
    """A call at the wrong time, an xid or token that cannot be or is in use: the program must be mended."""


CLOSED = "the connection was closed: make another one"
"""A sentence for who works on with it."""


class UnknownXid(ProgrammingError):
    """There is no such branch (any more): 404."""


class NotSupportedError(DatabaseError):
    """The server has no class dtx."""


class OperationalError(DatabaseError):
    """What a program cannot help: no host answers, for example. What was to be done has not been done."""


class StaleDelivery(OperationalError):
    """A message was delivered on a channel that is lost. It is in its queue again, and is delivered on another one."""


class Conflict(OperationalError):
    """The branch is not in a state for this, or somebody else is deciding or has decided otherwise: 409."""


class RolledBack(OperationalError):
    """The transaction has been rolled back instead of prepared or committed."""


class TimedOut(RolledBack):
    """It was not prepared in time."""


class OutcomeUnknown(OperationalError):
    """The answer was lost, and no question was answered in time, or by nothing that tells the end.

    The transaction has happened as a whole or not at all. ``outcome``: the last answer, None for none; PENDING, ACTIVE
    or PREPARED may become something else, EXPIRED and UNKNOWN do not.
    """

    def __init__(self, text: str, outcome: Outcome | None) -> None:
        super().__init__(text)
        self.outcome = outcome


class HeuristicOutcome(OperationalError):
    """An operator has decided before, so or otherwise, and the broker remembers that until the branch is forgotten."""

    def __init__(self, text: str, outcome: Outcome) -> None:
        super().__init__(text)
        self.outcome = outcome


class HeuristicCommit(HeuristicOutcome):
    """He has committed it."""


class HeuristicRollback(HeuristicOutcome):
    """He has rolled it back."""


class HeuristicMixed(HeuristicOutcome):
    """Of a global transaction some was committed and some rolled back."""


HEURISTIC: dict[int, type[HeuristicOutcome]] = {
    Outcome.HEURISTICALLY_COMMITTED: HeuristicCommit,
    Outcome.HEURISTICALLY_ROLLED_BACK: HeuristicRollback,
    Outcome.MIXED: HeuristicMixed,
}
"""By outcome, and by status: their numbers are the same."""


def refused(code: int, text: str) -> DatabaseError:
    """The error for a channel that was closed with this code (docs/dtx.md)."""
    kinds: dict[int, type[DatabaseError]] = {404: UnknownXid, 409: Conflict}
    return kinds.get(code, ProgrammingError)(f"{code} {text}", code)


def heuristic(what: str, outcome: int) -> HeuristicOutcome:
    """The error for one of the outcomes or statuses in HEURISTIC."""
    found = Outcome(outcome)
    return HEURISTIC[found](f"{what}: {found.name.lower().replace('_', ' ')}", found)
