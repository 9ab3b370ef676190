"""``txha rebuild``: a new node's store from an archive and a log, instead of a copy from a primary."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from broker_plugin.cli.asking import Json


def rebuild(
    into: Annotated[Path, typer.Option("--into", help="The new node's directory, which holds no store.")],
    log: Annotated[
        Path | None, typer.Option("--log", help="The directory of a node, live or not, whose log goes on behind.")
    ] = None,
    archive: Annotated[Path | None, typer.Option("--archive", help="What `txha archive` has written.")] = None,
    archived_node: Annotated[
        str | None, typer.Option("--archived-node", help="Take only this node's events of the archive.")
    ] = None,
    node: Annotated[str | None, typer.Option("--node", help="The new node's name; else that of its directory.")] = None,
    cluster: Annotated[str | None, typer.Option("--cluster", help="Refuse another cluster's events.")] = None,
    cluster_id: Annotated[
        str | None,
        typer.Option("--cluster-id", help="The identity of that cluster: for events that do not say it."),
    ] = None,
    outcomes_kept: Annotated[int, typer.Option(help="As in the nodes' configuration.")] = 100_000,
    outcome_seconds: Annotated[float, typer.Option(help="As in the nodes' configuration.")] = 86_400.0,
    as_json: Json = False,
) -> None:
    """Make a new node's store. Started, the node joins and catches up from there.

    Exit status 0: it is made; 2: it could not be, one sentence says why, and there is no store.
    """
    from broker_plugin.cli.recovery.rebuilding import run

    run(into, log, archive, archived_node, node, cluster, outcomes_kept, outcome_seconds, as_json, cluster_id)
