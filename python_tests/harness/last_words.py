"""What a broker says to a client that it closes since its node serves no more (docs/protocol.md, "Who is primary")."""

from __future__ import annotations

import sys

from broker_plugin.embedded.errors import UNANSWERED_NOT_DONE


def raised_not_done() -> bool:
    """To be asked where an exception goes by: whether it says that what was not answered was not done."""
    return told_not_done(sys.exc_info()[1])


def told_not_done(error: BaseException | None) -> bool:
    """Whether the broker has closed the connection with this word; clients wrap its error in others."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if UNANSWERED_NOT_DONE in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False
