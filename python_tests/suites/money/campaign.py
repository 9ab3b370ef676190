"""Round after round at one site, which is made anew behind a round that did not hold."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from python_tests.suites.money.case import Round
from python_tests.suites.money.run import Found, Run
from python_tests.suites.money.site import Site


@dataclass
class Totals:
    """Sums over rounds. ``broken``: what was found, by seed and check."""

    rounds: int = 0
    transfers: int = 0
    attempts: Counter[str] = field(default_factory=Counter)
    deeds: Counter[str] = field(default_factory=Counter)
    missed: int = 0
    runs: int = 0
    in_doubt: int = 0
    seconds: float = 0.0
    broken: dict[int, dict[str, list[str]]] = field(default_factory=dict)

    def add(self, game: Round, found: Found) -> None:
        """Another round."""
        self.rounds += 1
        self.transfers += found.transfers
        self.attempts.update(found.attempts)
        self.deeds.update(found.deeds)
        self.missed += found.missed
        self.runs += found.runs
        self.in_doubt += found.in_doubt
        if found.broken:
            self.broken[game.seed] = found.broken

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**vars(self), "seconds": round(self.seconds, 1)}


def campaign(
    rounds: Iterable[Round], directory: Path, say: Callable[[str], None], totals: Totals, fault: str | None = None
) -> None:
    """Play them; each is told when it has ended, and added. With a fault, the first round that finds it is the last."""
    began = time.monotonic()
    with ExitStack() as stack:
        site: Site | None = None
        for game in rounds:
            if site is None:
                site = stack.enter_context(Site(directory / f"site-{game.seed}"))
            started = time.monotonic()
            found = Run(game, site, fault).play()
            totals.add(game, found)
            totals.seconds = time.monotonic() - began
            say(f"{game}\n  {totals.rounds:4}  {time.monotonic() - started:5.1f} s  {said(found)}")
            if found.broken:
                site = None
                stack.close()
                if fault is not None:
                    break


def said(found: Found) -> str:
    """In a line, and one for each thing that is wrong."""
    deeds = ", ".join(f"{count} x {name}" for name, count in sorted(found.deeds.items()))
    line = f"{found.transfers} transfers; {deeds}; {found.in_doubt} branches settled by {found.runs} recovery runs"
    wrong = [f"\n  BROKEN {check}: {each}" for check, all_of in found.broken.items() for each in all_of[:4]]
    return line + "".join(wrong)
