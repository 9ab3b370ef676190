"""``txha policies`` and ``operator-policies``: what holds of all exchanges or queues whose names fit a pattern."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from broker_plugin.cli.access.cluster_asked import Config
from broker_plugin.cli.access.rules import OnlyVhost, Vhost, changed, listed
from broker_plugin.cli.asking import BadArgument, Json, OptionalDir
from broker_plugin.definitions.keys import KeyTwice, checked_json
from txobserver.policies import ALL, ALTERNATE_EXCHANGE, APPLIES_TO, EXPIRES
from txobserver.rules import OPERATOR_POLICY, POLICY
from txobserver.vhosts import DEFAULT_VHOST

app = typer.Typer(
    help="Give exchanges an alternate exchange, and queues an expiry, by their names.", no_args_is_help=True
)
operators = typer.Typer(
    help="Bound what policies and declarations say of queues: the smaller number holds.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The policy's name.")]
Pattern = Annotated[
    str, typer.Argument(help="A regular expression, looked for anywhere in the name; an empty one fits every name.")
]
Priority = Annotated[int, typer.Option(help="Of two that fit, the one with the higher one holds.")]
Said = Annotated[
    str,
    typer.Argument(
        metavar="JSON", help=f'What holds: {{"{ALTERNATE_EXCHANGE}": "NAME"}}, {{"{EXPIRES}": MILLISECONDS}} or both.'
    ),
]
OperatorsSay = Annotated[str, typer.Argument(metavar="JSON", help=f'What holds: {{"{EXPIRES}": MILLISECONDS}}.')]
ApplyTo = Annotated[str, typer.Option(help=f"What it is of: {', '.join(APPLIES_TO)}.")]
OperatorsApplyTo = Annotated[str, typer.Option(help="What it is of: queues, or all, which are queues here.")]
NEGATIVE_PRIORITY = {"ignore_unknown_options": True}
"""Settings of a command that takes one"""


@app.command("list")
def policies_list(
    vhost: OnlyVhost = None, dir: OptionalDir = None, config: Config = None, as_json: Json = False
) -> None:
    """List the policies. Of those that fit a name, the one with the highest priority holds."""
    _list(listed(dir, config, [POLICY], None, vhost), as_json)


@operators.command("list")
def operator_policies_list(
    vhost: OnlyVhost = None, dir: OptionalDir = None, config: Config = None, as_json: Json = False
) -> None:
    """List the operator policies. Of those that fit a name, the one with the highest priority holds."""
    _list(listed(dir, config, [OPERATOR_POLICY], None, vhost), as_json)


@app.command("set", context_settings=NEGATIVE_PRIORITY)
def policies_set(
    name: Name,
    pattern: Pattern,
    definition: Said,
    priority: Priority = 0,
    apply_to: ApplyTo = ALL,
    vhost: Vhost = DEFAULT_VHOST,
    dir: OptionalDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Set a policy. It holds at once, for what is declared and for what will be.

    An exchange that was declared with an alternate exchange keeps that one. Of several expiries of a queue (its own,
    that of a policy, that of an operator policy) the smallest holds.
    """
    said = {"pattern": pattern, "priority": priority, "apply_to": apply_to}
    said["definition"] = _object(definition, f'"{ALTERNATE_EXCHANGE}": "NAME"')
    _change((dir, config), "rules.set", (POLICY, vhost, name), "holds", said, as_json)


@operators.command("set", context_settings=NEGATIVE_PRIORITY)
def operator_policies_set(
    name: Name,
    pattern: Pattern,
    definition: OperatorsSay,
    priority: Priority = 0,
    apply_to: OperatorsApplyTo = ALL,
    vhost: Vhost = DEFAULT_VHOST,
    dir: OptionalDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Set an operator policy. It holds at once, for queues that are declared and for those that will be.

    Of several expiries of a queue (its own, that of a policy, that of an operator policy) the smallest holds.
    """
    said = {"pattern": pattern, "priority": priority, "apply_to": apply_to}
    said["definition"] = _object(definition, f'"{EXPIRES}": MILLISECONDS')
    _change((dir, config), "rules.set", (OPERATOR_POLICY, vhost, name), "holds", said, as_json)


@app.command("clear")
def policies_clear(
    name: Name, vhost: Vhost = DEFAULT_VHOST, dir: OptionalDir = None, config: Config = None, as_json: Json = False
) -> None:
    """Take a policy away."""
    _change((dir, config), "rules.clear", (POLICY, vhost, name), "holds no more", {}, as_json)


@operators.command("clear")
def operator_policies_clear(
    name: Name, vhost: Vhost = DEFAULT_VHOST, dir: OptionalDir = None, config: Config = None, as_json: Json = False
) -> None:
    """Take an operator policy away."""
    _change((dir, config), "rules.clear", (OPERATOR_POLICY, vhost, name), "holds no more", {}, as_json)


def _change(
    where: tuple[Path | None, Path | None],
    command: str,
    place: tuple[str, str, str],
    what: str,
    said: dict[str, Any],
    as_json: bool,
) -> None:
    """``where``: the directory and the file that name the node to ask; ``place``: kind, virtual host and name."""
    kind, vhost, name = place
    rule = {"kind": kind, "vhost": vhost, "name": name, **said}
    changed(*where, command, rule, f"{kind.replace('_', ' ')} {name} {what} in {vhost}", as_json)


def _list(rows: list[dict[str, Any]], as_json: bool) -> None:
    from broker_plugin.cli.tables import policies_table

    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        policies_table(rows)


def _object(text: str, such_as: str) -> dict[str, Any]:
    """Raises BadArgument."""
    try:
        found = checked_json(text)
    except KeyTwice as error:
        raise BadArgument(str(error)) from None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise BadArgument(f"a definition is an object of JSON, such as {{{such_as}}}")
    return found
