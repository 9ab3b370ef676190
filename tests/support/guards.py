"""A guard for tests: what comes up where no code handles it is the test's failure, not the end of a node."""

from __future__ import annotations

from broker_plugin.guard import Guard


class StrictGuard(Guard):
    """Raises what it catches; the event loop reports it, and pytest with it."""

    def __init__(self) -> None:
        super().__init__(lambda reason: None, lambda reason: None)
        self.errors: list[Exception] = []

    def caught(self, error: Exception) -> None:
        """To the caller."""
        self.errors.append(error)
        raise error


def strict_guard() -> StrictGuard:
    """A new one."""
    return StrictGuard()
