"""JoinGuard: where a backup must have got to before it counts (seed 001, PROTOCOL "A joiner").

The guard stands at the primary's tail of the moment when the backup was attached. Everything behind it reaches the
backup as it is made, so once the backup's log is durable up to the guard it lacks nothing: it takes part in
transactions from then on, and its acknowledgement is waited for. A backup that has got there and lacks much of what
was made meanwhile gets another guard, at the tail of that moment, as if it had been attached only then.
"""

from __future__ import annotations


class JoinGuard:
    """A guard at stream sequence ``at``."""

    def __init__(self, at: int) -> None:
        self.at = at

    def passed(self, acknowledged: int) -> bool:
        """Whether a backup that is durable up to ``acknowledged`` is past the guard."""
        return acknowledged >= self.at
