"""What lasts for a while: several faults may change one thing, and the usual value is back when the last has ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Ending = Callable[[], None]


@dataclass
class _Changed:
    """``values``: of the changes that last, in the order in which they began."""

    of: object
    usual: Any
    values: dict[object, Any] = field(default_factory=dict)


class Lasting:
    """All changes of a run that last. Of those of one thing the last to begin holds."""

    def __init__(self) -> None:
        self._changed: dict[tuple[int, str], _Changed] = {}

    def change(self, of: object, name: str, value: Any) -> Ending:
        """Set this attribute; what is returned ends that, and does nothing when it is called again."""
        key, mark = (id(of), name), object()
        changed = self._changed.setdefault(key, _Changed(of, getattr(of, name)))
        changed.values[mark] = value
        setattr(of, name, value)

        def ending() -> None:
            changed.values.pop(mark, None)
            setattr(of, name, next(reversed(changed.values.values()), changed.usual))

        return ending

    def hold(self, members: set[Any], each: Any) -> Ending:
        """Put ``each`` into a set; what is returned takes it out, if no other caller holds it there."""
        key = (id(members), repr(each))
        changed, mark = self._changed.setdefault(key, _Changed(members, None)), object()
        changed.values[mark] = each
        members.add(each)

        def ending() -> None:
            changed.values.pop(mark, None)
            if not changed.values:
                members.discard(each)

        return ending
