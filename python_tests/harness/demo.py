"""``txha demo``: the failover scenario with progress and a table."""

from __future__ import annotations

import json
import logging
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from python_tests.harness.cluster import LocalCluster
from python_tests.harness.failover import IN_FLIGHT, Failover
from python_tests.harness.load import Load


def run(directory: Path | None, seconds: float, as_json: bool) -> int:
    """Run it below ``directory`` (None: a temporary one).

    Returns 1 if a promise was broken, the scenario did not end, no node took over, or a kill hit too little.
    """
    for library in ("pika", "aio_pika", "aiormq", "asyncio"):
        logging.getLogger(library).setLevel(logging.CRITICAL)  # they report every kill at length
    console = Console(stderr=as_json)
    began = time.monotonic()

    def say(text: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:5.1f} s[/]  {text}", highlight=False)

    with ExitStack() as stack:
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="txha-demo-")))
        say("starting three nodes")
        cluster = stack.enter_context(LocalCluster(directory / "cluster"))
        say("cluster ready; starting pika and aio-pika clients")
        try:
            verdict = Failover(cluster, Load(), say).run(seconds)
        except TimeoutError as error:
            console.print(f"[bold red]the scenario did not end: {error}[/]")
            return 1
    if as_json:
        print(json.dumps(verdict.as_dict(), indent=2))
    else:
        _table(console, verdict)
    proven = all(open_then >= IN_FLIGHT for open_then, _ in verdict.in_flight) and None not in verdict.takeovers
    if verdict.broken:
        console.print("[bold red]a promise was broken[/]")
    elif not proven:
        console.print(f"[bold red]not proven: a kill needs {IN_FLIGHT} transactions in flight, and a take-over[/]")
    else:
        console.print("[bold green]every promise held[/]")
    return 0 if proven and not verdict.broken else 1


def _table(console: Console, verdict: Any) -> None:
    table = Table(title="what the clients saw", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_row("committed", str(verdict.committed))
    table.add_row("rolled back", str(verdict.rolled_back + verdict.failed))
    unknown = verdict.unknown_whole + verdict.unknown_absent
    table.add_row("unknown", f"{unknown} ({verdict.unknown_whole} whole, {verdict.unknown_absent} absent)")
    for name in ("partial", "lost", "duplicated", "phantom", "from_nowhere", "out_of_order", "miscounted", "mismarked"):
        count = len(getattr(verdict, name))
        table.add_row(name.replace("_", " "), f"[bold red]{count}[/]" if count else "[green]0[/]")
    table.add_row("redelivered, and said so", str(verdict.redelivered))
    for number, (seconds, (open_then, committing)) in enumerate(zip(verdict.takeovers, verdict.in_flight, strict=True)):
        shown = "never" if seconds is None else f"{seconds:.2f} s"
        table.add_row(f"time to take over, kill {number + 1}", shown)
        table.add_row("  in flight then", f"{open_then}, {committing} of them committing")
    table.add_row("seen by consumers and counted", f"{verdict.sightings} messages, {verdict.counts} counts")
    console.print(table)
    for line in verdict.broken[:20]:
        console.print(f"[bold red]{line}[/]")
