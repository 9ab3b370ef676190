"""What is decided of a global transaction, and who may decide it: the one place that coordinator and recovery agree on.

Presumed abort: until a commit is recorded there is nothing durable, and who finds a prepared branch without a record
may roll it back. But only after it has recorded the abort: a coordinator that is merely slow would else commit
what was rolled back. So a decision is a compare-and-set, and the first one stands.

A recorded abort may be forgotten after ``ABORT_KEPT``: a coordinator whose transaction is older than
``LONGEST_TRANSACTION`` decides nothing any more. Clocks are set, and do not agree, so this rests on none of them alone.
A log says until when the transactions began, by their names, of which it has forgotten an abort, and takes no commit of
one that began so early. For a table the age of a transaction counts by the clock of its server, which forgets the
abort, as well as by the coordinator's. A commit that every participant has carried out may be forgotten, too. A log
remembers it for ``ENDED_KEPT``, because a participant may take a step back: a database goes on with a standby that has
the prepare, and not the commit that was answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from recovery.coordinator.names import GlobalName
from recovery.coordinator.resources import Participant
from txobserver.errors import Error
from txobserver.xid import Xid

LONGEST_TRANSACTION = 24 * 3600.0
"""Seconds, on the clock of the coordinator that also counts the time when the machine sleeps; at a table, on the clock
of its server as well."""
TOO_OLD = "the transaction is too old to be decided"
ABORT_KEPT = 2 * LONGEST_TRANSACTION
"""Seconds for which a recorded abort is kept at least, on the clock of who forgets it."""
ENDED_KEPT = 600.0
"""Seconds for which a log keeps a commit at least after every participant has carried it out."""


class Decision(NamedTuple):
    """What was decided, when (seconds since 1970), and for whom: a commit names all who prepared."""

    commit: bool
    at: float
    participants: tuple[Participant, ...] = ()


class DecisionUnknown(Error):
    """Raised when a decision may be durable or not: it must not be acted on before the log or table was read anew."""


class DecisionRefused(Error):
    """Raised when the log or table cannot be read, or could not take a decision, and has not: there is none."""


class Decisions(Protocol):
    """Decisions of one coordinator or many; ``whose`` begins the names of the transactions that hang on them."""

    @property
    def whose(self) -> str:
        """The id."""

    def new_name(self) -> GlobalName:
        """For a transaction that begins now."""

    def owns(self, xid: Xid) -> GlobalName | None:
        """The global transaction of a branch if it hangs on these decisions; None for those of all others."""

    def decide(self, name: str, commit: bool, participants: Sequence[Participant] = ()) -> bool:
        """Record the decision durably unless there is one already; returns the one that stands.

        Raises DecisionRefused, DecisionUnknown.
        """

    def decision(self, name: str) -> Decision | None:
        """The decision that stands, durable; None if there is none (or it has been forgotten).

        A commit that has ended stands for as long as it is remembered.
        """

    def unfinished(self) -> dict[str, Decision]:
        """Commits, by name, that not every participant is known to have carried out."""

    def finish(self, name: str) -> None:
        """Every participant has carried out the commit: it may be forgotten."""


@runtime_checkable
class FencedDecisions(Decisions, Protocol):
    """Decisions of which there may be an older copy, which lacks some: what depends on those is recognised.

    The last branch of a transaction prepares behind its intent, and says so in its name. So where that branch is
    prepared and there is no intent, the decisions are older than it.
    """

    def fenced_name(self, last: str) -> GlobalName:
        """For a transaction that begins now, whose branch ``last`` prepares behind its intent, if it takes part."""

    def intend(self, name: str, participants: Sequence[Participant], last: str) -> None:
        """Every branch but the last has prepared. When this returns, the intent is durable.

        ``last``: the resource of the last branch. Raises DecisionRefused, DecisionUnknown.
        """

    def intent(self, name: str) -> tuple[Participant, ...] | None:
        """Who had prepared when the last branch was about to; None if there is no intent, or it has been decided."""

    def may_have_forgotten(self, name: str) -> bool:
        """Whether the transaction may have had an intent or an abort that is not kept any more."""

    def resources(self) -> tuple[str, ...]:
        """Every resource that has taken part so far, but for those that are no more."""
