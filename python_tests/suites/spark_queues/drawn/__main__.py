"""``make spark-crashes``: cases drawn by seed, each row counted; ``docs/spark_drawn_crashes.md`` says more."""

from __future__ import annotations

import functools
import json
import signal
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from python_tests.suites.spark_queues.drawn.campaign import Totals, campaign
from python_tests.suites.spark_queues.drawn.draw import draw
from python_tests.suites.spark_queues.drawn.planted import FAULTS, put_back


def main(
    cases: Annotated[int, typer.Option(help="Number of cases", min=1)] = 200,
    seed: Annotated[int, typer.Option(help="Seed of the first case; the next ones have the next numbers", min=0)] = 1,
    show: Annotated[bool, typer.Option("--show", help="Print the cases, and run none")] = False,
    fault: Annotated[
        str | None, typer.Option("--put-back", help=f"Run until a case finds this fault: {', '.join(FAULTS)}")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="Gets a line for each case that has ended; those that it has are not run again")
    ] = None,
    as_text: Annotated[bool, typer.Option("--json", help="Print everything as JSON")] = False,
) -> None:
    """Crash drivers and brokers of a query from queue to queue in drawn pairs, and count each row.

    Exit status 0: every case held; 1: one did not, and is run again by `--cases 1 --seed` with its seed. With
    --put-back, 0: the fault was found. 130: Ctrl-C ended it before, with the sums until then.
    """
    if fault is not None and file is not None:
        raise typer.BadParameter("--file remembers what the code as it is does: leave it out with --put-back")
    if fault is not None and fault not in FAULTS:
        raise typer.BadParameter(f"there is no fault {fault} to put back; there are {', '.join(FAULTS)}")
    drawn = [draw(each) for each in range(seed, seed + cases)]
    if show:
        shown = [case._asdict() for case in drawn] if as_text else list(map(str, drawn))
        print(json.dumps(shown) if as_text else "\n".join(shown))
        return
    errors = Console(stderr=True, highlight=False)
    totals, stopped = Totals(), None
    with tempfile.TemporaryDirectory(prefix="txha-spark-") as directory, put_back(fault):
        try:
            say = functools.partial(errors.print, markup=False, soft_wrap=True)
            campaign(drawn, Path(directory), say, fault is not None, totals, file)
        except SystemExit as signalled:
            stopped = signalled.code
            errors.print(f"stopped in case {totals.cases + 1} of {cases}")
    print(json.dumps(totals.as_dict()) if as_text else _told(totals))
    if stopped is not None and not totals.broken:
        sys.exit(stopped)
    raise typer.Exit(0 if bool(totals.broken) == (fault is not None) else 1)


def _told(totals: Totals) -> str:
    seconds = f"{totals.seconds:.0f} seconds, {totals.real_seconds:.0f} of them for {totals.real} cases by Spark"
    lines = [f"{totals.cases} cases, {len(totals.broken)} broken; {totals.rows} rows; {seconds}"]
    for what, counts in (("done", totals.done), ("refused", totals.refused)):
        lines += [f"  {what} {count:5} x {name}" for name, count in sorted(counts.items())]
    for number, said in totals.broken.items():
        lines.append(f"BROKEN seed {number}: {said}\n  see it: make spark-crashes CASES=1 SEED={number}")
    return "\n".join(lines)


def _end(number: int, frame: object) -> None:
    """Nothing that was started is left behind."""
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _end)
    typer.run(main)
