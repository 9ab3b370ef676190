"""``make money``: rounds drawn by seed, everything killed, each transfer counted; ``docs/money.md`` says more."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from python_tests.harness.cluster import end_on_sigterm
from python_tests.suites.money.campaign import Totals, campaign
from python_tests.suites.money.case import Stop
from python_tests.suites.money.draw import SENDS, draw
from python_tests.suites.money.planted import FAULTS


def main(
    rounds: Annotated[int, typer.Option(help="Number of rounds", min=1)] = 20,
    seed: Annotated[int, typer.Option(help="Seed of the first round; the next ones have the next numbers", min=0)] = 1,
    sends: Annotated[int, typer.Option(help="Transfers that each of the four tellers of a round sends", min=1)] = SENDS,
    show: Annotated[bool, typer.Option("--show", help="Print the rounds, and play none")] = False,
    fault: Annotated[
        str | None, typer.Option("--put-back", help=f"Play until a round finds this fault: {', '.join(FAULTS)}")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON")] = False,
) -> None:
    """Move money between two applications' databases by way of a broker, kill everything, and count.

    Exit status 0: every promise held; 1: one did not, and its round is played again by `--rounds 1 --seed` with its
    seed; 2: something that you can mend. With --put-back, 0: the fault was found.
    """
    if fault is not None and fault not in FAULTS:
        raise typer.BadParameter(f"there is no fault {fault} to put back; there are {', '.join(FAULTS)}")
    drawn = [draw(each, sends) for each in range(seed, seed + rounds)]
    if show:
        for game in drawn:
            print(json.dumps(game._asdict()) if as_json else "\n  ".join(map(str, (game, *_stops(game.stops)))))
        return
    errors, totals = Console(stderr=True, highlight=False), Totals()
    try:
        with tempfile.TemporaryDirectory(prefix="txha-money-") as directory:
            say = partial(errors.print, markup=False, soft_wrap=True)
            campaign(drawn, Path(directory), say, totals, fault)
    except RuntimeError as error:
        print(f"txha: {error}", file=sys.stderr)
        raise typer.Exit(2) from error
    finally:  # also of those before an interrupt
        if as_json:
            print(json.dumps(totals.as_dict()))
        else:
            _tell(totals)
    raise typer.Exit(0 if bool(totals.broken) == (fault is not None) else 1)


def _stops(stops: Mapping[str, tuple[Stop, ...]]) -> list[str]:
    return [f"{teller}: {'; '.join(map(str, each))}" for teller, each in stops.items()]


def _tell(totals: Totals) -> None:
    console = Console(highlight=False)
    table = Table(title="money between two databases", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_row("rounds", f"{totals.rounds:,}")
    table.add_row("seconds", f"{totals.seconds:,.0f}")
    table.add_row("transfers", f"{totals.transfers:,}")
    for title, counts in (("transactions", totals.attempts), ("deeds", totals.deeds)):
        table.add_row(title, f"{sum(counts.values()):,}")
        for name, count in sorted(counts.items()):
            table.add_row(f"  {name}", f"{count:,}")
    table.add_row("steps that no teller came to", f"{totals.missed:,}")
    table.add_row("recovery runs", f"{totals.runs:,}")
    table.add_row("branches that they found in doubt", f"{totals.in_doubt:,}")
    table.add_row("rounds that did not hold", f"{len(totals.broken):,}")
    console.print(table)
    for seed, found in totals.broken.items():
        for check, said in found.items():
            console.print(f"BROKEN seed {seed}, {check}: {said[0]}", style="bold red", markup=False, soft_wrap=True)
        console.print(f"  see it: make money ROUNDS=1 SEED={seed}")


if __name__ == "__main__":
    end_on_sigterm()
    typer.run(main)
