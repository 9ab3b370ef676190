"""The steps of a Dockerfile, as a builder reads them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Stage:
    """What follows one FROM."""

    base: str
    name: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def all(self, instruction: str) -> list[str]:
        """The arguments of each such step."""
        return [argument for name, argument in self.steps if name == instruction]

    def words(self, instruction: str) -> list[str]:
        """The last such step in its exec form, which is the one that counts."""
        found: list[str] = json.loads(self.all(instruction)[-1])
        return found

    def health(self) -> list[str]:
        """The command of the health check."""
        found: list[str] = json.loads(self.all("HEALTHCHECK")[-1].partition("CMD ")[2])
        return found


def read(path: Path) -> list[Stage]:
    """The stages, in their order."""
    stages: list[Stage] = []
    for line in _lines(path.read_text()):
        instruction, _, argument = line.partition(" ")
        if instruction == "FROM":
            base, _, name = argument.partition(" AS ")
            stages.append(Stage(base, name))
        else:
            stages[-1].steps.append((instruction, argument.strip()))
    return stages


def _lines(text: str) -> Iterator[str]:
    """One for each instruction: comments go, and a line that ends with a backslash is continued by the next."""
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)
    yield from (line for line in re.sub(r"\\\n\s*", "", text).splitlines() if line.strip())
