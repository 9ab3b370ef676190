"""``txha init``: found a cluster with its first node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from broker_plugin.cli.asking import Json, settings_given
from broker_plugin.cli.terminal import say
from broker_plugin.node.config import NodeConfig, check_places, load_config
from broker_plugin.node.link_secrets import link_secrets, make_secret
from ha.membership.record import Record
from recovery.planner.founding import found


def init(
    config: Annotated[Path, typer.Option("--config", help="The TOML file of the node that founds the cluster.")],
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Override a key, for example dir=/data. May be repeated.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Found a cluster: once, with one of its nodes, before any of them starts.

    Gives the cluster a random identity, makes the node's empty store, the coordination record, and the file of the
    cluster's secret (peer.secret) unless it is there. Refused, with nothing written, if there is a record, or data in
    the store. Exit status 0: it is founded; 2: it is not.
    """
    loaded = load_config(config, settings_given(set_))
    record = found_cluster(loaded)
    if as_json:
        said = {"cluster": record.cluster, "cluster_id": record.cluster_id, "founder": str(record.ready[0])}
        typer.echo(json.dumps(said | {"coordination": str(loaded.coordination)}, indent=2))
    else:
        say(f"cluster {record.cluster} is founded, its identity is {record.cluster_id}; start its nodes")


def found_cluster(config: NodeConfig) -> Record:
    """Found the cluster of this node, with store and secret. Raises ConfigError, StoreError, with nothing written."""
    check_places(config)
    made = make_secret(config.peer)
    try:
        link_secrets(config)
        return _found(config)
    except BaseException:
        if made is not None:
            made.unlink()
        raise


def _found(config: NodeConfig) -> Record:
    coordination = config.coordination.open(config.cluster, create=True)
    try:
        return found(config.dir, config.cluster, config.name, coordination)
    finally:
        coordination.close()
