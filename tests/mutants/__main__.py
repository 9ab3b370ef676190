"""``python -m tests.mutants``: draw mutants by seed, judge them, list the survivors."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tests.mutants.copy import stop_all
from tests.mutants.draw import draw
from tests.mutants.evidence import evidence, fingerprint
from tests.mutants.instrument import numbering
from tests.mutants.report import Progress, as_json, survivors, table
from tests.mutants.run import ENOUGH, Results, run, share
from tests.mutants.scope import ROOT, mutated_files

CACHE = ROOT / "build" / "mutants"


def main(
    mutants: Annotated[int, typer.Option(help="How many are drawn", min=1)] = 300,
    seed: Annotated[int, typer.Option(help="What they are drawn by")] = 1,
    only: Annotated[str, typer.Option(help="Only files whose path begins with this")] = "",
    jobs: Annotated[int, typer.Option(help="Processes", min=1)] = os.cpu_count() or 1,
    show: Annotated[int | None, typer.Option(help="Print the diff of this one of the sample, and its verdict")] = None,
    file: Annotated[Path | None, typer.Option(help="Remember verdicts here instead of in build/mutants")] = None,
    as_text: Annotated[bool, typer.Option("--json", help="Everything as JSON")] = False,
) -> None:
    """Put small faults into the product, one at a time, and see whether a test or a simulated cluster finds each.

    The exit status is 0 if at least 95 % died. Verdicts are remembered for this state of the project: a run that was
    stopped goes on.
    """
    console, errors = Console(highlight=False), Console(stderr=True, highlight=False)
    if only and not any(path.startswith(only) for path in mutated_files()):
        raise typer.BadParameter(f"{only} names no file that is mutated; the first one is {mutated_files()[0]}")
    sample = draw(ROOT, mutants, seed, only)
    sources = {each.path: (ROOT / each.path).read_text() for each in sample}
    results = Results(file or CACHE / f"verdicts-{fingerprint()}.jsonl")
    results.read()
    if show is not None:
        if not 0 <= show < len(sample):
            raise typer.BadParameter(f"the sample has numbers from 0 to {len(sample) - 1}")
        each = sample[show]
        print(each.diff(sources[each.path]))
        print(results.verdicts.get(each.key, "not judged yet"))
        return
    found = evidence(ROOT, CACHE, lambda text: errors.print(f"[dim]{text}"))
    for name in found.failing:
        errors.print(f"[bold red]{name} fails without a mutation, and judges none")
    known = sum(each.key in results.verdicts for each in sample)
    alive = sum(not results.verdicts[each.key].dead for each in sample if each.key in results.verdicts)
    progress = Progress(errors, len(sample), done=known, alive=alive)
    run(ROOT, sample, found, numbering(ROOT, mutated_files()), results, jobs, progress)
    if as_text:
        print(json.dumps(as_json(sample, results, seed)))
    else:
        console.print(survivors(sources, sample, results), markup=False, soft_wrap=True)
        console.print(table(sample, results, seed))
    raise typer.Exit(0 if share(sample, results) >= ENOUGH else 1)


def _end(number: int, frame: object) -> None:
    """Nothing that was started is left behind."""
    stop_all()
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _end)
    typer.run(main)
