"""What a teller is told to do."""

from __future__ import annotations

from typing import NamedTuple


class Orders(NamedTuple):
    """What a teller is told. ``turn``: the number of its first transaction. ``stops``: turn, kind and step of each."""

    name: str
    seed: int
    way: str
    takes: str
    dsn: str
    log: str
    compact: int
    urls: list[str]
    queue_in: str
    queue_out: str
    journal: str
    turn: int
    sends: int
    accounts: int
    stops: list[tuple[int, str, str]]
    fault: str | None
