"""PasswordPool: passwords are verified in threads, few at a time, so that logins hold up no turn of the loop.

Promise: one that sends many wrong passwords makes others wait for a verification or two, whatever it sends; and a
password that was right once is known again at once, as long as nothing of its user has changed.

What waits stands in a line for each network address, and the lines take turns. The same password of the same user is
verified once for all that wait for it: after a take-over all clients of a user log in at once. What was right is
remembered as an HMAC by a key of this process, over the user, the hash that was kept and the password; a hash that
takes its place makes another HMAC. What waits and is not wanted any more, as its client is gone, is passed over. A hash
that is weak is made anew, by whichever login of its user comes at a time when that can be.
"""

from __future__ import annotations

import hmac
import os
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from broker_plugin.amqp.hash_renewals import HashRenewals, Renewed
from broker_plugin.amqp.protocol.logins import network_of
from broker_plugin.amqp.protocol.passwords import is_current, is_hash, is_slow, matches
from broker_plugin.amqp.protocol.sasl import Credentials
from broker_plugin.amqp.thread_lines import ThreadLines
from broker_plugin.guard import Guard

MOST_WORKERS = 4
"""Verifications at a time: half as many as there are processors, one at least, and never more than these"""
REMEMBERED = 10_000
"""Passwords that were right; of more, the one that was asked for the longest ago is forgotten"""

Then = Callable[[bool], None]


def workers() -> int:
    """How many verifications run at a time."""
    return max(1, min(MOST_WORKERS, (os.cpu_count() or 1) // 2))


class _Waiter(NamedTuple):
    then: Then
    wanted: Callable[[], bool]


class PasswordPool:
    """PasswordChecks of a node. ``renewed`` is told the stronger hash of a password that was right."""

    def __init__(self, guard: Guard, renewed: Renewed = lambda user, kept, fresh, taken: taken(True)) -> None:
        self._lines = ThreadLines(guard, workers())
        self._renewals = HashRenewals(
            self._lines, renewed, lambda credentials, fresh: self._remember(self._key(fresh, credentials))
        )
        self._secret = secrets.token_bytes(32)
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._jobs: dict[bytes, _Job] = {}

    def check(
        self, kept: str | None, credentials: Credentials, address: str, then: Then, wanted: Callable[[], bool]
    ) -> None:
        """At once where that is cheap or the answer is known; else when its turn comes."""
        key = self._key(kept, credentials)
        if key in self._right:
            self._right.move_to_end(key)
            self._tell(True, kept, credentials, [then])
        elif not is_slow(kept):
            self._tell(matches(kept, credentials.password), kept, credentials, [then])
        elif (job := self._jobs.get(key)) is not None:
            job.waiters.append(_Waiter(then, wanted))
        else:
            job = self._jobs[key] = _Job(self, key, kept, credentials)
            job.waiters.append(_Waiter(then, wanted))
            self._lines.put(network_of(address), job)

    def stop(self) -> None:
        """Verify nothing more."""
        self._lines.stop()
        self._jobs.clear()

    def verified(self, job: _Job, right: bool) -> None:
        """A job is done."""
        self.forget(job)
        if right:
            self._remember(job.key)
        self._tell(right, job.kept, job.credentials, [each.then for each in job.waiters])

    def forget(self, job: _Job) -> None:
        """It is not waited for any more."""
        self._jobs.pop(job.key, None)

    def _tell(self, right: bool, kept: str | None, credentials: Credentials, waiting: list[Then]) -> None:
        """The verdict to all that wait for it; and of a right one's hash, whether it is strong."""
        for then in waiting:
            then(right)
        if right and kept is not None and is_hash(kept) and not is_current(kept):
            self._renewals.begin(kept, credentials)

    def _remember(self, key: bytes) -> None:
        self._right[key] = None
        if len(self._right) > REMEMBERED:
            self._right.popitem(last=False)

    def _key(self, kept: str | None, credentials: Credentials) -> bytes:
        """Of no user: of all names alike, since none of them is right."""
        user, hash_ = ("", "") if kept is None else (credentials.user, kept)
        text = f"{len(user)}\0{user}\0{hash_}\0{credentials.password}"
        return hmac.digest(self._secret, text.encode("utf-8", "surrogateescape"), "sha256")


class _Job:
    """Task: one password of one user, and who waits for it. ``kept``: None if there is no such user."""

    def __init__(self, pool: PasswordPool, key: bytes, kept: str | None, credentials: Credentials) -> None:
        self.key = key
        self.kept = kept
        self.credentials = credentials
        self.waiters: list[_Waiter] = []
        self._pool = pool

    @property
    def wanted(self) -> bool:
        return any(each.wanted() for each in self.waiters)

    def work(self) -> bool:
        return matches(self.kept, self.credentials.password)

    def done(self, result: bool) -> None:
        self._pool.verified(self, result)

    def dropped(self) -> None:
        self._pool.forget(self)
