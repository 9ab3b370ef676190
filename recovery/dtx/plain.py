"""A plain transaction (class tx) whose outcome can be asked for: a token names it before it is committed."""

from __future__ import annotations

import contextlib

from recovery.dtx.arguments import check_token
from recovery.dtx.conversation import Conversation, Lost, Plain, Refused, Steps
from recovery.dtx.errors import DatabaseError, OutcomeUnknown, ProgrammingError, RolledBack
from txobserver.dtx_wire import BY_TOKEN, Token, XidFields
from txobserver.dtx_wire import Outcome as AskOutcome
from txobserver.outcomes import BranchOutcome

REFUSED_TOKEN = (530, 542)
"""Codes that are the token's own; any other says that something before it went wrong."""


class PlainTransactions(Conversation):
    """The transactions of a channel in tx mode, one after the other."""

    def commit(self, token: bytes) -> Steps[None]:
        """tx.commit under this token; a lost answer is asked for.

        Raises RolledBack, OutcomeUnknown, and ProgrammingError for a token that cannot be or is in use, in which case
        the transaction has been rolled back, too.
        """
        try:
            check_token(token)
        except ProgrammingError:
            yield from self.rollback()
            raise
        try:
            since = (yield from self.ask(Token(token))).since
        except Lost as loss:
            yield from self._another_channel()
            raise RolledBack(f"the connection was lost before the commit was sent: {loss}") from loss
        except DatabaseError as error:
            if error.code in REFUSED_TOKEN:
                raise
            raise RolledBack(str(error), error.code) from error
        try:
            yield from self.ask(Plain.COMMIT)
        except Lost:
            yield from self._after_loss(token, since)
        except DatabaseError as error:
            raise RolledBack(str(error), error.code) from error

    def rollback(self) -> Steps[None]:
        """tx.rollback. A lost connection, or a closed channel, has rolled back by itself."""
        try:
            yield Plain.ROLLBACK
        except (Lost, Refused):
            yield from self._another_channel()

    def outcome(self, token: bytes) -> Steps[BranchOutcome]:
        """What became of the transaction with this token. Raises OperationalError, ProgrammingError."""
        return BranchOutcome((yield from self.insist(_question(token))).outcome)

    def _another_channel(self) -> Steps[None]:
        with contextlib.suppress(Lost):
            yield from self.reopen(self.deadline())

    def _after_loss(self, token: bytes, since: int) -> Steps[None]:
        """Ask until it has ended: while an earlier connection seems to live, the commit may still arrive.

        ``since``: how far the broker was when it took the token.
        """
        deadline, what = self.deadline(), f"the transaction with token {token!r}"
        while True:
            with contextlib.suppress(Lost):
                yield from self.reopen(deadline)
                outcome = deadline.outcome = BranchOutcome((yield from self.ask(_question(token, since))).outcome)
                if outcome is BranchOutcome.COMMITTED:
                    return
                if outcome in (BranchOutcome.ROLLED_BACK, BranchOutcome.UNKNOWN):
                    raise RolledBack(f"{what} has not been committed")
                if outcome is BranchOutcome.EXPIRED:
                    raise OutcomeUnknown(f"{what} is not remembered (any more)", outcome)
            yield from deadline.wait(what)


def _question(token: bytes, since: int = 0) -> AskOutcome:
    check_token(token)
    return AskOutcome(BY_TOKEN, XidFields(0, token, b""), since)
