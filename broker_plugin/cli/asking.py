"""Which node a command asks, and what a node answers that is down."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from broker_plugin.cli.layout import ClusterError, NodeEntry, read_cluster
from broker_plugin.node.config import load_config, parse_settings
from broker_plugin.node.users import check_given
from recovery.reader.node_admin import AdminError, ask

_DIR = typer.Option("--dir", help="Directory of the cluster (the one given to `txha cluster`).")
Dir = Annotated[Path, _DIR]
OptionalDir = Annotated[Path | None, _DIR]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

LogFormat = Annotated[
    str | None,
    typer.Option("--log-format", help="How nodes log: text, or json, one object a line. As the key log_format."),
]

_OF_THE_PATH = {errno.EACCES, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EPERM, errno.EROFS}
"""Errors by which a path is wrong that was given, or the rights to it"""


def settings_given(set_: list[str] | None) -> dict[str, str]:
    """What ``--set`` gave. Raises ConfigError, also for a password: every user of the machine could read it there."""
    found = parse_settings(set_ or [])
    check_given(found)
    return found


def with_log_format(settings: list[str], form: str | None) -> list[str]:
    """What ``--set`` gave, and what ``--log-format`` did, which counts for more."""
    return [*settings, f"log_format={form}"] if form is not None else settings


class BadArgument(Exception):
    """What was given on the command line cannot be; one sentence says why."""


@contextmanager
def paths_told() -> Iterator[None]:
    """Of a path that cannot be used, where nothing else says why: raises BadArgument in the place of OSError.

    Decorates commands that read and write files. Not one that runs nodes: it would hide what fails at their work.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _OF_THE_PATH or error.filename is None:
            raise
        raise BadArgument(f"{error.filename} cannot be used: {error.strerror}") from None


def node_status(entry: NodeEntry) -> dict[str, Any]:
    """What a node says of itself."""
    try:
        answer: dict[str, Any] = ask(entry.directory, "status")
        return answer
    except AdminError:
        return {
            "name": entry.name,
            "state": "down",
            "generation": 0,
            "ready": False,
            "open_transactions": 0,
            "prepared_transactions": 0,
            "backups": {},
        }


def nodes_shown(dir: Path | None, config: Path | None, wanted: str = "say what to show") -> list[NodeEntry]:
    """The nodes of a cluster, or one by its own file. Raises BadArgument, ClusterError, ConfigError."""
    if dir is not None and config is None:
        return read_cluster(dir)
    if config is not None and dir is None:
        node = load_config(config)
        return [NodeEntry(node.name, None, node.amqp.port, node.dir)]
    raise BadArgument(f"{wanted}: either --dir DIR, or --config FILE")


def best_node(dir: Path) -> dict[str, Any]:
    """The status of the primary, or else of the node that knows most.

    Raises AdminError if none answers, and ClusterError for a directory that holds no cluster.
    """
    up = [status for entry in read_cluster(dir) if (status := node_status(entry))["state"] != "down"]
    if not up:
        raise AdminError(f"no node of {dir} answers; start the cluster with `txha cluster --dir {dir}`")
    return max(up, key=lambda each: (each["state"] == "active", each["generation"]))


def node_entry(dir: Path, name: str) -> NodeEntry:
    """A node by its name. Raises ClusterError."""
    entries = read_cluster(dir)
    for entry in entries:
        if entry.name == name:
            return entry
    raise ClusterError(f"{dir} has no node {name}; it has {', '.join(entry.name for entry in entries)}")
