"""``txha users``: the users of the cluster, which every node keeps alike."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from broker_plugin.cli.access.cluster_asked import Config, ask_cluster
from broker_plugin.cli.asking import BadArgument, Json, OptionalDir
from broker_plugin.cli.passwords import drawn_hash, given_password
from broker_plugin.cli.terminal import say

app = typer.Typer(help="Add, change and delete the users of the cluster.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="NAME", help="The user's name.")]
AsHash = Annotated[
    bool,
    typer.Option(
        "--hash",
        help="What is read is not the password but its hash: what `txha hash-password` prints, or RabbitMQ's, written "
        "as rabbit_password_hashing_sha256$BASE64 or rabbit_password_hashing_sha512$BASE64.",
    ),
]


@app.command("list")
def users_list(dir: OptionalDir = None, config: Config = None, as_json: Json = False) -> None:
    """List the users and their tags."""
    from broker_plugin.cli.tables import users_table

    _, rows = ask_cluster(dir, config, "users.list", {})
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        users_table(rows)


@app.command()
def add(
    name: Name,
    dir: OptionalDir = None,
    config: Config = None,
    tag: Annotated[list[str] | None, typer.Option("--tag", help="A tag. May be repeated.")] = None,
    as_hash: AsHash = False,
    as_json: Json = False,
) -> None:
    """Add a user. The password is asked for at a terminal, else it is the first line of the standard input."""
    arguments = {"name": name, "hash": _hash(as_hash), "tags": tag or []}
    answer = ask_cluster(dir, config, "users.add", arguments)
    _say(answer, "is added", as_json)
    if not as_json:
        say(f"{name} may do nothing yet: see `txha permissions set --help`")


@app.command()
def passwd(
    name: Name, dir: OptionalDir = None, config: Config = None, as_hash: AsHash = False, as_json: Json = False
) -> None:
    """Give a user another password, read as for `add`. Connections that are open stay open, as with RabbitMQ."""
    answer = ask_cluster(dir, config, "users.passwd", {"name": name, "hash": _hash(as_hash)})
    _say(answer, "has a new password", as_json)


@app.command()
def delete(name: Name, dir: OptionalDir = None, config: Config = None, as_json: Json = False) -> None:
    """Delete a user. Its connections are closed."""
    _say(ask_cluster(dir, config, "users.delete", {"name": name}), "is deleted", as_json)


@app.command("set-tags")
def set_tags(
    name: Name,
    tags: Annotated[
        list[str] | None, typer.Argument(metavar="[TAG]...", help="All tags; none takes them away.")
    ] = None,
    dir: OptionalDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Give a user these tags and no others."""
    _say(ask_cluster(dir, config, "users.set_tags", {"name": name, "tags": tags or []}), "has these tags", as_json)


@app.command()
def authenticate(name: Name, dir: OptionalDir = None, config: Config = None, as_json: Json = False) -> None:
    """Say whether a password is the user's: exit status 1 if it is not. The password is read as for `add`."""
    arguments = {"name": name, "password": given_password(confirm=False)}
    _, row = ask_cluster(dir, config, "users.authenticate", arguments)
    if as_json:
        typer.echo(json.dumps(row, indent=2))
    else:
        say(f"this is the password of {name}" if row["right"] else f"this is not the password of {name}")
    if not row["right"]:
        raise SystemExit(1)


def _hash(as_hash: bool) -> str:
    """What is read, as a hash: the password itself never leaves this process. Raises BadArgument."""
    from broker_plugin.amqp.protocol.passwords import is_hash

    given = given_password(confirm=not as_hash)
    if not as_hash:
        return drawn_hash(given)
    if not is_hash(given):
        raise BadArgument("this is no hash that is known: see `txha users add --help`")
    return given


def _say(answer: tuple[str, Any], what: str, as_json: bool) -> None:
    node, row = answer
    if as_json:
        typer.echo(json.dumps(row, indent=2))
    else:
        shown = f": {', '.join(row['tags']) or 'none'}" if "tags" in row and what == "has these tags" else ""
        say(f"{row['name']} {what}{shown}, says {node}")
