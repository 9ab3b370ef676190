"""``make calls-storm``: what it does, what it measures and what it found stands in ``docs/calls_storm.md``."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from python_tests.harness.cluster import end_on_sigterm
from python_tests.suites.calls_storm.campaign import Result, campaign


def main(
    calls: Annotated[int, typer.Option(help="Calls, from three nodes at once", min=1)] = 768,
    seed: Annotated[int, typer.Option(help="Draws the calls, and what is killed when", min=0)] = 1,
    state: Annotated[int, typer.Option(help="State calls that a node misses while it is down", min=0)] = 10_000,
    actions: Annotated[int, typer.Option(help="Actions that it misses", min=0, max=1900)] = 500,
    kills: Annotated[bool, typer.Option(help="Kill nodes meanwhile")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON")] = False,
) -> None:
    """Make cluster calls from three real nodes at once while these are killed, and compare what all nodes have.

    Exit status 0: every promise held; 1: one did not; 2: something that you can mend.
    """
    errors = Console(stderr=True, highlight=False)
    try:
        with tempfile.TemporaryDirectory(prefix="txha-calls-") as directory:
            say = lambda line: errors.print(line, markup=False, soft_wrap=True)  # noqa: E731
            result = campaign(Path(directory), calls, seed, state, actions, kills, say)
    except RuntimeError as error:
        print(f"txha: {error}", file=sys.stderr)
        raise typer.Exit(2) from error
    if as_json:
        print(json.dumps(result._asdict(), indent=2))
    else:
        _tell(result)
    raise typer.Exit(1 if result.breaches else 0)


def _tell(result: Result) -> None:
    console = Console(highlight=False)
    table = Table(title="cluster calls in a storm", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    for name, value in result._asdict().items():
        if name == "breaches":
            continue
        if isinstance(value, dict):
            for part, each in value.items():
                table.add_row(f"{name.replace('_', ' ')}: {part}", f"{each:g}" if not isinstance(each, str) else each)
        elif value is not None:
            table.add_row(name.replace("_", " "), str(value))
    console.print(table)
    for line in result.breaches:
        console.print(f"BROKEN: {line}", style="bold red", markup=False, soft_wrap=True)


if __name__ == "__main__":
    end_on_sigterm()
    typer.run(main)
