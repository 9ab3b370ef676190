"""What a run has found, for people and as JSON; and its progress."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.mutants.mutation import Mutation
from tests.mutants.run import ENOUGH, Results, share
from tests.mutants.trial import Verdict

HOW = {
    "test": "a test failed",
    "seed": "a simulated cluster broke a promise",
    "import": "it could not be imported",
    "hang": "a test or seed hung",
    "survived": "survived",
    "late": "survived 60 s, with tests left",
}


@dataclass
class Progress:
    """A line for each mutant: how many are done, how many live, how long it will take."""

    console: Console
    total: int
    done: int = 0
    alive: int = 0
    new: int = 0
    began: float = field(default_factory=time.monotonic)

    def __call__(self, mutation: Mutation, verdict: Verdict) -> None:
        """One more is done."""
        self.done += 1
        self.new += 1
        self.alive += not verdict.dead
        left = (time.monotonic() - self.began) / self.new * (self.total - self.done)
        said = verdict.killer.rpartition("/")[2] if verdict.dead else "SURVIVED"
        self.console.print(
            f"{self.done}/{self.total}  {self.alive} alive  {left / 60:.0f} min left  {verdict.seconds:4.1f} s  "
            f"{mutation.path}:{mutation.line} {mutation.operator}: {said}",
            style="bold red" if not verdict.dead else "dim",
            markup=False,
            soft_wrap=True,
        )


def as_json(sample: list[Mutation], results: Results, seed: int) -> dict[str, Any]:
    """Everything, each mutant with its verdict."""
    mutants = [
        {"number": number, **asdict(each), "key": each.key, "verdict": asdict(results.verdicts[each.key])}
        for number, each in enumerate(sample)
    ]
    return {"seed": seed, "mutants": len(sample), "died": share(sample, results), "enough": ENOUGH, "each": mutants}


def table(sample: list[Mutation], results: Results, seed: int) -> Table:
    """How they died, in sums."""
    found = Table(title=f"{len(sample)} mutants by seed {seed}", show_header=False)
    found.add_column(style="bold")
    found.add_column(justify="right")
    counts = Counter(results.verdicts[each.key].how for each in sample)
    for how, text in HOW.items():
        found.add_row(text, str(counts[how]))
    found.add_row("died", f"{share(sample, results):.1%}")
    return found


def survivors(sources: dict[str, str], sample: list[Mutation], results: Results) -> str:
    """Each with its number, place and diff. ``sources``: the files as they were when the sample was drawn."""
    pieces = []
    for number, each in enumerate(sample):
        verdict = results.verdicts[each.key]
        if not verdict.dead:
            reason = verdict.text or HOW[verdict.how]
            head = f"#{number} {each.path}:{each.line} in {each.function} ({each.operator}, {each.key}): {reason}"
            pieces.append(f"{head}\n{each.diff(sources[each.path])}\n")
    return "\n".join(pieces)
