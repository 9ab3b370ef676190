"""``txha demo``: the failover scenario of ``python_tests`` with progress and a table."""

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


def run(directory: Path | None, seconds: float, as_json: bool) -> int:
    """Run it below ``directory`` (None: a temporary one); 1 if a promise was broken or the scenario did not end."""
    from python_tests.failover import IN_FLIGHT, Failover, Load
    from python_tests.processes import LocalCluster

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
        scenario = Failover(cluster, Load(), say)
        try:
            verdict = scenario.run(seconds)
        except TimeoutError as error:
            console.print(f"[bold red]the scenario did not end: {error}[/]")
            return 1
    enough = all(count >= IN_FLIGHT for count in scenario.in_flight)
    if as_json:
        print(json.dumps({**verdict.as_dict(), "in_flight_at_kills": scenario.in_flight}, indent=2))
    else:
        _table(console, verdict, scenario.in_flight)
    return 1 if verdict.broken or not enough or None in verdict.takeovers else 0


def _table(console: Console, verdict: Any, in_flight: list[int]) -> None:
    table = Table(title="what the clients saw", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_row("committed", str(verdict.committed))
    table.add_row("rolled back", str(verdict.rolled_back + verdict.failed))
    unknown = verdict.unknown_whole + verdict.unknown_absent
    table.add_row("unknown", f"{unknown} ({verdict.unknown_whole} whole, {verdict.unknown_absent} absent)")
    for name in ("partial", "lost", "duplicated", "phantom", "from_nowhere", "out_of_order", "miscounted"):
        count = len(getattr(verdict, name))
        table.add_row(name.replace("_", " "), f"[bold red]{count}[/]" if count else "[green]0[/]")
    table.add_row("redelivered, and said so", str(verdict.redelivered))
    for index, seconds in enumerate(verdict.takeovers):
        shown = "never" if seconds is None else f"{seconds:.2f} s"
        table.add_row(f"time to take over, kill {index + 1}", f"{shown} ({in_flight[index]} in flight)")
    console.print(table)
    for line in verdict.broken[:20]:
        console.print(f"[bold red]{line}[/]")
    console.print("[bold red]a promise was broken[/]" if verdict.broken else "[bold green]every promise held[/]")
