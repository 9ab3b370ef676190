"""What the commands about rules of users have in common: how a rule is named, listed and told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from broker_plugin.cli.access.cluster_asked import ask_cluster
from broker_plugin.cli.terminal import say
from recovery.reader.node_admin import AdminError
from txobserver.rules import VHOST

User = Annotated[str, typer.Argument(metavar="USER", help="The user's name.")]
OnlyUser = Annotated[str | None, typer.Option("--user", help="Only those of this user.")]
OnlyVhost = Annotated[str | None, typer.Option("--vhost", "-p", help="Only those in this virtual host.")]
Vhost = Annotated[str, typer.Option("--vhost", "-p", help="The virtual host.")]
PATTERN = "a regular expression, looked for anywhere in the name; an empty one fits no name"


def listed(
    dir: Path | None, config: Path | None, kinds: list[str], user: str | None, vhost: str | None
) -> list[dict[str, Any]]:
    """The rules of these kinds, of one user and in one virtual host if that is said. Raises AdminError, also where
    there is no such user or virtual host."""
    _, rows = ask_cluster(dir, config, "rules.list", {"kinds": kinds})
    found = [row for row in rows if user in (None, row["name"]) and vhost in (None, row["vhost"])]
    if not found:
        _check_there(dir, config, user, vhost)
    return found


def _check_there(dir: Path | None, config: Path | None, user: str | None, vhost: str | None) -> None:
    """Nothing is listed of what is mistyped. Raises AdminError."""
    if vhost is not None:
        _, vhosts = ask_cluster(dir, config, "rules.list", {"kinds": [VHOST]})
        if all(row["name"] != vhost for row in vhosts):
            raise AdminError(f"there is no virtual host {vhost!r}; see `txha vhosts list`")
    if user is not None:
        _, users = ask_cluster(dir, config, "users.list", {})
        if all(row["name"] != user for row in users):
            raise AdminError(f"there is no user {user!r}; see `txha users list`")


def changed(
    dir: Path | None, config: Path | None, command: str, rule: dict[str, Any], sentence: str, as_json: bool
) -> None:
    """Set or clear a rule, and say so. Raises AdminError."""
    node, row = ask_cluster(dir, config, command, rule)
    if as_json:
        typer.echo(json.dumps(row, indent=2))
    else:
        say(f"{sentence}, says {node}")
