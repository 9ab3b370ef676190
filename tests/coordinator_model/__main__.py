"""``python -m tests.coordinator_model``: run seeds, replay one, and put faults in that must be found."""

from __future__ import annotations

import json
import os
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tests.coordinator_model.campaign import Totals, campaign
from tests.coordinator_model.run import Run
from tests.coordinator_model.seeded import SEEDED, find
from tests.support.planted import chosen

app = typer.Typer(help="Coordinators in a model of databases, brokers, disks and people.", no_args_is_help=True)
console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)


@app.command()
def run(
    seeds: Annotated[int, typer.Option(help="How many", min=1)] = 2000,
    first: Annotated[int, typer.Option(help="The first seed", min=0)] = 0,
    jobs: Annotated[int, typer.Option(help="Processes", min=1)] = os.cpu_count() or 1,
    as_json: Annotated[bool, typer.Option("--json", help="The sums as JSON")] = False,
) -> None:
    """Run seeds; exit status 1 if a promise was broken, 130 if Ctrl-C ended it before, with the sums until then."""
    totals = campaign(first, seeds, jobs, lambda text: errors.print(f"[dim]{text}"))
    if as_json:
        print(json.dumps(totals.as_dict()))
    else:
        console.print(_table(totals))
        for seed, _, text in totals.broken[:20]:
            console.print(text, style="bold red", markup=False)
            console.print(f"  see it: python -m tests.coordinator_model replay {seed}")
    stopped = totals.seeds < seeds
    if stopped:
        errors.print(f"stopped behind {totals.seeds:,} of {seeds:,} seeds")
    raise typer.Exit(1 if totals.broken else 130 if stopped else 0)


@app.command()
def replay(seed: Annotated[int, typer.Argument(min=0)]) -> None:
    """Print what happens in one seed, the same every time; exit status 1 if a promise was broken."""
    result = Run(seed, print).run()
    print(result.broken or f"every promise held: {result.committed} of {result.transactions} transactions committed")
    raise typer.Exit(1 if result.promise else 0)


@app.command()
def seeded(
    seeds: Annotated[int, typer.Option(help="How many to try with each fault", min=1)] = 2000,
    names: Annotated[list[str] | None, typer.Argument(help="Only these")] = None,
) -> None:
    """Put faults in that the product once had, one at a time; exit status 1 if one is not found."""
    table = Table("fault", "found by", "seed", title="seeded faults")
    missed = 0
    for fault in chosen(SEEDED, names or ()):
        found = find(fault, seeds)
        missed += found is None
        by = found.promise if found else "[bold red]nobody[/]"
        table.add_row(fault.name.replace("_", " "), by, str(found.seed) if found else "")
        errors.print(f"[dim]{fault.name}: {found.broken if found else 'not found'}")
    console.print(table)
    raise typer.Exit(1 if missed else 0)


def _table(totals: Totals) -> Table:
    table = Table(title="coordinators in a model", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    sums = ("seeds", "transactions", "committed", "unknown", "steps", "faults")
    for name in sums:
        table.add_row(name, f"{getattr(totals, name):,}")
    for name, count in sorted(totals.struck.items()):
        table.add_row(f"  {name}", f"{count:,}")
    table.add_row("broken", str(len(totals.broken)))
    return table


if __name__ == "__main__":
    app()
