"""``python -m tests.simulation``: run seeds, replay one, shrink one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tests.simulation.campaign import Totals, campaign, seed_of_the_commit
from tests.simulation.kinds import kind_of
from tests.simulation.run import Run
from tests.simulation.seeded import SEEDED, find
from tests.simulation.shrink import shrink
from tests.support.planted import chosen

app = typer.Typer(help="Deterministic simulation of whole clusters.", no_args_is_help=True, add_completion=False)
console = Console(highlight=False)


@app.command()
def run(
    seeds: Annotated[int, typer.Option(help="How many")] = 2000,
    first: Annotated[int, typer.Option(help="The first seed")] = 0,
    jobs: Annotated[int, typer.Option(help="Processes", min=1)] = os.cpu_count() or 1,
    file: Annotated[Path | None, typer.Option(help="Remember here what is done, and go on from there")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The sums as JSON")] = False,
    each: Annotated[bool, typer.Option(help="A line for every seed")] = False,
    mixed: Annotated[bool, typer.Option(help="Nodes of different releases, with a line for every seed")] = False,
    calls: Annotated[bool, typer.Option(help="Cluster calls, with a line for every seed")] = False,
    users: Annotated[bool, typer.Option(help="Changes of users, with a line for every seed")] = False,
    handovers: Annotated[bool, typer.Option(help="One handover after the other, with a line for every seed")] = False,
    rolling: Annotated[bool, typer.Option(help="Upgrades to cluster calls, with a line for every seed")] = False,
    members: Annotated[bool, typer.Option(help="Changes of the members, with a line for every seed")] = False,
) -> None:
    """Run seeds; exit status 1 if a promise was broken. The first three that fail are shrunk."""
    if each or mixed or calls or users or handovers or rolling or members:
        raise typer.Exit(_run_each(first, seeds, kind_of(mixed, calls, users, handovers, rolling, members)))
    errors = Console(stderr=True, highlight=False)
    totals = campaign(first, seeds, jobs, file, lambda text: errors.print(f"[dim]{text}"), seed_of_the_commit())
    if as_json:
        print(json.dumps(totals.as_dict()))
    else:
        console.print(_table(totals))
    for number, (seed, promise, text) in enumerate(totals.broken[:20]):
        console.print(f"[bold red]{text}[/]\n  see it: python -m tests.simulation replay {seed}", markup=True)
        if number < 3:
            console.print("  the shortest schedule that does it:")
            for fault in shrink(seed, promise, Run(seed).schedule, lambda text: None):
                console.print(f"    {fault}")
    raise typer.Exit(1 if totals.broken else 0)


def _run_each(first: int, seeds: int, kind: type[Run]) -> int:
    """One after the other, each with what it did; returns the exit status."""
    broken = 0
    for seed in range(first, first + seeds):
        found = kind(seed).run()
        broken += bool(found.broken)
        print(
            f"seed {seed}: {found.events} events, {found.commits} commits, {found.unknown} unknown, "
            f"{found.failovers} failovers, {found.faults} faults, {found.hits} of them with a transaction open"
            f"{', idle' if found.idle else ''}{', BROKEN: ' + found.broken if found.broken else ''}"
        )
    return 1 if broken else 0


@app.command()
def replay(
    seed: int,
    short: Annotated[bool, typer.Option(help="With the shortest schedule that still fails")] = False,
    mixed: Annotated[bool, typer.Option(help="Nodes of different releases")] = False,
    calls: Annotated[bool, typer.Option(help="Cluster calls")] = False,
    users: Annotated[bool, typer.Option(help="Changes of users")] = False,
    handovers: Annotated[bool, typer.Option(help="One handover after the other")] = False,
    rolling: Annotated[bool, typer.Option(help="Upgrades to cluster calls")] = False,
    members: Annotated[bool, typer.Option(help="Changes of the members")] = False,
) -> None:
    """Print the transcript of one seed, the same to the letter every time; exit status 1 if a promise was broken."""
    schedule = None
    if short:
        found = Run(seed).run()
        if found.promise:
            schedule = shrink(seed, found.promise, found.schedule, lambda text: None)
    result = kind_of(mixed, calls, users, handovers, rolling, members)(seed, schedule, transcript=True).run()
    for fault in result.schedule:
        print(f"planned: {fault}")
    print("\n".join(result.transcript))
    print(result.broken or f"every promise held: {result.commits} commits, {result.failovers} failovers")
    raise typer.Exit(1 if result.broken else 0)


@app.command(name="shrink")
def shrink_command(seed: int) -> None:
    """Print the shortest schedule of faults with which this seed still fails."""
    found = Run(seed).run()
    if not found.promise:
        console.print(f"seed {seed} breaks nothing")
        return
    console.print(found.broken)
    for fault in shrink(seed, found.promise, found.schedule, lambda text: console.print(f"[dim]{text}[/]")):
        console.print(str(fault))
    raise typer.Exit(1)


@app.command()
def seeded(
    seeds: Annotated[int, typer.Option(help="How many to try with each fault")] = 2000,
    names: Annotated[list[str] | None, typer.Argument(help="Only these")] = None,
) -> None:
    """Put faults into the protocol, one at a time, and see which checker finds it; exit status 1 if none does."""
    table = Table("fault", "meant for", "found by", "seed", title="seeded faults")
    missed = 0
    for fault in chosen(SEEDED, names or ()):
        found = find(fault, seeds)
        missed += found is None
        table.add_row(
            fault.name.replace("_", " "),
            " ".join(fault.promises),
            found.promise if found else "[bold red]nobody[/]",
            str(found.seed) if found else "",
        )
        Console(stderr=True, highlight=False).print(f"[dim]{fault.name}: {found.broken if found else 'not found'}")
    console.print(table)
    raise typer.Exit(1 if missed else 0)


def _table(totals: Totals) -> Table:
    table = Table(title="simulated clusters", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    active = totals.seeds - totals.idle
    rows = {
        "seeds (idle ones among them)": f"{totals.seeds:,} ({totals.idle:,})",
        "events": f"{totals.events:,}",
        "commits": f"{totals.commits:,}",
        "unknown outcomes": f"{totals.unknown:,}",
        "failovers": f"{totals.failovers:,}",
        "faults": f"{totals.faults:,}",
        "of these, with a transaction open": f"{totals.hits:,}",
        "seeds that count": f"{active:,}",
        "broken": str(len(totals.broken)),
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


if __name__ == "__main__":
    app()
