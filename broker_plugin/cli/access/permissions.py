"""``txha permissions`` and ``txha topic-permissions``: what users may configure, write and read, as with RabbitMQ."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from broker_plugin.cli.access.cluster_asked import Config
from broker_plugin.cli.access.rules import PATTERN, OnlyUser, OnlyVhost, User, Vhost, changed, listed
from broker_plugin.cli.asking import Json, OptionalDir
from txobserver.rules import PERMISSION, TOPIC_PERMISSION
from txobserver.vhosts import DEFAULT_VHOST

app = typer.Typer(help="Say which queues and exchanges users may configure, write and read.", no_args_is_help=True)
topics = typer.Typer(help="Say by which routing keys users may use topic exchanges.", no_args_is_help=True)

Exchange = Annotated[str, typer.Argument(metavar="EXCHANGE", help="The topic exchange.")]
Configure = Annotated[str, typer.Argument(help=f"What the user may declare and delete: {PATTERN}.")]
Write = Annotated[str, typer.Argument(help=f"Exchanges it may publish to, queues it may bind: {PATTERN}.")]
Read = Annotated[str, typer.Argument(help=f"Queues it may consume, exchanges it may bind from: {PATTERN}.")]
WriteKeys = Annotated[str, typer.Argument(metavar="WRITE", help=f"Keys it may publish with: {PATTERN}.")]
ReadKeys = Annotated[str, typer.Argument(metavar="READ", help=f"Keys it may bind with: {PATTERN}.")]


@app.command("list")
def permissions_list(
    user: OnlyUser = None,
    vhost: OnlyVhost = None,
    dir: OptionalDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """List what users may do. A user who is not listed cannot connect."""
    from broker_plugin.cli.tables import permissions_table

    rows = listed(dir, config, [PERMISSION], user, vhost)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        permissions_table(rows)


@app.command("set")
def permissions_set(
    user: User,
    configure: Configure,
    write: Write,
    read: Read,
    vhost: Vhost = DEFAULT_VHOST,
    dir: OptionalDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Say what a user may do in a virtual host. It holds at once, also on connections that are open."""
    rule = {"kind": PERMISSION, "vhost": vhost, "name": user, "configure": configure, "write": write, "read": read}
    changed(dir, config, "rules.set", rule, f"{user} has these permissions in {vhost}", as_json)


@app.command("clear")
def permissions_clear(
    user: User, vhost: Vhost = DEFAULT_VHOST, dir: OptionalDir = None, config: Config = None, as_json: Json = False
) -> None:
    """Let a user connect to a virtual host no more. Connections that are open stay open, and may do nothing."""
    rule = {"kind": PERMISSION, "vhost": vhost, "name": user}
    changed(dir, config, "rules.clear", rule, f"{user} may do nothing in {vhost}", as_json)


@topics.command("list")
def topics_list(
    user: OnlyUser = None,
    vhost: OnlyVhost = None,
    dir: OptionalDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """List them. A user for whom an exchange is not listed may use all keys there."""
    from broker_plugin.cli.tables import topic_permissions_table

    rows = listed(dir, config, [TOPIC_PERMISSION], user, vhost)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        topic_permissions_table(rows)


@topics.command("set")
def topics_set(
    user: User,
    exchange: Exchange,
    write: WriteKeys,
    read: ReadKeys,
    vhost: Vhost = DEFAULT_VHOST,
    dir: OptionalDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Say by which routing keys a user may publish to a topic exchange, and with which it may bind queues to it.

    {username} and {vhost} stand for the user's name and the virtual host.
    """
    rule = {"kind": TOPIC_PERMISSION, "vhost": vhost, "name": user, "scope": exchange, "write": write, "read": read}
    changed(dir, config, "rules.set", rule, f"{user} has these permissions of keys at {exchange}", as_json)


@topics.command("clear")
def topics_clear(
    user: User,
    exchange: Exchange,
    vhost: Vhost = DEFAULT_VHOST,
    dir: OptionalDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Let a user use all keys at a topic exchange again, as far as its permissions go."""
    rule = {"kind": TOPIC_PERMISSION, "vhost": vhost, "name": user, "scope": exchange}
    changed(dir, config, "rules.clear", rule, f"{user} may use all keys at {exchange}", as_json)
