"""``txha discard``: give a node's store up, so that the node comes back as a new member."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from broker_plugin.cli.asking import BadArgument, Json, node_entry, settings_given
from broker_plugin.cli.layout import CONFIG_FILE, ClusterError
from broker_plugin.cli.terminal import say
from broker_plugin.node.config import NodeConfig, load_config
from recovery.planner.discarding import GivenUp, look
from recovery.planner.discarding import discard as set_store_aside
from recovery.store.identity import lock_directory
from txobserver.ports.store import StoreBusy, StoreError


def discard(
    node: Annotated[str | None, typer.Argument(help="With --dir: the node whose store is discarded.")] = None,
    config: Annotated[Path | None, typer.Option("--config", help="The node's TOML file.")] = None,
    dir: Annotated[Path | None, typer.Option("--dir", help="Directory of the cluster; name the node, too.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Override a key of the configuration. May be repeated.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Give a node's store up: rename it within its directory. The node then starts as a new member, with a copy.

    The node must not run. Nothing is deleted. Exit status 0: it is discarded; 1: it was not, since the operator did not
    say yes; 2: it must not be, or there is none.
    """
    path = _config(node, config, dir)
    loaded = load_config(path, settings_given(set_))
    if dir is not None and loaded.dir.resolve() != path.parent.resolve():
        raise ClusterError(f"{path} is that of a node in {loaded.dir}, so {dir} may be a copy: nothing is discarded")
    descriptor = _locked(loaded)
    try:
        coordination = loaded.coordination.open(loaded.cluster)
        try:
            found = look(loaded.dir, loaded.cluster, loaded.name, coordination)
        finally:
            coordination.close()
        aside = _given_up(found, loaded) if yes or _asked(found, loaded, as_json) else None
    finally:
        os.close(descriptor)
    if as_json:
        typer.echo(json.dumps(_as_dict(found, aside), indent=2))
    elif aside is not None:
        say(f"the store of {loaded.name} is in {aside}; start the node, and it is copied from the primary")
    raise SystemExit(0 if aside is not None else 1)


def _given_up(found: GivenUp, config: NodeConfig) -> Path:
    """Do it, by a record that is on disk: a removal that was read and then lost in a power cut would not count."""
    coordination = config.coordination.open(config.cluster, confirm=True)
    try:
        return set_store_aside(config.dir, config.cluster, found, coordination)
    finally:
        coordination.close()


def _config(node: str | None, config: Path | None, directory: Path | None) -> Path:
    """The node's file. Raises BadArgument, ClusterError."""
    if config is not None and node is None and directory is None:
        return config
    if config is None and node is not None and directory is not None:
        return node_entry(directory, node).directory / CONFIG_FILE
    raise BadArgument("say which store: either --config FILE, or --dir DIR and the name of a node")


def _locked(config: NodeConfig) -> int:
    if not config.dir.is_dir():
        raise StoreError(f"there is no directory {config.dir}")
    try:
        return lock_directory(config.dir)
    except StoreBusy:
        raise StoreError(f"{config.name} is running: {config.dir} is in use; stop the node first") from None


def _asked(found: GivenUp, config: NodeConfig, as_json: bool) -> bool:
    """Whether a person says yes, having been shown what is given up."""
    if as_json:
        return False
    for line in _lines(found, config):
        say(line, beside=True)
    if not sys.stdin.isatty():
        say("txha: nothing is discarded without --yes", beside=True)
        return False
    print("Discard it? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _lines(found: GivenUp, config: NodeConfig) -> list[str]:
    store = found.store
    what = f"{store.condition.value}, at {store.tail}, {found.messages} messages"
    lines = [f"store of {config.name} in {config.dir}: {what}"]
    if store.why:
        lines.append(f"  {store.why}")
    lines += [f"  {name}: {count}" for name, count in sorted(found.queues.items())]
    if found.ready:
        others = ", ".join(found.others)
        lines.append(f"  it is taken out of the ready set, in which the stores of {others} are left: keep those")
    if store.tail.generation > found.generation:
        seen = f"the store has seen generation {store.tail.generation}, the record is of generation {found.generation}"
        lines.append(f"  {seen}: if that is an old copy, this is the better store; see `txha recover`")
    return lines


def _as_dict(found: GivenUp, aside: Path | None) -> dict[str, Any]:
    store = found.store
    return {
        "node": store.node,
        "condition": store.condition.value,
        "why": store.why,
        "position": str(store.tail),
        "checkpoint": str(store.applied),
        "messages": found.messages,
        "queues": found.queues,
        "ready": found.ready,
        "record_generation": found.generation,
        "others": list(found.others),
        "discarded": aside is not None,
        "aside": str(aside) if aside is not None else None,
    }
