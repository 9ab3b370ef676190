"""``txha limits``: how many connections, channels and queues users and virtual hosts may have, as with RabbitMQ."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from broker_plugin.cli.access.cluster_asked import Config
from broker_plugin.cli.access.rules import changed, listed
from broker_plugin.cli.asking import BadArgument, Json, OptionalDir
from txobserver.rules import LIMITS, USER_LIMIT, VHOST_LIMIT

app = typer.Typer(help="Say how many connections, channels and queues there may be.", no_args_is_help=True)

OfUser = Annotated[str | None, typer.Option("--user", help=f"Of this user: {', '.join(LIMITS[USER_LIMIT])}.")]
OfVhost = Annotated[str | None, typer.Option("--vhost", "-p", help=f"Of this one: {', '.join(LIMITS[VHOST_LIMIT])}.")]
Which = Annotated[str, typer.Argument(metavar="LIMIT", help="Which limit.")]
Most = Annotated[int, typer.Argument(metavar="MOST", help="How many there may be; -1 for as many as there come.")]


@app.command("list")
def limits_list(
    user: OfUser = None, vhost: OfVhost = None, dir: OptionalDir = None, config: Config = None, as_json: Json = False
) -> None:
    """List the limits that are set."""
    from broker_plugin.cli.tables import limits_table

    rows = [
        *(listed(dir, config, [USER_LIMIT], user, None) if vhost is None else []),
        *(listed(dir, config, [VHOST_LIMIT], None, vhost) if user is None else []),
    ]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        limits_table(rows)


@app.command("set", context_settings={"ignore_unknown_options": True})  # for -1
def limits_set(
    limit: Which,
    most: Most,
    user: OfUser = None,
    vhost: OfVhost = None,
    dir: OptionalDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Set a limit of a user or of a virtual host. What is there already stays, also if it is more."""
    place = _place(limit, user, vhost)
    sentence = f"{place['name']} has at most {most} as {limit}" if most >= 0 else f"{place['name']} has no {limit}"
    changed(dir, config, "rules.set", {**place, "most": most}, sentence, as_json)


@app.command("clear")
def limits_clear(
    limit: Which,
    user: OfUser = None,
    vhost: OfVhost = None,
    dir: OptionalDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Take a limit away."""
    place = _place(limit, user, vhost)
    changed(dir, config, "rules.clear", place, f"{place['name']} has no {limit}", as_json)


def _place(limit: str, user: str | None, vhost: str | None) -> dict[str, Any]:
    """Where the limit stands. Raises BadArgument."""
    if (user is None) == (vhost is None):
        raise BadArgument("say whose limit it is: either --user USER, or --vhost VHOST")
    kind = USER_LIMIT if vhost is None else VHOST_LIMIT
    if limit not in LIMITS[kind]:
        raise BadArgument(f"there is no limit {limit!r}: it is one of {', '.join(LIMITS[kind])}")
    return {"kind": kind, "vhost": vhost or "", "name": vhost if vhost is not None else user, "scope": limit}
