"""The result as tables in the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from python_tests.harness.stress.results import Result
from python_tests.harness.stress.summary import FAULT_HEADINGS, fault_rows, some_of_each, verdict_rows

SHOWN, EACH = 20, 4


def show(console: Console, result: Result) -> None:
    """What the clients saw, what each kind of fault did, and what it comes to."""
    table = Table(title="what the clients saw", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    for name, value, bad in verdict_rows(result):
        table.add_row(name, f"[bold red]{value}[/]" if bad else value)
    console.print(table)
    faults = Table(title="what the faults did", header_style="bold")
    for position, heading in enumerate(FAULT_HEADINGS):
        faults.add_column(heading, justify="right" if position else "left", no_wrap=position == 0)
    for row in fault_rows(result):
        faults.add_row(*row)
    console.print(faults)
    for line in some_of_each(result.broken, EACH):
        console.print(f"[bold red]{escape(line)}[/]", highlight=False, soft_wrap=True)
    if result.broken:
        console.print("[bold red]a promise was broken[/]")
    for line in result.not_proven[:SHOWN]:
        console.print(f"[bold yellow]not proven: {escape(line)}[/]", highlight=False, soft_wrap=True)
    if not result.broken and not result.not_proven:
        console.print("[bold green]every promise held[/]")
