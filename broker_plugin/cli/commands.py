"""``txha``: run nodes and clusters, look at them, hand over, see it all at work."""

from __future__ import annotations

import json
import os
import platform
import re
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer
from typer._click.exceptions import NoArgsIsHelpError, UsageError

from broker_plugin.cli.access import definitions, limits, members, permissions, policies, users, vhosts
from broker_plugin.cli.asking import (
    BadArgument,
    Dir,
    Json,
    LogFormat,
    OptionalDir,
    best_node,
    node_entry,
    node_status,
    nodes_shown,
    paths_told,
    settings_given,
    with_log_format,
)
from broker_plugin.cli.calls import calls
from broker_plugin.cli.certificates import commands as certificates
from broker_plugin.cli.cluster.discard import discard
from broker_plugin.cli.cluster.hash_password import hash_password
from broker_plugin.cli.cluster.init import init
from broker_plugin.cli.layout import ClusterError
from broker_plugin.cli.pipeline.archive import archive
from broker_plugin.cli.pipeline.audit import audit
from broker_plugin.cli.pipeline.spark_package import spark_package
from broker_plugin.cli.recovery.rebuild import rebuild
from broker_plugin.cli.recovery.recover import recover
from broker_plugin.cli.terminal import say, whole_output
from broker_plugin.cli.transactions import dtx
from broker_plugin.compiled import SWITCH, running
from broker_plugin.node.config import ConfigError, check_places, load_config
from broker_plugin.node.users import check_config_file
from recovery.reader.node_admin import AdminError, ask
from recovery.store.parent import end_with
from txobserver.ports.store import StoreBusy

EXTENSIONS = "txha.commands"
"""The group of entry points by which what stands above the product adds commands: demo, stress, takeover."""

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
tx = typer.Typer(help="Look at transactions.", no_args_is_help=True)
app.add_typer(tx, name="tx")
app.add_typer(dtx.app, name="dtx")
app.add_typer(calls.app, name="calls")
app.add_typer(members.app, name="member")
app.add_typer(users.app, name="users")
app.add_typer(vhosts.app, name="vhosts")
app.add_typer(permissions.app, name="permissions")
app.add_typer(permissions.topics, name="topic-permissions")
app.add_typer(limits.app, name="limits")
app.add_typer(policies.app, name="policies")
app.add_typer(policies.operators, name="operator-policies")
app.add_typer(definitions.app, name="definitions")
app.add_typer(certificates.app, name="certificates")
for of_files in (init, hash_password, recover, discard, rebuild, archive, spark_package, audit):
    app.command()(paths_told()(of_files))


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"txha {metadata.version('txha')}, core {running()}, Python {platform.python_version()}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_say_version, is_eager=True, help="Say which version and core this is."),
    ] = False,
) -> None:
    """txha: broker transactions that no crash can halve. Runs AMQP 0-9-1 nodes that replicate transactions."""


@app.command()
def node(
    config: Annotated[Path, typer.Option("--config", help="The node's TOML file.")],
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Override a key, for example timing.lease_ttl=2. May be repeated.")
    ] = None,
    log_format: LogFormat = None,
    with_parent: Annotated[int | None, typer.Option("--with-parent", hidden=True)] = None,
) -> None:
    """Run one node in the foreground. Ctrl-C or SIGTERM ends it cleanly. A new cluster needs `txha init` before."""
    if with_parent is not None:
        end_with(with_parent)
    from broker_plugin.node.main import run_node

    loaded = load_config(config, settings_given(with_log_format(set_ or [], log_format)))
    check_config_file(config)
    check_places(loaded)
    try:
        status = run_node(loaded)
    except StoreBusy as error:  # a person need not mend anything: a supervisor of the node may start it again
        say(f"txha: {error}", beside=True)
        status = 1
    raise SystemExit(status)


@app.command()
def cluster(
    dir: Dir,
    nodes: Annotated[int, typer.Option(help="Number of nodes.", min=1, max=9)] = 3,
    base_port: Annotated[int, typer.Option(help="Node i listens for AMQP on this port + i - 1.")] = 5701,
    restart: Annotated[bool, typer.Option("--restart", help="Start a node again when its process has died.")] = False,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Override a key for every node, for example min_ready=2.")
    ] = None,
    http_port: Annotated[
        int | None, typer.Option("--http-port", help="Node i answers operators by HTTP on this port + i - 1.")
    ] = None,
    log_format: LogFormat = None,
) -> None:
    """Run a local cluster in the foreground, each node a process of its own.

    On a new directory the cluster is founded; an existing one is resumed, and never founded anew.
    """
    from broker_plugin.cli.cluster.cluster import run_cluster

    settings_given(set_)
    settings = with_log_format(set_ or [], log_format)
    raise SystemExit(run_cluster(dir, nodes, base_port, restart, settings, http_port=http_port))


@app.command()
def status(
    dir: OptionalDir = None,
    config: Annotated[Path | None, typer.Option("--config", help="The TOML file of one node, to see it alone.")] = None,
    ready: Annotated[
        bool, typer.Option("--ready", help="Exit status 1 unless all that is shown is active or ready.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show every node: state, generation, transactions, and how far each backup lags."""
    from broker_plugin.cli.tables import status_table

    found = [node_status(entry) for entry in nodes_shown(dir, config)]
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        status_table(found)
    if all(each["state"] == "down" for each in found) or (ready and not all(each["ready"] for each in found)):
        raise SystemExit(1)


WAITED = 30.0
"""Seconds, of a promotion"""


@app.command()
def promote(
    node: Annotated[str | None, typer.Argument(help="The node that shall be primary; with --dir.")] = None,
    dir: OptionalDir = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="The TOML file of the node that shall be primary, on its own host.")
    ] = None,
    accept_data_loss: Annotated[
        bool,
        typer.Option(
            "--accept-data-loss", help="Promote it even if it is not ready: what only other nodes hold is lost."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask at a terminal; a script is never asked.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until the node is the active primary, or only ask for it.")
    ] = True,
    timeout: Annotated[
        float | None, typer.Option(help="With --wait: seconds, 30 if not given; then the exit status is 1.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Hand the primary's role to a ready backup, and wait until it is the active primary.

    The primary first lets end what its clients have begun, and closes them; what came of that is printed.

    With --accept-data-loss, what will be lost is said before, and the loss is accepted for the coordination record as
    it is then: if another node has become primary meanwhile, nothing is done.
    """
    from broker_plugin.cli.cluster import promoting

    promoting.check_waiting(wait, timeout, as_json)
    nodes, chosen = promoting.promoted(dir, config, node)
    node, directory = chosen.name, chosen.directory
    arguments: dict[str, object] = {"accept_data_loss": accept_data_loss}
    if accept_data_loss:
        with promoting.by_name(node, config):
            seen = ask(directory, "status")
        version = promoting.accepted_version(seen, yes)
        if version is None:
            raise SystemExit(1)
        arguments["version"] = version
    elif yes:
        raise BadArgument("--yes answers the question that comes with --accept-data-loss; nothing else is asked")
    since = promoting.greatest_generation(nodes)
    with promoting.by_name(node, config):
        ask(directory, "promote", arguments)
    if accept_data_loss:
        promoting.say_accepted(seen)
    if wait:
        found = promoting.wait_active(nodes, node, since, WAITED if timeout is None else timeout)
        promoting.say_promoted(node, found, as_json)
    elif accept_data_loss:
        say(f"{node} is taking over; see `txha status`")
    else:
        say(f"{node} asks the primary to hand over; see `txha status`, or the log of {node} if it stays ready")


@tx.command("list")
def tx_list(dir: Dir, as_json: Json = False) -> None:
    """List the transactions that have not ended, as the primary (or else any node) knows them."""
    from broker_plugin.cli.tables import transactions_table

    best = best_node(dir)
    rows = ask(node_entry(dir, best["name"]).directory, "transactions")
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        transactions_table(best["name"], rows)


for extension in sorted(metadata.entry_points(group=EXTENSIONS), key=lambda each: each.name):
    app.command(extension.name)(extension.load())


def _check_core(chosen: str) -> None:
    """Refuse a misspelt choice of the core, as any other variable of ours. Raises ConfigError."""
    if chosen not in ("", "pure", "compiled"):
        raise ConfigError(f"{SWITCH} is pure or compiled, not {chosen!r}")


def _carry_out() -> None:
    """The command of the command line. What it cannot be given is told in one sentence, and whatever ends it by its
    status. Raises SystemExit."""
    try:
        status = app(prog_name="txha", standalone_mode=False)
    except NoArgsIsHelpError as error:  # it has printed the help
        raise SystemExit(error.exit_code) from None
    except UsageError as error:
        message = re.sub(r"\. (Did you mean .*)$", r" (\1)", " ".join(error.format_message().split()).rstrip("."))
        asked = error.ctx.command_path if error.ctx is not None else "txha"
        say(f"txha: {message[0].lower()}{message[1:]}; see `{asked} --help`", beside=True)
        raise SystemExit(error.exit_code) from None
    except typer.Abort:
        say("txha: aborted", beside=True)
        raise SystemExit(1) from None
    raise SystemExit(status or 0)


def command_line() -> None:
    """Carry out a command: errors are one sentence on stderr, exit status 2 for what the user can mend."""
    from recovery.pipeline.errors import PipelineError
    from txobserver.ports.store import StoreError

    try:
        _check_core(os.environ.get(SWITCH, ""))
        with whole_output():
            _carry_out()
    except (BadArgument, ConfigError, ClusterError, PipelineError, StoreError) as error:
        say(f"txha: {error}", beside=True)
        raise SystemExit(2) from None
    except AdminError as error:
        say(f"txha: {error}", beside=True)
        raise SystemExit(1) from None
