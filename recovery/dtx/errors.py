"""What goes wrong in a distributed transaction, as PEP 249 sorts it: brokers can be treated as databases are."""

from __future__ import annotations

from txobserver.errors import Error as Error
from txobserver.outcomes import BranchOutcome


class DatabaseError(Error):
    """Raised, in one of the classes below it, by a broker or database in a transaction, or on the way to it.

    ``code``: what the broker closed the channel with, if it did (docs/dtx.md).
    """

    def __init__(self, text: str = "", code: int | None = None) -> None:
        super().__init__(text)
        self.code = code


class ProgrammingError(DatabaseError):
    """Raised when a call comes at the wrong time, or has an argument that cannot be: the program must be mended.

    So for an xid or token that is in use or that none can be, a url that cannot be read, and on a closed connection.
    """


CLOSED = "the connection was closed: make another one"
"""A sentence for who works on with it."""


class UnknownXid(ProgrammingError):
    """Raised when the broker knows no branch of this xid, or knows it no more: 404."""


class NotSupportedError(DatabaseError):
    """Raised when a connection is made to a server that has no class dtx, such as RabbitMQ."""


class OperationalError(DatabaseError):
    """Raised when no host answers, and in the classes below it for all else that a program cannot help.

    When it is this class itself, the call has begun, committed and rolled back nothing; a ``decide`` or ``forget`` may
    have arrived, and can be repeated. OutcomeUnknown and HeuristicOutcome are below it, too: catch them before it.
    """


class StaleDelivery(OperationalError):
    """Raised when a message is settled that was delivered on a channel which is lost since.

    Nothing is settled. The message is in its queue again, and is delivered on another channel, with another tag.
    """


class Conflict(OperationalError):
    """Raised when the branch is in no state for this, or is decided otherwise or by another client just now: 409."""


class RolledBack(OperationalError):
    """Raised when a transaction was rolled back instead of prepared or committed: nothing of it takes effect."""


class TimedOut(RolledBack):
    """Raised when a branch was rolled back since it was not prepared within its timeout."""


class OutcomeUnknown(OperationalError):
    """Raised when the answer to a commit or rollback was lost, and nothing that could be asked tells how it ended.

    The transaction has happened as a whole or not at all, or will. ``outcome``: the last answer, None for none;
    PENDING, ACTIVE or PREPARED may become something else, EXPIRED and UNKNOWN do not.
    """

    def __init__(self, text: str = "", outcome: BranchOutcome | None = None) -> None:
        super().__init__(text)
        self.outcome = outcome


class HeuristicOutcome(OperationalError):
    """Raised, in one of the classes below it, when an operator has decided a branch before its coordinator did.

    It may have been decided as was wanted or otherwise; the broker remembers it until the branch is forgotten.
    ``outcome``: what was decided.
    """

    def __init__(self, text: str = "", outcome: BranchOutcome = BranchOutcome.UNKNOWN) -> None:
        super().__init__(text)
        self.outcome = outcome


class HeuristicCommit(HeuristicOutcome):
    """Raised when an operator has committed the branch."""


class HeuristicRollback(HeuristicOutcome):
    """Raised when an operator has rolled the branch back."""


class HeuristicMixed(HeuristicOutcome):
    """Raised when of a global transaction some branches were committed and some rolled back."""


HEURISTIC: dict[int, type[HeuristicOutcome]] = {
    BranchOutcome.HEURISTICALLY_COMMITTED: HeuristicCommit,
    BranchOutcome.HEURISTICALLY_ROLLED_BACK: HeuristicRollback,
    BranchOutcome.MIXED: HeuristicMixed,
}
"""By outcome, and by status: their numbers are the same."""


def refused(code: int, text: str) -> DatabaseError:
    """The error for a channel that was closed with this code (docs/dtx.md)."""
    kinds: dict[int, type[DatabaseError]] = {404: UnknownXid, 409: Conflict}
    return kinds.get(code, ProgrammingError)(f"{code} {text}", code)


def heuristic(what: str, outcome: int) -> HeuristicOutcome:
    """The error for one of the outcomes or statuses in HEURISTIC."""
    found = BranchOutcome(outcome)
    return HEURISTIC[found](f"{what}: {found.name.lower().replace('_', ' ')}", found)
