"""Which node is replaced when: the steps of an upgrade there, back, and there again, and the kills between them."""

from __future__ import annotations

from typing import NamedTuple

NEW, OLD = "the present version", "the release"


class Step(NamedTuple):
    """``replace``: a backup of the other version by ``version``, cleanly; ``hand over``: to a backup of ``version``;
    ``kill``: the primary, which comes back as what it was."""

    kind: str
    version: str = ""

    def __str__(self) -> str:
        if self.kind == "kill":
            return "SIGKILL of the primary"
        return f"a backup becomes {self.version}" if self.kind == "replace" else f"hand-over to {self.version}"


KILL = Step("kill")


def leg(version: str, kills: bool) -> list[Step]:
    """All three nodes to this version; ``kills``: of the primary in each mixture, of either version.

    Behind the first replacement there is one node of ``version``, and behind the second there are two.
    """
    other = OLD if version == NEW else NEW
    replaced, handed, back = Step("replace", version), Step("hand over", version), Step("hand over", other)
    if not kills:
        return [replaced, replaced, handed, replaced]
    return [replaced, KILL, handed, KILL, back, replaced, KILL, handed, KILL, handed, replaced]


def schedule(kills: bool, again: bool) -> list[Step]:
    """There and back, and there ``again``."""
    return [*leg(NEW, kills), *leg(OLD, kills), *(leg(NEW, kills=False) if again else ())]
