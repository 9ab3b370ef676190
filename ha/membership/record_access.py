"""RecordAccess: whether a node has reason to think that it cannot change the coordination record.

Candidates let the greatest log stand, so a ready member that answers them and can do nothing itself would keep every
other node from standing, for as long as it lives (``ready_member_without_the_record``). So one in doubt gives its
precedence up: it says of its log what a node without a whole store says, ranks itself so, and stands only where no
other node does.

That loses nothing acknowledged. What is acknowledged has been made durable by every member of the ready set first, or
the member was taken out before, and a candidate is a member of the very version that its compare-and-set demands. So
any candidate holds all of it, wherever its log ends. Precedence only keeps, beyond the promise, what was still on its
way to a backup, of which no client has been told. Neither the lease nor the compare-and-set asks who ranks first.

Where several members cannot, each must stay in doubt until all others of them have had their turn. So the doubt doubles
with each failure in a row, and only a lease that was kept ends the row: one that is promoted too late to have a lease
would clear itself by that (``ready_members_whose_changes_land_late_take_turns``).
"""

from __future__ import annotations

import math

DOUBTED_LEASES = 3
"""For so many lease times a change that came to nothing is held against one's own access: another candidate needs one
to see that no primary renews, and then asks and stands."""
MOST_DOUBTED_LEASES = 48
"""The longest that it is, after several in a row: in that time six others have had their turn. One of them takes a
lease in which no primary renews, and two that its change is waited for."""


class RecordAccess:
    """What this node has seen of its own readings and changes, in any role. Times are the shell's monotonic seconds."""

    def __init__(self, lease_ttl: float) -> None:
        self._lease_ttl = lease_ttl
        self._failed_at = -math.inf
        self._doubted_leases = 0
        self._read_at = -math.inf

    def read(self, now: float) -> None:
        """A reading has come. It says nothing of changes."""
        self._read_at = now

    def answered(self, in_time: bool, now: float) -> None:
        """A change of the role that the node has now was answered; ``in_time``: while it has its lease still."""
        self._read_at = now
        if in_time:
            self._failed_at, self._doubted_leases = -math.inf, 0

    def failed(self, now: float) -> None:
        """What became of a change is not known, or it came too late to have or to renew the lease.

        What fails within a lease of another failure is of the same attempt.
        """
        if now - self._failed_at >= self._lease_ttl:
            self._doubted_leases = min(2 * self._doubted_leases or DOUBTED_LEASES, MOST_DOUBTED_LEASES)
        self._failed_at = now

    def reads(self, now: float) -> bool:
        """Whether a reading has come within a lease: only such a node knows that a version stands still."""
        return now - self._read_at <= self._lease_ttl

    def doubtful(self, under_way_since: float, now: float) -> bool:
        """``under_way_since``: when the change was sent that is not answered yet; infinite if there is none."""
        return (
            now - self._failed_at < self._doubted_leases * self._lease_ttl
            or not self.reads(now)
            or now - under_way_since > self._lease_ttl
        )
