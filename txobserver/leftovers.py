"""What nothing needs any more and is many: it is let go of piece by piece.

To let go of 300,000 messages in one go takes 25 to 50 ms of processor time. So a component that has used a great
container gives it away here, and each turn of the loop empties it a little further.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

RELEASED: Final = 5000
"""How many objects one turn lets go of: that takes about half a millisecond"""

Container = list[Any] | deque[Any] | dict[Any, Any]


class Leftovers:
    """``waiting``: how many objects are left. A container that is given away here must be used nowhere else, since it
    is emptied where it stands; what it holds may be used on."""

    def __init__(self) -> None:
        self.waiting = 0
        self._containers: deque[tuple[Container, int]] = deque()

    def add(self, container: Container, weight: int = 1) -> None:
        """Nothing needs this container any more. ``weight``: how many objects belong to each that it holds."""
        if container:
            self.waiting += weight * len(container)
            self._containers.append((container, weight))

    def go_on(self, most: int = RELEASED) -> int:
        """Let go of about so many objects, one of the heaviest at least; returns how many that were."""
        before, containers = self.waiting, self._containers
        while containers and before - self.waiting < most:
            container, weight = containers[0]
            count = min(len(container), max(1, (most - before + self.waiting) // weight))
            if isinstance(container, list):
                del container[len(container) - count :]
            elif isinstance(container, dict):
                for _ in range(count):
                    container.popitem()
            else:
                for _ in range(count):
                    container.pop()
            self.waiting -= weight * count
            if not container:
                containers.popleft()
        return before - self.waiting
