"""Cluster calls as tables and lines."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from broker_plugin.cli.terminal import PlainConsole


def status_tables(found: dict[str, Any]) -> None:
    """How far each node is, then the calls, then what is wrong."""
    console = PlainConsole()
    if found["nodes"] is None:
        console.print(f"{found['node']}: the primary does not say how far the nodes are", style="bold red")
    else:
        console.print(_nodes_table(found["nodes"]))
    raised = [flag for flag, up in found["flags"].items() if up]
    console.print(f"flags raised: {', '.join(raised) or 'none'}", soft_wrap=True)
    for operation, of in sorted(found["in_force"].items()):
        for name, arguments in sorted(of.items()):
            said = ", ".join(f"{key}={value}" for key, value in arguments.items())
            console.print(f"in force at {found['node']}: {operation} {name} {said}".rstrip(), soft_wrap=True)
    for what, why in found.get("amiss", {}).items():
        console.print(f"{found['node']}: {what} is not so here: {why}", style="bold red", soft_wrap=True)
    if found["own"]["running"]:
        console.print(f"{found['node']} runs {found['own']['running']}", soft_wrap=True)
    calls_table(found["calls"])
    for each in found["nodes"] or ():
        if each["reason"] and (each["failing"] or each["behind"] or each.get("undoing")):
            what = f"call {each['failing']} fails" if each["failing"] else "lags"
            what = "cannot undo a call that was not made" if each.get("undoing") else what
            console.print(f"{each['node']}: {what}: {each['reason']}", style="bold red", soft_wrap=True)


def _nodes_table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="cluster calls", box=SIMPLE_HEAD)
    for column in ("node", "counts", "at call", "behind", "failing"):
        table.add_column(column, no_wrap=True)
    for row in rows:
        at, behind = ("" if row[key] is None else str(row[key]) for key in ("tnx_id", "behind"))
        table.add_row(row["node"], "yes" if row["counts"] else "no", at, behind, str(row["failing"] or ""))
    return table


def calls_table(rows: list[dict[str, Any]]) -> None:
    """One row a call."""
    table = Table(title="calls that are kept", box=SIMPLE_HEAD)
    for column in ("call", "operation", "name", "initiator", "created at (UTC)"):
        table.add_column(column, no_wrap=True)
    table.add_column("result", overflow="fold")
    for row in rows:
        created = row["created_at"].partition(".")[0].replace("T", " ")
        initiator = row["initiator"]
        table.add_row(str(row["tnx_id"]), row["operation"], row["name"], initiator, created, row["result"])
    console = PlainConsole()
    PlainConsole(max(console.width, 100)).print(table)


def changes_table(rows: list[dict[str, Any]]) -> None:
    """One row a change."""
    table = Table(title="changes that are kept", box=SIMPLE_HEAD)
    for column in ("change", "operation", "name", "user", "from", "at node", "created at (UTC)"):
        table.add_column(column, no_wrap=True)
    for column in ("before", "after", "result"):
        table.add_column(column, overflow="fold")
    for row in rows:
        created = row["created_at"].partition(".")[0].replace("T", " ")
        whose = [row[key] for key in ("operation", "name", "user", "address", "node")]
        shown = [row["before"] or "", row["after"] or "", row["result"]]
        table.add_row(str(row["tnx_id"]), *whose, created, *shown)
    console = PlainConsole()
    PlainConsole(max(console.width, 140)).print(table)


def call_lines(row: dict[str, Any]) -> list[str]:
    """All that is known of one call."""
    lines = [f"call {row['tnx_id']}: {row['result']}"]
    keys = ("operation", "version", "name", "arguments", "initiator", "created_at", "id")
    lines += [f"  {key}: {row[key]}" for key in keys if row[key] != ""]
    lines.append(f"  members: {', '.join(row['members'])}")
    lines += [f"  {node} has not run it: {why}" for node, why in sorted(row["lagging"].items())]
    return lines
