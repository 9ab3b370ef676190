"""``make upgrade``: nodes of the last release and of the present version in one cluster (``docs/upgrading.md``)."""

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
from python_tests.suites.upgrade.campaign import Campaign, Result
from python_tests.suites.upgrade.schedule import schedule
from tests.support.releases import ReleaseMissing, installed, present


def main(
    release: Annotated[
        str | None, typer.Option(help="Which, of packaging/releases.toml; the last if not given")
    ] = None,
    kills: Annotated[bool, typer.Option(help="Kill the primary in each mixture of versions")] = True,
    again: Annotated[bool, typer.Option(help="There and back, and there again")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON")] = False,
) -> None:
    """Replace nodes of the release one by one by the present version, under load, and back, and there again.

    Exit status 0: every promise held; 1: one did not; 2: something that you can mend.
    """
    errors = Console(stderr=True, highlight=False)
    try:
        with tempfile.TemporaryDirectory(prefix="txha-upgrade-") as directory:
            say = lambda line: errors.print(line, markup=False, soft_wrap=True)  # noqa: E731
            result = Campaign(Path(directory), installed(release), present(), say).run(schedule(kills, again))
    except (ReleaseMissing, RuntimeError) as error:
        print(f"txha: {error}", file=sys.stderr)
        raise typer.Exit(2) from error
    if as_json:
        print(json.dumps(result.as_dict(), indent=2))
    else:
        _tell(result)
    raise typer.Exit(1 if result.breaches else 0)


def _tell(result: Result) -> None:
    console = Console(highlight=False, width=150)
    table = Table(title=f"{result.release} and {result.present} in one cluster, {result.seconds} s")
    for column in ("step", "node", "versions behind it", "seconds", "ok", "failed", "unknown", "unconfirmed", "pause"):
        table.add_column(column)
    for each in result.steps:
        counts = (each.seconds, each.ok, each.failed, each.unknown, each.unconfirmed, each.pause)
        table.add_row(each.step, each.node, each.left, *map(str, counts))
    console.print(table)
    console.print(f"{result.committed} transactions committed, {result.confirmed} publishes confirmed")
    for line in result.breaches:
        console.print(f"BROKEN: {line}", style="bold red", markup=False, soft_wrap=True)


if __name__ == "__main__":
    end_on_sigterm()
    typer.run(main)
