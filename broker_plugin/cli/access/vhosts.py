"""``txha vhosts``: virtual hosts, each with queues, exchanges, permissions and limits of its own."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from broker_plugin.cli.access.cluster_asked import Config, ask_cluster
from broker_plugin.cli.access.rules import changed
from broker_plugin.cli.asking import Json, OptionalDir
from broker_plugin.cli.terminal import say
from txobserver.rules import VHOST

app = typer.Typer(help="Add and delete virtual hosts.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The virtual host's name.")]


@app.command("list")
def vhosts_list(dir: OptionalDir = None, config: Config = None, as_json: Json = False) -> None:
    """List the virtual hosts."""
    from broker_plugin.cli.tables import vhosts_table

    _, rows = ask_cluster(dir, config, "rules.list", {"kinds": [VHOST]})
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        vhosts_table(rows)


@app.command()
def add(
    name: Name,
    description: Annotated[str | None, typer.Option(help="What it is for.")] = None,
    tag: Annotated[list[str] | None, typer.Option("--tag", help="A tag. May be repeated.")] = None,
    dir: OptionalDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Add a virtual host, or give one that is there this description and these tags; what is not said stays.

    No user may connect to a new one yet.
    """
    _, rows = ask_cluster(dir, config, "rules.list", {"kinds": [VHOST]})
    there = next((row for row in rows if row["name"] == name), {"description": "", "tags": []})
    rule: dict[str, Any] = {"kind": VHOST, "vhost": name, "name": name}
    rule["description"] = there["description"] if description is None else description
    rule["tags"] = there["tags"] if tag is None else tag
    node, row = ask_cluster(dir, config, "rules.set", rule)
    if as_json:
        typer.echo(json.dumps(row, indent=2))
        return
    said = "is added" if row["added"] else "was there already, and has this description and these tags"
    say(f"{name} {said}, says {node}")
    if row["added"]:
        say(f"no user may connect to {name} yet: see `txha permissions set --help`")


@app.command()
def delete(
    name: Name,
    dir: OptionalDir = None,
    config: Config = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask at a terminal; a script is never asked.")] = False,
    as_json: Json = False,
) -> None:
    """Delete a virtual host with all queues, messages, exchanges, permissions and limits in it.

    Its connections are closed. The answer comes when the deletion has begun; `list` shows it until it is over.
    """
    if sys.stdin.isatty() and not yes:
        say(f"all queues and messages in {name} go with it", beside=True)
        print("Delete it? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise SystemExit(1)
    rule: dict[str, Any] = {"kind": VHOST, "vhost": name, "name": name}
    changed(dir, config, "rules.clear", rule, f"{name} is being deleted", as_json)
