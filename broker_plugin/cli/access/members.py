"""``txha member``: which nodes belong to the cluster, as the coordination record says."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from broker_plugin.cli.access.cluster_asked import Config, ask_cluster
from broker_plugin.cli.asking import BadArgument, Json, OptionalDir
from broker_plugin.cli.terminal import say
from ha.membership.members import ADD, MOVE, REMOVE, MemberChange, shown, wrong_host, wrong_in

app = typer.Typer(help="List, add, remove and move the nodes of the cluster.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="NAME", help="The node's name, as its own file says it.")]
Address = Annotated[
    str,
    typer.Argument(
        metavar="HOST:PORT", help="Where other nodes find it: peer.host and peer.port. IPv6 in brackets: [::1]:5801."
    ),
]


@app.command("list")
def member_list(dir: OptionalDir = None, config: Config = None, as_json: Json = False) -> None:
    """List the members, and how many of them must be ready."""
    from broker_plugin.cli.tables import members_table

    node, found = ask_cluster(dir, config, "members.list", {})
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        members_table(node, found)


@app.command()
def add(name: Name, address: Address, dir: OptionalDir = None, config: Config = None, as_json: Json = False) -> None:
    """Add a node: all others dial it from now on. It counts for min_ready once it has been ready.

    Exit status 0: it is a member, also if it was one at that address; 1: it is not, or that is not known.
    """
    _change(dir, config, as_json, ADD, name, address)


@app.command()
def remove(name: Name, dir: OptionalDir = None, config: Config = None, as_json: Json = False) -> None:
    """Remove a node, which must not be the primary. Its store is refused until it is discarded."""
    _change(dir, config, as_json, REMOVE, name)


@app.command()
def move(name: Name, address: Address, dir: OptionalDir = None, config: Config = None, as_json: Json = False) -> None:
    """Give a node another address, at which all others look for it from now on."""
    _change(dir, config, as_json, MOVE, name, address)


_DONE = {ADD: "is added at", MOVE: "is looked for at", REMOVE: "is removed"}


def _change(dir: Any, config: Any, as_json: bool, kind: str, name: str, address: str = "") -> None:
    """Raises AdminError, BadArgument."""
    change = MemberChange(kind, name, *(() if kind == REMOVE else read_address(address)))
    if (wrong := wrong_in(change)) is not None:
        raise BadArgument(wrong)
    arguments = {"kind": kind, "name": name} | ({} if kind == REMOVE else {"host": change.host, "port": change.port})
    node, row = ask_cluster(dir, config, "members.change", arguments)
    if as_json:
        typer.echo(json.dumps(row, indent=2))
        return
    where = "" if kind == REMOVE else f" {shown(row['host'], row['port'])}"
    say(f"{name} {_DONE[kind]}{where}, says {node}")


def read_address(text: str) -> tuple[str, int]:
    """HOST:PORT, of which an IPv6 address stands in brackets. Raises BadArgument."""
    host, separator, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    bare = host[1:-1] if bracketed else host
    good = bool(separator) and bool(bare) and bracketed == (":" in bare) and not set(bare) & set("[]/@ \t")
    if good and (wrong := wrong_host(bare)) is not None:
        raise BadArgument(wrong)
    if not good:
        raise BadArgument(f"an address reads HOST:PORT, with an IPv6 address in brackets, not {text!r}")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise BadArgument(f"the port in {text!r} is no number from 1 to 65535")
    return bare, int(port)
