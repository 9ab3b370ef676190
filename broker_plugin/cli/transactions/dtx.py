"""``txha dtx``: branches of distributed transactions that wait for their coordinator, and what to do without it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from broker_plugin.cli.asking import BadArgument, Dir, Json, best_node, node_entry, paths_told
from broker_plugin.cli.terminal import say
from broker_plugin.cli.transactions.dtx_recover import dtx_recover
from broker_plugin.cli.transactions.settle_spark import settle_spark
from recovery.reader.node_admin import ask
from txobserver.xid import parse_xid

app = typer.Typer(help="Look at prepared branches of distributed transactions, and end them.", no_args_is_help=True)
app.command("recover")(paths_told()(dtx_recover))
app.command("settle-spark")(settle_spark)
SECONDS = 15.0
"""How long a node may take to answer: a decision waits for every ready node."""

XidText = Annotated[str, typer.Argument(metavar="XID", help="The branch, as `txha dtx list` shows it.")]


@app.command("list")
def dtx_list(dir: Dir, as_json: Json = False) -> None:
    """List the branches that are prepared, or were decided by an operator and are not forgotten."""
    from broker_plugin.cli.tables import branches_table

    _, rows = _ask(dir, "dtx.list")
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        branches_table(rows)


@app.command()
def show(dir: Dir, xid: XidText, as_json: Json = False) -> None:
    """Show one branch: its state, its age, and how many messages of which queues it holds."""
    from broker_plugin.cli.tables import branches_table

    _, row = _ask(dir, "dtx.show", xid)
    if as_json:
        typer.echo(json.dumps(row, indent=2))
    else:
        branches_table([row])


@app.command()
def commit(dir: Dir, xid: XidText, as_json: Json = False) -> None:
    """Commit a prepared branch without its coordinator. It is remembered until it is forgotten."""
    _say(_ask(dir, "dtx.commit", xid), as_json)


@app.command()
def rollback(dir: Dir, xid: XidText, as_json: Json = False) -> None:
    """Roll a prepared branch back without its coordinator. It is remembered until it is forgotten."""
    _say(_ask(dir, "dtx.rollback", xid), as_json)


@app.command()
def forget(dir: Dir, xid: XidText, as_json: Json = False) -> None:
    """Forget how a branch ended: its coordinator will not be told any more."""
    _say(_ask(dir, "dtx.forget", xid), as_json)


def _ask(dir: Path, command: str, xid: str | None = None) -> tuple[str, Any]:
    """The node that was asked, and its answer. A node that is not the active primary refuses."""
    if xid is not None:
        try:
            parse_xid(xid)
        except ValueError as error:
            raise BadArgument(str(error)) from None
    node = best_node(dir)["name"]
    return node, ask(node_entry(dir, node).directory, command, {} if xid is None else {"xid": xid}, SECONDS)


def _say(answer: tuple[str, Any], as_json: bool) -> None:
    node, row = answer
    if as_json:
        typer.echo(json.dumps(row, indent=2))
    else:
        say(f"{row['xid']} is {row['state']}, says {node}")
