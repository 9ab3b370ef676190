"""What a broker says to a client that it closes since its node serves no more (docs/protocol.md, "Who is primary")."""

from __future__ import annotations

import re
import sys

from broker_plugin.embedded.errors import UNANSWERED_NOT_DONE, UNANSWERED_UNKNOWN_ON

_BUT = re.compile(re.escape(UNANSWERED_UNKNOWN_ON) + r"([0-9,]+):")


def raised_not_done(channel: int) -> bool:
    """To be asked where an exception goes by: whether it says that what was not answered on this channel was not
    done."""
    return told_not_done(sys.exc_info()[1], channel)


def told_not_done(error: BaseException | None, channel: int) -> bool:
    """Whether the broker has closed the connection with this word; clients wrap its error in others."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if UNANSWERED_NOT_DONE in str(error):
            return True
        if found := _BUT.search(str(error)):
            return str(channel) not in found[1].split(",")
        error = error.__cause__ or error.__context__
    return False
