"""What a file of definitions has come to: steps, and entries that are left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from txobserver.configuration import BIND, UnknownStep, check_step
from txobserver.events import Configure
from txobserver.rules import RULES, place_of
from txobserver.vhosts import DEFAULT_VHOST


class LeftOut(NamedTuple):
    """An entry that is not imported: which one, and why it cannot be honoured."""

    entry: str
    why: str


class ImportFound:
    """``steps`` in the order in which they depend on each other; ``counts``: how many there are of each section."""

    def __init__(self) -> None:
        self.steps: list[Configure] = []
        self.left_out: list[LeftOut] = []
        self.counts: Counter[str] = Counter()
        self._said: dict[tuple[str | bytes, ...], bytes] = {}

    def take(self, section: str, entry: str, make: Callable[[], Configure]) -> bool:
        """A step of the import, once however often it is said; False if it cannot be, and its entry is left out."""
        try:
            step = make()
            check_step(step)
        except OverflowError:
            self.leave_out(entry, "a number in it has more than 64 bits")
            return False
        except UnknownStep as error:
            self.leave_out(entry, str(error).partition("arguments: ")[2] or str(error))
            return False
        place = _place(step)
        before = self._said.get(place)
        if before is None:
            self._said[place] = step.arguments
            self.steps.append(step)
            self.counts[section] += 1
        elif before != step.arguments:
            self.leave_out(entry, "it stands in the file before, with other values")
            return False
        return True

    def there_already(self, section: str) -> None:
        """An entry that says what is so already: nothing is to be done."""
        self.counts[section] += 1

    def leave_out(self, entry: str, why: str) -> None:
        """An entry that cannot be honoured."""
        self.left_out.append(LeftOut(entry, why))


def _place(step: Configure) -> tuple[str | bytes, ...]:
    """What a step is about: two of one place would have the second undo the first."""
    if step.operation in RULES:
        return step.operation, place_of(step)
    return (step.operation, step.name, step.arguments) if step.operation == BIND else (step.operation, step.name)


def titled(kind: str, name: str, vhost: str = DEFAULT_VHOST) -> str:
    """What an entry is called: with its virtual host where that is not the default one."""
    return f"{kind} {name!r}" + ("" if vhost == DEFAULT_VHOST else f" in virtual host {vhost!r}")
