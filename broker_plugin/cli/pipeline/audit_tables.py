"""The report of an audit in the terminal: the nodes, what was broken with its events, what is in doubt, the queues."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from broker_plugin.cli.terminal import PlainConsole
from recovery.pipeline.audit.findings import SHOWN
from recovery.pipeline.audit.names import BREACHES

if TYPE_CHECKING:
    from recovery.pipeline.audit.findings import Finding
    from recovery.pipeline.audit.report import AuditReport

FINDINGS = 3
"""Findings of each name; ``--json`` has more, ``--parquet`` all"""
EVENTS = 12
WIDTH = 160
"""Where the output is no terminal: names of branches are long"""
BRANCHES = 20


def show(report: AuditReport) -> None:
    """All of it, the verdict last."""
    console = PlainConsole()
    if not console.is_terminal:
        console.width = WIDTH
    nodes = (
        (v.name, v.generation, v.first, v.last, v.lag_events, f"{v.lag_seconds:.1f}", v.tail) for v in report.nodes
    )
    console.print(_table("logs", ("node", "gen.", "from", "to", "lag (events)", "lag (s)", "overwritten"), nodes))
    totals = ((name.replace("_", " "), f"{count:,}") for name, count in report.totals.items())
    console.print(_table("the stream", ("", ""), totals))
    queues = ((q.queue, q.put, q.taken, ", ".join(f"{node} {n}" for node, n in q.apart.items())) for q in report.queues)
    console.print(_table("queues", ("queue", "put", "taken", "differing events"), queues))
    if report.in_doubt:
        doubts = ((d.xid, f"{d.since:%Y-%m-%d %H:%M:%S}", d.events, d.position, d.word) for d in report.in_doubt)
        _branches(console, "branches in doubt", ("branch", "prepared (UTC)", "events", "position", ""), [*doubts])
    if report.operated:
        decided = (
            (o.xid, f"{o.at:%Y-%m-%d %H:%M:%S}", "commit" if o.committed else "rollback", o.position,
             o.against and f"mixed: {o.against}")
            for o in report.operated
        )  # fmt: skip
        _branches(console, "decided by operators", ("branch", "decided (UTC)", "", "position", ""), [*decided])
    for note in report.notes:
        console.print(f"note: {note}", soft_wrap=True)
    for name, count in report.found.items():
        breach = BREACHES[name]
        console.print(Text(f"{breach.promise} {name}, {count:,}: {breach.meaning}", "bold red"), soft_wrap=True)
        for finding in [each for each in report.findings if each.name == name][:FINDINGS]:
            _finding(console, finding)
    if report.clean:
        console.print(Text("no promise was seen broken", "bold green"))
    else:
        console.print(
            Text(f"broken: {', '.join(sorted({BREACHES[name].promise for name in report.found}))}", "bold red")
        )


def _branches(console: Console, title: str, headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """The first of them, and how many more there are."""
    console.print(_table(title, headings, rows[:BRANCHES]))
    if len(rows) > BRANCHES:
        console.print(f"  … and {len(rows) - BRANCHES} more")


def _finding(console: Console, finding: Finding) -> None:
    """What it is about, and its events."""
    console.print(f"  {finding.subject}", soft_wrap=True)
    rows = finding.shown()
    if rows:
        console.print(_table("", SHOWN, rows[:EVENTS]))
    if len(rows) > EVENTS:
        console.print(f"  … and {len(rows) - EVENTS} more events")


def _table(title: str, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    table = Table(title=title or None, box=SIMPLE_HEAD, show_header=any(headings), title_justify="left")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*["" if cell is None else str(cell) for cell in row])
    return table
