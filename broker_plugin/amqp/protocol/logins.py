"""Who may log in, from where, and how a refusal is told and slowed down.

Promise: a refused login is told with its user and address, in few lines however many there are; and one that guesses
passwords waits for each refusal longer and longer. A right password is never made to wait: clients that a backup passes
on, or that stand behind one router, have one address, and one of them could lock all others out.

Time comes from outside (``tick``), in seconds on a clock of the caller's choice.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from pamqp.commands import Connection

from broker_plugin.amqp.protocol.passwords import matches
from broker_plugin.amqp.protocol.sasl import EXTERNAL, Credentials, mechanisms, read_credentials
from broker_plugin.embedded.errors import AmqpError

LOOPBACK_ONLY = "guest"
"""The user whose password is known to all"""
FREE = 5
"""Refusals of an address that are answered at once"""
FIRST_DELAY = 0.5
LONGEST_DELAY = 5.0
"""Seconds: of the first refusal that waits, each further one waits twice as long, and never longer than that"""
FORGET_SECONDS = 60.0
"""After the last refusal of an address; then its refusals are answered at once again"""
TELL_SECONDS = 10.0
"""Between two lines of the log about one address, and the time in which there are at most TOLD lines about all"""
TOLD = 20
ADDRESSES = 1024
"""That are remembered; with more, the one whose last refusal is the longest ago is forgotten"""
SHOWN = 64
"""Characters of a user's name that a line of the log shows"""

Told = Callable[[str, str, int, str], object]
"""Told a user, an address, how many refusals of that address there are since it was told last, and why the last was."""


class UserBook(Protocol):
    """Whom a server lets in; a mapping is one."""

    def get(self, name: str, /) -> str | None:
        """What is kept of this user's password (``passwords``), or the password; None if there is no such user."""
        ...


@runtime_checkable
class NumberedBook(UserBook, Protocol):
    """One that tells a user from another one who had the name before."""

    def number(self, name: str, /) -> int | None:
        """Of this user; 0 where none has one yet, None if there is no such user."""
        ...


class PasswordChecks(Protocol):
    """Who verifies passwords."""

    def check(
        self,
        kept: str | None,
        credentials: Credentials,
        address: str,
        then: Callable[[bool], None],
        wanted: Callable[[], bool],
    ) -> None:
        """Call ``then`` with whether the password is the one that is kept; at once, or later if it is ``wanted``
        then."""
        ...


class AtOnce:
    """PasswordChecks of a server that is no node's: it has the passwords themselves, or few clients."""

    def check(
        self,
        kept: str | None,
        credentials: Credentials,
        address: str,
        then: Callable[[bool], None],
        wanted: Callable[[], bool],
    ) -> None:
        """In the caller's turn."""
        then(kept is not None and matches(kept, credentials.password))


def always() -> bool:
    """The verdict is wanted, however late it comes."""
    return True


class LoginRefused(AmqpError):
    """403, in RabbitMQ's words, which do not say why. ``delay``: seconds after which the client may be told."""

    def __init__(self, mechanism: str, delay: float) -> None:
        super().__init__(
            403,
            f"Login was refused using authentication mechanism {mechanism}. For details see the broker logfile.",
            hard=True,
        )
        self.delay = delay


class _Refusals:
    """Of one address."""

    def __init__(self) -> None:
        self.count = 0
        self.untold = 0
        self.last = 0.0
        self.told_at: float | None = None
        self.address = ""
        self.user = ""
        self.why = ""


class Logins:
    """Of all clients of a node."""

    def __init__(
        self,
        users: UserBook,
        told: Told = lambda user, address, count, why: None,
        checks: PasswordChecks = AtOnce(),  # noqa: B008 -- it has no state
    ) -> None:
        self.now = 0.0
        self._checks = checks
        self._users = users
        self._told = told
        self._refusals: dict[str, _Refusals] = {}
        self._window = 0.0
        self._lines = 0

    def judge(
        self,
        start_ok: Connection.StartOk,
        address: str,
        then: Callable[[str | LoginRefused], None],
        wanted: Callable[[], bool] = always,
        certified: str | None = None,
    ) -> None:
        """Call ``then`` with the user of a login from this address ("": from this process), or with the refusal.

        At once or, where the password is verified elsewhere, later. 503 for a mechanism that was not offered.
        ``certified``: whom the client's certificate stands for.
        """
        mechanism = start_ok.mechanism
        if mechanism not in mechanisms(certified).split():
            raise AmqpError(503, f"unknown authentication mechanism '{mechanism}'")
        if mechanism == EXTERNAL:
            then(self._certified(certified or "", address))
            return
        credentials = credentials_in(start_ok)
        if credentials is None:
            then(self.refused("", address, mechanism, "it cannot be read"))
            return
        user = credentials.user
        if not may_come_from(user, address):
            then(self.refused(user, address, mechanism, f"{LOOPBACK_ONLY} can only log in from loopback"))
            return

        def verified(right: bool) -> None:
            why = "the user or the password is wrong"
            then(user if right else self.refused(user, address, mechanism, why))

        self.verify(credentials, address, verified, wanted)

    def _certified(self, user: str, address: str) -> str | LoginRefused:
        """There must be such a user, who may come from there; no password is asked for."""
        if not may_come_from(user, address):
            return self.refused(user, address, EXTERNAL, f"{LOOPBACK_ONLY} can only log in from loopback")
        if self.number(user) is None:
            return self.refused(user, address, EXTERNAL, "its certificate (EXTERNAL) stands for no user that there is")
        return user

    def verify(
        self,
        credentials: Credentials,
        address: str,
        then: Callable[[bool], None],
        wanted: Callable[[], bool] = always,
    ) -> None:
        """Call ``then`` with whether user and password are right as of that moment.

        What was verified may have been changed meanwhile (``user_deleted_while_its_password_is_verified``).
        """
        kept = self._users.get(credentials.user)

        def checked(right: bool) -> None:
            if right and self._users.get(credentials.user) != kept:
                self.verify(credentials, address, then, wanted)
            else:
                then(right)

        self._checks.check(kept, credentials, address, checked, wanted)

    def number(self, user: str) -> int | None:
        """Which user of this name there is: a number that no other one ever has, 0 where that is not known, None if
        there is none."""
        if isinstance(self._users, NumberedBook):
            return self._users.number(user)
        return None if self._users.get(user) is None else 0

    def check_secret(
        self,
        update: Connection.UpdateSecret,
        user: str,
        address: str,
        then: Callable[[AmqpError | None], None],
        wanted: Callable[[], bool] = always,
    ) -> None:
        """Call ``then`` with None if the new secret is the user's password, or with 530."""

        def verified(right: bool) -> None:
            if right:
                then(None)
                return
            self.refused(user, address, "", "its new secret is wrong")
            then(AmqpError(530, "New secret was refused by one of the backends"))

        try:
            given = Credentials(user, _octets(update.new_secret).decode())
        except UnicodeDecodeError:
            verified(False)
        else:
            self.verify(given, address, verified, wanted)

    def refused(self, user: str, address: str, mechanism: str, why: str) -> LoginRefused:
        """A login from this address is refused; what its client may be told, and after how long."""
        known = self._of(address)
        known.count += 1
        known.untold += 1
        known.last, known.address, known.user, known.why = self.now, address, user[:SHOWN], why
        self._tell(known)
        over = known.count - FREE
        return LoginRefused(mechanism, min(FIRST_DELAY * 2.0 ** min(over - 1, 9), LONGEST_DELAY) if over > 0 else 0.0)

    def tick(self, now: float) -> None:
        """It is ``now``: tell what was held back, and forget what is long ago."""
        self.now = now
        for key, known in list(self._refusals.items()):
            if known.untold:
                self._tell(known)
            elif now - known.last > FORGET_SECONDS:
                del self._refusals[key]

    def _of(self, address: str) -> _Refusals:
        key = network_of(address)
        known = self._refusals.pop(key, None) or _Refusals()
        if known.count and self.now - known.last > FORGET_SECONDS:
            known.count = 0
        while len(self._refusals) >= ADDRESSES:
            del self._refusals[next(iter(self._refusals))]
        self._refusals[key] = known  # behind all others: the first one is forgotten first
        return known

    def _tell(self, known: _Refusals) -> None:
        if known.told_at is not None and self.now - known.told_at < TELL_SECONDS:
            return
        if self.now - self._window >= TELL_SECONDS:
            self._window, self._lines = self.now, 0
        if self._lines >= TOLD:
            return
        self._lines += 1
        count, known.untold, known.told_at = known.untold, 0, self.now
        self._told(known.user, known.address, count, known.why)


def may_come_from(user: str, address: str) -> bool:
    """Whether this user may log in from there."""
    return user != LOOPBACK_ONLY or not address or is_loopback(address)


def is_loopback(address: str) -> bool:
    """Whether an address is one of this machine's own; False for what is no address."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (mapped or parsed).is_loopback


def credentials_in(start_ok: Connection.StartOk) -> Credentials | None:
    """What a client says that it is; None if that cannot be read."""
    return read_credentials(start_ok.mechanism, _octets(start_ok.response))


def network_of(address: str) -> str:
    """What one host can choose its addresses from."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    return str(ipaddress.ip_network((parsed, 64), strict=False)) if parsed.version == 6 else address


def _octets(text: str | bytes | None) -> bytes:
    return text.encode() if isinstance(text, str) else bytes(text or b"")
