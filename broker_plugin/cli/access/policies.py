"""``txha policies``: what holds of all exchanges whose names fit a pattern."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from broker_plugin.cli.access.cluster_asked import Config
from broker_plugin.cli.access.rules import OnlyVhost, Vhost, changed, listed
from broker_plugin.cli.asking import BadArgument, Json, OptionalDir
from broker_plugin.definitions.keys import KeyTwice, checked_json
from txobserver.rules import ALTERNATE_EXCHANGE, POLICY
from txobserver.vhosts import DEFAULT_VHOST

app = typer.Typer(help="Give exchanges an alternate exchange by their names.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The policy's name.")]


@app.command("list")
def policies_list(
    vhost: OnlyVhost = None, dir: OptionalDir = None, config: Config = None, as_json: Json = False
) -> None:
    """List the policies. Of those that fit an exchange, the one with the highest priority holds."""
    from broker_plugin.cli.tables import policies_table

    rows = listed(dir, config, [POLICY], None, vhost)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        policies_table(rows)


@app.command("set", context_settings={"ignore_unknown_options": True})  # for a negative priority
def policies_set(
    name: Name,
    pattern: Annotated[
        str, typer.Argument(help="A regular expression, looked for anywhere in the name; an empty one fits every name.")
    ],
    definition: Annotated[
        str, typer.Argument(metavar="JSON", help=f'What holds: {{"{ALTERNATE_EXCHANGE}": "NAME"}}.')
    ],
    priority: Annotated[int, typer.Option(help="Of two that fit, the one with the higher one holds.")] = 0,
    vhost: Vhost = DEFAULT_VHOST,
    dir: OptionalDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Set a policy. It holds at once, for exchanges that are declared and for those that will be.

    An exchange that was declared with an alternate exchange keeps that one.
    """
    rule = {"kind": POLICY, "vhost": vhost, "name": name, "pattern": pattern, "priority": priority}
    rule["definition"] = _object(definition)
    changed(dir, config, "rules.set", rule, f"policy {name} holds in {vhost}", as_json)


@app.command("clear")
def policies_clear(
    name: Name, vhost: Vhost = DEFAULT_VHOST, dir: OptionalDir = None, config: Config = None, as_json: Json = False
) -> None:
    """Take a policy away."""
    rule = {"kind": POLICY, "vhost": vhost, "name": name}
    changed(dir, config, "rules.clear", rule, f"policy {name} holds no more in {vhost}", as_json)


def _object(text: str) -> dict[str, Any]:
    """Raises BadArgument."""
    try:
        found = checked_json(text)
    except KeyTwice as error:
        raise BadArgument(str(error)) from None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise BadArgument(f'a definition is an object of JSON, such as {{"{ALTERNATE_EXCHANGE}": "NAME"}}')
    return found
