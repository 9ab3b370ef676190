"""Backpressure: how much the stream may run ahead of a joiner that does not catch up by itself.

A joiner that counted while it lacks much would hold all commits up until it had all of that. One that is nearly as slow
as the load, or slower, would never lack little. So the clients are read only while it lacks no more than this allows:
what it lacked at first, less half of what it has got since. Commits pass meanwhile, as fast as half of
what the joiner gets at least, and it catches up (P12).
"""

from __future__ import annotations


class Backpressure:
    """``acknowledged``: up to where the joiner has the stream at first; ``lacking``: how many events it lacks then."""

    def __init__(self, acknowledged: int, lacking: int) -> None:
        self._from = acknowledged
        self._lacking = lacking

    def exceeded(self, acknowledged: int, tail: int) -> bool:
        """Whether a stream that ends at ``tail`` has run too far ahead of what the joiner has got by now."""
        return tail - acknowledged > max(0, self._lacking - (acknowledged - self._from) // 2)
