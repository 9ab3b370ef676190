"""Drain: the first step of a handover. Clients are still connected, and what they have begun comes to its end.

Promise: it ends, at the latest after ``Settings.drain_seconds``; nothing hangs on a backup, a disk or a client.

Algorithm: the host begins nothing more of what clients ask (``Host.on_draining``). What has begun is decided as ever:
the lease is renewed, the commit point moves, answers are told. At the end of each turn is looked whether any client
still waits for one. Answers are given in the turn of the host that comes behind this one's, so that where the commit
point has moved another turn is asked for.

Why clients may be told then that what was not answered was not done: it has not begun here, and it never will, since
``Host.on_inactive`` comes in the turn that saw it; no other node takes anything on a connection to this one. Whether
something has begun and has no answer is the host's to say, client by client, in the moment of the closing. So a drain
that ends too early makes outcomes unknown, and none wrong.
"""

from __future__ import annotations

from collections.abc import Callable

from txobserver.ports.ledger import ClientsServed, Host


class Drain:
    """Of one handover, from ``begun_at`` on. ``wake`` asks for another turn."""

    def __init__(self, host: Host, seconds: float, wake: Callable[[], None], now: float) -> None:
        self.begun_at = now
        self.can = seconds > 0 and host.on_draining()
        self._host = host
        self._until = now + seconds
        self._wake = wake
        self._seen = -1

    def over(self, commit: int, waiting: bool, now: float) -> bool:
        """Whether the clients are to be closed now. ``commit``: the commit point; ``waiting``: operators of this node
        wait for an outcome as well."""
        if not self.can or now >= self._until:
            return True
        served = self._host.served
        if served is None or not (served.undecided or waiting):
            return True
        if commit != self._seen:
            self._seen = commit
            self._wake()
        return False

    def seconds(self, now: float) -> float:
        """How long it has taken by now."""
        return max(0.0, now - self.begun_at)

    @property
    def served(self) -> ClientsServed | None:
        """How the clients stand."""
        return self._host.served
