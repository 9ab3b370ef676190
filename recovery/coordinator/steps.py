"""The steps of a distributed transaction at its coordinator, by name, for tests that break something at one of them."""

from __future__ import annotations

from collections.abc import Callable

Reached = Callable[[str], None]
"""Told the name of each step when it has been made, by the part that made it."""

STEPS: dict[str, str] = {
    "broker begun": "the broker takes part",
    "database begun": "the database takes part",
    "database prepared": "the database has prepared",
    "broker prepared": "the broker has prepared",
    "decision written": "the decision is written, and not yet synced",
    "decision synced": "the decision is on disk, and no participant has been told",
    "database committed": "the database has committed",
    "broker committed": "the broker has committed",
    "finished": "every participant has committed, and the decision may be forgotten",
}


def unwatched(step: str) -> None:
    """For callers that need not know."""
    assert step in STEPS, step
