"""``txha calls``: make a cluster call, see which nodes have run it, help a node over one that fails there."""

from __future__ import annotations

import json
import math
import secrets
from pathlib import Path
from typing import Annotated, Any

import typer

from broker_plugin.cli.asking import BadArgument, Json, OptionalDir, best_node, node_entry, nodes_shown
from broker_plugin.cli.layout import NodeEntry
from broker_plugin.cli.terminal import say
from recovery.reader.node_admin import AdminError, AnswerLost, ask
from txobserver.calls import ID_BYTES

app = typer.Typer(
    help="Change what surrounds all nodes, in one order, and see which of them have it.", no_args_is_help=True
)
SECONDS = 15.0
"""How long a node may take to answer, beside the time for which a call waits."""
NOT_MADE, LAGGING, UNKNOWN = 1, 3, 4
"""Exit status of ``txha calls call``: the call does not exist; it exists, and nodes lack it; it is not known."""

Config = Annotated[Path | None, typer.Option("--config", help="The TOML file of the node to ask, instead of --dir.")]
Ask = Annotated[str | None, typer.Option("--node", help="With --dir: the node to ask; else the primary is asked.")]
Node = Annotated[str, typer.Argument(metavar="NODE", help="The node that lags.")]
Number = Annotated[int, typer.Argument(metavar="N", min=1, help="The call's number (tnx_id).")]


@app.command()
def status(dir: OptionalDir = None, node: Ask = None, config: Config = None, as_json: Json = False) -> None:
    """Show how far each node is, and what became of each call that is kept. Exit status 1: a node lags or cannot undo
    a call that was not made, or what is in force is not so at the node that is asked."""
    from broker_plugin.cli.calls.tables import status_tables

    found = _asked(dir, node, config, "calls.status")
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        status_tables(found)
    nodes = found["nodes"]
    if nodes is None or found.get("amiss") or any(each.get("undoing") for each in nodes):
        raise SystemExit(1)
    if any(each["behind"] != 0 for each in _reporting(found)):
        raise SystemExit(1)


def _reporting(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Where there never was a call, no node has anything to report."""
    return found["nodes"] if found["calls"] else []


@app.command("list")
def list_(
    by: Annotated[
        str | None, typer.Option("--by", help="List what this user has changed; '' for operators at the machine.")
    ] = None,
    dir: OptionalDir = None,
    node: Ask = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """List the calls that are kept: the history, and before it the last one of each operation and name.

    With --by, list every change that a user has made, of users, permissions, virtual hosts, policies and the like, with
    address, time, and what was there before and after.
    """
    from broker_plugin.cli.calls.tables import calls_table, changes_table

    if by is not None:
        changes = _asked(dir, node, config, "changes.list", {"by": by})
        if as_json:
            typer.echo(json.dumps(changes, indent=2))
        else:
            changes_table(changes)
        return
    rows = _asked(dir, node, config, "calls.list")
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        calls_table(rows)


@app.command()
def inspect(
    call: Annotated[str, typer.Argument(metavar="N", help="The call's number (tnx_id), or its id.")],
    dir: OptionalDir = None,
    node: Ask = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show one call: its arguments, who made it, which nodes lack it, and why."""
    from broker_plugin.cli.calls.tables import call_lines

    row = _asked(dir, node, config, "calls.inspect", {"call": call})
    if as_json:
        typer.echo(json.dumps(row, indent=2))
    else:
        for line in call_lines(row):
            say(line)


@app.command()
def call(
    operation: Annotated[str, typer.Argument(metavar="OP", help="log_level, listener, hook, flag or certificates.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ARG=VALUE]...", help="name=NAME and the operation's own; a list has one for each."),
    ] = None,
    succeed_num: Annotated[
        str, typer.Option("--succeed-num", help="Wait until so many nodes have run it: a number, or all.")
    ] = "all",
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds to wait for that.")] = 10.0,
    dir: OptionalDir = None,
    node: Ask = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Make a call. It is run at the node that is asked, then recorded, then run by all others.

    Exit status 0: enough nodes have run it. 1: it was not made, as where the node refuses the operation, a name or a
    value; no node holds anything of it, but for one that says that it could not undo it yet. 3: it is recorded, and
    nodes that are named have not run it; they try again. 4: not known; ask again with `txha calls inspect ID`. 2: the
    command cannot be read, or names no cluster or node.
    """
    if not 0 < timeout < math.inf:
        raise BadArgument("--timeout must be a finite number of seconds, and more than 0")
    given: dict[str, list[str]] = {}
    for each in arguments or []:
        key, separator, value = each.partition("=")
        if not separator:
            raise BadArgument(f"an argument is ARG=VALUE, not {each!r}")
        given.setdefault(key, []).append(value)
    asked = {
        "operation": operation,
        "arguments": given,
        "succeed_num": _succeed_num(succeed_num),
        "timeout": timeout,
    }
    directory, call_id = _entry(dir, node, config).directory, secrets.token_hex(ID_BYTES)
    try:
        answer = ask(directory, "calls.call", {**asked, "id": call_id}, timeout + SECONDS)
    except AnswerLost as error:
        answer = {"id": call_id, "result": "unknown", "reason": str(error)}
    status = {"done": 0, "not made": NOT_MADE, "lagging": LAGGING}.get(answer["result"], UNKNOWN)
    if as_json:
        typer.echo(json.dumps(answer, indent=2))
    else:
        say(_sentence(answer), beside=status != 0)
    raise SystemExit(status)


def _succeed_num(given: str) -> int | str:
    if given == "all":
        return given
    if not given.isdecimal() or not int(given):
        raise BadArgument("--succeed-num is a number of nodes, from 1 on, or all")
    return int(given)


def _sentence(answer: dict[str, Any]) -> str:
    match answer["result"]:
        case "done":
            return f"call {answer['tnx_id']} is done"
        case "not made":
            return f"txha: the call was not made: {answer['reason']}"
        case "lagging":
            why = answer["lagging"]
            nodes = "; ".join(f"{each} ({why[each]})" if each in why else each for each in answer["nodes"])
            if not nodes:
                return f"txha: call {answer['tnx_id']} is recorded, and fewer nodes are attached than were to run it"
            return f"txha: call {answer['tnx_id']} is recorded, and has not been run by {nodes}"
    why = f" ({answer['reason']})" if "reason" in answer else ""
    return f"txha: what became of the call is not known{why}: ask again with `txha calls inspect {answer['id']}`"


@app.command()
def skip(
    lagging: Node,
    number: Number,
    dir: OptionalDir = None,
    node: Ask = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Let a node do without one call, which it then never runs."""
    _control(dir, node, config, "skip", lagging, number, f"{lagging} skips call {number}", as_json)


@app.command("fast-forward")
def fast_forward(
    lagging: Node,
    number: Number,
    dir: OptionalDir = None,
    node: Ask = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Let a node do without all calls up to this one."""
    said = f"{lagging} goes forward to call {number}"
    _control(dir, node, config, "fast-forward", lagging, number, said, as_json)


@app.command()
def fix(lagging: Node, dir: OptionalDir = None, node: Ask = None, config: Config = None, as_json: Json = False) -> None:
    """Let a node skip the calls that fail there, as far as later ones of the same name have taken their place.

    Exit status 1: a call fails there that is the last of its name; mend the cause, or skip it.
    """
    found = _asked(dir, node, config, "calls.fix", {"node": lagging})
    skipped = ", ".join(map(str, found["skipped"])) or "no call"
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        say(f"{lagging} skips {skipped}")
    if found["failing"] is not None:
        say(
            f"txha: call {found['failing']} fails at {lagging}, and none has taken its place: {found['reason']}; mend "
            f"that, or `txha calls skip {lagging} {found['failing']}`",
            beside=True,
        )
        raise SystemExit(1)
    if found.get("undoing"):
        say(
            f"txha: {lagging} cannot undo a call that was begun there and not made: {found['reason']}; mend that, it "
            "tries again by itself",
            beside=True,
        )
        raise SystemExit(1)


@app.command()
def reset(
    dir: OptionalDir = None,
    node: Ask = None,
    config: Config = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="No node runs what stands before; without it nothing is done.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Let all nodes do without every call that was made before. Numbers go on."""
    if not yes:
        raise BadArgument(
            "a node that lags never runs what it lacks once calls are reset: give --yes if that is wanted"
        )
    _control(dir, node, config, "reset", "", 0, "no node runs any call that was made before", as_json)


def _control(
    dir: Path | None,
    node: str | None,
    config: Path | None,
    operation: str,
    lagging: str,
    number: int,
    said: str,
    as_json: bool,
) -> None:
    asked = {"operation": operation, "node": lagging, "tnx_id": number}
    found = _asked(dir, node, config, "calls.control", asked)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        say(said)


def _asked(
    dir: Path | None,
    node: str | None,
    config: Path | None,
    command: str,
    arguments: dict[str, Any] | None = None,
    seconds: float = SECONDS,
) -> Any:
    return ask(_entry(dir, node, config).directory, command, arguments, seconds)


def _entry(dir: Path | None, node: str | None, config: Path | None) -> NodeEntry:
    """The node to ask. Raises BadArgument, ClusterError, ConfigError, AdminError."""
    if node is not None and (dir is None or config is not None):
        raise BadArgument("--node names a node of the cluster in --dir; --config names one by its own file")
    if dir is not None and config is None:
        return node_entry(dir, node or best_node(dir)["name"])
    found = nodes_shown(dir, config)
    if not found:
        raise AdminError(f"{dir} has no node")
    return found[0]
