"""Newcomers: connections that have not logged in, which cost a stranger nothing. Their number is bounded, in all and
by address.

One that comes when a bound is reached takes the place of the one that has stood still for longest, if that was for
``PATIENCE`` seconds; else it is refused itself. So idle sockets keep no client out, and of many clients that come at
once, as after a take-over, none is closed that is just logging in. Each step of a handshake counts as a beginning;
there are three of them, so who makes them slowly gains little, and its time for all of them is bounded anyway.
"""

from __future__ import annotations

from typing import Final, Generic, NamedTuple, TypeVar

Key = TypeVar("Key")
PATIENCE: Final = 1.0
"""Seconds for which a connection may stand still in its handshake when others want its place."""


class Standing(NamedTuple):
    """Where a newcomer comes from, and since when it has stood still."""

    address: str
    since: float


class Newcomers(Generic[Key]):
    """``most`` of them may be there at a time, ``most_of_one`` from one address. ``refused``: how many were closed."""

    def __init__(self, most: int, most_of_one: int) -> None:
        self.most = most
        self.most_of_one = most_of_one
        self.refused = 0
        self._all: dict[Key, Standing] = {}
        self._by_address: dict[str, dict[Key, None]] = {}

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._all)

    def __contains__(self, key: Key) -> bool:
        return key in self._all

    def arrive(self, key: Key, address: str, now: float) -> list[Key]:
        """One more has come; returns those to be closed now: none, another one, or this one itself."""
        leaves: Key | None = None
        of_one = self._by_address.get(address, {})
        if len(of_one) >= self.most_of_one:
            leaves = next(iter(of_one))
        elif len(self._all) >= self.most:
            leaves = next(iter(self._all))
        if leaves is not None:
            self.refused += 1
            if now - self._all[leaves].since < PATIENCE:
                return [key]
            self.leave(leaves)
        self._enter(key, address, now)
        return [] if leaves is None else [leaves]

    def step(self, key: Key, now: float) -> None:
        """It has gone on in its handshake."""
        known = self._all.get(key)
        if known is not None:
            self.leave(key)
            self._enter(key, known.address, now)

    def introduced(self, key: Key, address: str, now: float) -> list[Key]:
        """It comes from another address than it seemed; returns those to be closed, as ``arrive``."""
        if key not in self._all:
            return []
        self.leave(key)
        return self.arrive(key, address, now)

    def leave(self, key: Key) -> None:
        """It has logged in, or is gone."""
        known = self._all.pop(key, None)
        if known is not None:
            of_one = self._by_address[known.address]
            del of_one[key]
            if not of_one:
                del self._by_address[known.address]

    def check_invariants(self) -> None:
        """The two ways to look at them agree, and no bound is passed. Raises AssertionError."""
        counted = {key: address for address, keys in self._by_address.items() for key in keys}
        assert counted == {key: standing.address for key, standing in self._all.items()}, "P12: newcomers differ"
        assert len(self._all) <= self.most, f"P12: {len(self._all)} connections have not logged in"
        assert all(0 < len(keys) <= self.most_of_one for keys in self._by_address.values()), "P12: an address has more"
        since = [standing.since for standing in self._all.values()]
        assert since == sorted(since), "P12: newcomers are out of order"

    def _enter(self, key: Key, address: str, now: float) -> None:
        self._all[key] = Standing(address, now)
        self._by_address.setdefault(address, {})[key] = None
