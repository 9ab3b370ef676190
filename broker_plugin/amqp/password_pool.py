"""PasswordPool: passwords are verified in threads, few at a time, so that logins hold up no turn of the loop.

Promise: one that sends many wrong passwords makes others wait for a verification or two, whatever it sends; and a
password that was right once is known again at once, as long as nothing of its user has changed.

What waits stands in a line for each network address, and the lines take turns. The same password of the same user is
verified once for all that wait for it: after a take-over all clients of a user log in at once. What was right is
remembered as an HMAC by a key of this process, over the hash that was kept and the password; a hash that takes its
place makes another HMAC. What waits and is not wanted any more, as its client is gone, is passed over.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from broker_plugin.amqp.protocol.logins import network_of
from broker_plugin.amqp.protocol.passwords import SALT_BYTES, is_current, is_hash, is_slow, matches, new_hash
from broker_plugin.amqp.protocol.sasl import Credentials
from broker_plugin.guard import Guard

MOST_WORKERS = 4
"""Verifications at a time: half as many as there are processors, one at least, and never more than these"""
REMEMBERED = 10_000
"""Passwords that were right; of more, the one that was asked for the longest ago is forgotten"""

Then = Callable[[bool], None]
Renewed = Callable[[str, str, str], None]
"""Told a user, the hash that was verified, and the one that is to take its place."""


def workers() -> int:
    """How many verifications run at a time."""
    return max(1, min(MOST_WORKERS, (os.cpu_count() or 1) // 2))


class _Waiter(NamedTuple):
    then: Then
    wanted: Callable[[], bool]


class _Job(NamedTuple):
    """One password of one user, and who waits for it. ``kept``: None if there is no such user."""

    key: bytes
    kept: str | None
    credentials: Credentials
    waiters: list[_Waiter]

    @property
    def wanted(self) -> bool:
        return any(each.wanted() for each in self.waiters)


class _Verdict(NamedTuple):
    right: bool
    fresh: str | None


class PasswordPool:
    """PasswordChecks of a node. ``renewed`` is told the stronger hash of a password that was right."""

    def __init__(self, guard: Guard, renewed: Renewed = lambda user, kept, fresh: None) -> None:
        self._guard = guard
        self._renewed = renewed
        self._most = workers()
        self._executor = ThreadPoolExecutor(self._most, "txha-passwords")
        self._secret = secrets.token_bytes(32)
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._jobs: dict[bytes, _Job] = {}
        self._lines: OrderedDict[str, deque[_Job]] = OrderedDict()
        self._running = 0

    def check(
        self, kept: str | None, credentials: Credentials, address: str, then: Then, wanted: Callable[[], bool]
    ) -> None:
        """At once where that is cheap or the answer is known; else when its turn comes."""
        key = self._key(kept, credentials)
        if key in self._right:
            self._right.move_to_end(key)
            then(True)
            return
        if not is_slow(kept):
            right = matches(kept, credentials.password)
            then(right)
            if not right or kept is None or not is_hash(kept):
                return
            then, wanted = _nothing, _always  # its hash is weak, and made anew
        job = self._jobs.get(key)
        if job is None:
            job = self._jobs[key] = _Job(key, kept, credentials, [])
            self._lines.setdefault(network_of(address), deque()).append(job)
        job.waiters.append(_Waiter(then, wanted))
        self._start()

    async def run(self, work: Callable[[], str]) -> str:
        """Do other work of this kind, such as making a hash, in one of these threads."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def stop(self) -> None:
        """Verify nothing more."""
        self._lines.clear()
        self._jobs.clear()
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _start(self) -> None:
        while self._running < self._most and (job := self._next()) is not None:
            self._running += 1
            self._begin(job)

    def _begin(self, job: _Job) -> None:
        self._guard.run_in_executor(
            self._executor, lambda: _verified(job), lambda future: self._done(job, future.result())
        )

    def _next(self) -> _Job | None:
        """The first of the line whose turn it is, that is still wanted."""
        while self._lines:
            address, line = self._lines.popitem(last=False)
            while line:
                job = line.popleft()
                if job.wanted:
                    if line:
                        self._lines[address] = line  # behind all others
                    return job
                del self._jobs[job.key]
        return None

    def _done(self, job: _Job, verdict: _Verdict) -> None:
        self._running -= 1
        self._jobs.pop(job.key, None)
        if verdict.right:
            self._remember(job.key)
        if verdict.fresh is not None and job.kept is not None:
            self._remember(self._key(verdict.fresh, job.credentials))
            self._renewed(job.credentials.user, job.kept, verdict.fresh)
        for each in job.waiters:
            each.then(verdict.right)
        self._start()

    def _remember(self, key: bytes) -> None:
        self._right[key] = None
        if len(self._right) > REMEMBERED:
            self._right.popitem(last=False)

    def _key(self, kept: str | None, credentials: Credentials) -> bytes:
        """Of no user: of all names alike, since none of them is right."""
        text = f"{kept or ''}\0{credentials.password}"
        return hmac.digest(self._secret, text.encode("utf-8", "surrogateescape"), "sha256")


def _verified(job: _Job) -> _Verdict:
    """In a thread."""
    right = matches(job.kept, job.credentials.password)
    weak = right and job.kept is not None and not is_current(job.kept)
    return _Verdict(right, new_hash(job.credentials.password, secrets.token_bytes(SALT_BYTES)) if weak else None)


def _nothing(right: bool) -> None:
    """It is told already."""


def _always() -> bool:
    return True
