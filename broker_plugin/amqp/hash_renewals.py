"""HashRenewals: a weak hash of a password is made anew when a login has shown the password.

Promise: each user whose hash is weak has it made anew by a login at a time when the cluster takes it. What was made and
not taken, as there was no primary, is kept and given again at the user's next login; it is not made twice. One hash of
a user is made or given at a time, however often the user logs in.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable

from broker_plugin.amqp.protocol.passwords import SALT_BYTES, new_hash
from broker_plugin.amqp.protocol.sasl import Credentials
from broker_plugin.amqp.thread_lines import ThreadLines

MOST_RENEWALS = 10_000
"""Users whose hashes are being made anew, or wait to be taken; of more, the one who logged in the longest ago is
forgotten, and has another one made at the next login"""
LINE = "renewals"
"""In which all of them wait: it takes turns with the lines of the networks that logins come from"""

Taken = Callable[[bool], None]
"""Told whether the renewal is over: the hash stands in the place of the weak one, or need not any more"""
Renewed = Callable[[str, str, str, Taken], None]
"""Told a user, the hash that was verified, and the one that is to take its place"""


class HashRenewals:
    """``made``: told a user's password, and the hash of it that was made."""

    def __init__(self, lines: ThreadLines, renewed: Renewed, made: Callable[[Credentials, str], None]) -> None:
        self._lines = lines
        self._renewed = renewed
        self._made = made
        self._of: OrderedDict[str, _Renewal] = OrderedDict()

    def begin(self, kept: str, credentials: Credentials) -> None:
        """A login has shown that these credentials are right by ``kept``, which is weak."""
        renewal = self._of.get(credentials.user)
        if renewal is not None and renewal.under_way:
            return
        if renewal is None or renewal.kept != kept:
            renewal = self._of[credentials.user] = _Renewal(kept)
        self._of.move_to_end(credentials.user)
        if len(self._of) > MOST_RENEWALS:
            self._of.popitem(last=False)
        renewal.under_way = True
        if renewal.fresh is None:
            self._lines.put(LINE, _Making(credentials, lambda fresh: self._give(renewal, credentials, fresh)))
        else:
            self._give(renewal, credentials, renewal.fresh)

    def _give(self, renewal: _Renewal, credentials: Credentials, fresh: str) -> None:
        renewal.fresh = fresh
        self._made(credentials, fresh)

        def taken(over: bool) -> None:
            renewal.under_way = False
            if over and self._of.get(credentials.user) is renewal:
                del self._of[credentials.user]

        self._renewed(credentials.user, renewal.kept, fresh, taken)


class _Renewal:
    """Of one user's weak hash ``kept``. ``fresh``: what is to take its place, once it is made."""

    def __init__(self, kept: str) -> None:
        self.kept = kept
        self.fresh: str | None = None
        self.under_way = False


class _Making:
    """Task: a hash is made."""

    wanted = True

    def __init__(self, credentials: Credentials, then: Callable[[str], None]) -> None:
        self.credentials = credentials
        self._then = then

    def work(self) -> str:
        return new_hash(self.credentials.password, secrets.token_bytes(SALT_BYTES))

    def done(self, result: str) -> None:
        self._then(result)

    def dropped(self) -> None:
        """It is always wanted."""
