"""The node that a command about users asks: any node passes a change on to the primary."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from broker_plugin.cli.asking import node_status, nodes_shown
from recovery.reader.node_admin import AdminError, ask

SECONDS = 15.0
"""How long a node may take to answer: a change waits for every ready node."""
Config = Annotated[Path | None, typer.Option("--config", help="The TOML file of the node to ask, instead of --dir.")]


def ask_cluster(dir: Path | None, config: Path | None, command: str, arguments: dict[str, Any]) -> tuple[str, Any]:
    """The node that was asked, the primary if there is one, and its answer. Raises AdminError, BadArgument."""
    entries = nodes_shown(dir, config)
    up = [(status, entry) for entry in entries if (status := node_status(entry))["state"] != "down"]
    if not up:
        raise AdminError("no node answers; start the cluster first")
    _, chosen = max(up, key=lambda each: (each[0]["state"] == "active", each[0]["generation"]))
    return chosen.name, ask(chosen.directory, command, arguments, SECONDS)
