"""``python -m python_tests.suites.handovers``: handovers under load; exit status 1 if an outcome is unknown."""

from __future__ import annotations

import json
import logging
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from python_tests.harness.cluster import LocalCluster, end_on_sigterm
from python_tests.suites.handovers.figures import summary
from python_tests.suites.handovers.run import Handovers

GOAL_SECONDS = 0.3
"""Of the longest pause of a handover, in 95 of 100."""


def main(
    handovers: Annotated[int, typer.Option(help="How many.", min=1)] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="The figures as JSON.")] = False,
) -> None:
    """Hand a cluster of three nodes over under load, by promote and by SIGTERM in turn, and judge what clients saw."""
    end_on_sigterm()
    for name in ("pika", "aio_pika", "aiormq"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    console = Console(stderr=as_json, highlight=False)
    with (
        tempfile.TemporaryDirectory(prefix="txha-handovers-") as directory,
        LocalCluster(Path(directory) / "cluster", 3) as cluster,
    ):
        run = Handovers(cluster, console.print)
        verdict = run.run(handovers)
    found = summary(run.found, verdict.broken, run.unknown)
    if as_json:
        print(json.dumps(found))
    else:
        pause = found["pause"]
        console.print(f"{verdict.committed} transactions committed, {verdict.confirmed} publishes confirmed")
        console.print(f"{found['unknown']} outcomes unknown, {found['failed']} failed by a handover")
        console.print(
            f"longest pause: p50 {pause['p50']:.3f} s  p95 {pause['p95']:.3f} s  max {pause['max']:.3f} s"
            f"  (goal: p95 at most {GOAL_SECONDS} s)"
        )
        for each in verdict.broken:
            console.print(f"BROKEN {each}")
    raise typer.Exit(1 if found["unknown"] or verdict.broken else 0)


if __name__ == "__main__":
    typer.run(main)
