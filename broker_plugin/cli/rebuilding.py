"""The work of ``txha rebuild``: where events come from, how far they count, and what is said."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from broker_plugin.cli.asking import BadArgument
from broker_plugin.node.config import check_outcomes
from recovery.identity import FORMAT_VERSION, Identity, read_identity
from recovery.lmdb_state import read_meta
from recovery.node_admin import AdminError, ask
from recovery.planner.site import cluster_of
from recovery.rebuild import Located, Outcomes, Rebuilt, rebuild
from txobserver.store import StoreDamaged


def run(
    into: Path,
    log: Path | None,
    archive: Path | None,
    archived_node: str | None,
    node: str | None,
    cluster: str | None,
    outcomes_kept: int,
    outcome_seconds: float,
    as_json: bool,
) -> None:
    """Raises BadArgument, ConfigError, StoreError."""
    check_outcomes(outcomes_kept, outcome_seconds)
    if log is None and archive is None:
        raise BadArgument("there is nothing to make a store from: give --log, --archive, or both")
    for path in (log, archive):
        if path is not None and not path.is_dir():
            raise BadArgument(f"there is no directory {path}")
    clusters = {cluster} if cluster else set()
    events: Iterable[Located] = ()
    identities = {_cluster_id(log)}
    if archive is not None:
        of_archive, identity_of_archive, events = _archived(archive, archived_node)
        clusters.add(of_archive)
        identities.add(identity_of_archive)
    if log is not None:
        clusters.add(cluster_of([log]))
    if len(clusters) > 1:
        raise BadArgument(f"these are of different clusters: {', '.join(sorted(clusters))}")
    identities.discard("")
    if len(identities) > 1:
        raise BadArgument(
            f"the archive and the log are of two clusters that are both called {clusters.pop()}, with the identities "
            f"{' and '.join(sorted(identities))}: take an archive and a log of one cluster"
        )
    name, incarnation = node or into.absolute().name, secrets.token_hex(4)
    identity = Identity(FORMAT_VERSION, clusters.pop(), name, incarnation, cluster_id="".join(identities))
    commit = commit_point(log) if log is not None else 0

    def progress(sequence: int) -> None:
        print(f"txha: up to event {sequence:,}", file=sys.stderr)

    outcomes = Outcomes(outcomes_kept, outcome_seconds)
    named = "" if archive is None else f"{archive.absolute()}" + (f" of {archived_node}" if archived_node else "")
    made = rebuild(into, identity, events, log, commit, outcomes, progress, archive_name=named)
    _tell(made, into, identity, as_json)


def _cluster_id(log: Path | None) -> str:
    """The identity of the cluster that this log belongs to; empty if nothing says it.

    If the archive does not say it either, the node takes the record's.
    """
    if log is None:
        return ""
    with suppress(StoreDamaged):
        if (identity := read_identity(log)) is not None:
            return identity.cluster_id
    return ""


def commit_point(log: Path) -> int:
    """Up to where a node's log certainly counts: a running one says so, else its last checkpoint; 0 if neither does."""
    try:
        return int(ask(log, "status")["applied"])
    except AdminError:
        with suppress(StoreDamaged):
            return read_meta(log).applied.sequence
        return 0


def _archived(archive: Path, node: str | None) -> tuple[str, str, Iterable[Located]]:
    """The name and the identity of the cluster whose archive it is, and its events."""
    if find_spec("pyarrow") is None:
        raise BadArgument("--archive needs pyarrow: pip install 'txha[spark]'")
    from recovery.pipeline.archive.stream import archived_events, cluster_of_archive

    return *cluster_of_archive(archive), archived_events(archive, node)


def _tell(made: Rebuilt, into: Path, identity: Identity, as_json: bool) -> None:
    said = {
        "node": identity.node,
        "cluster": identity.cluster,
        "applied": str(made.applied),
        "position": str(made.tail),
        "queues": {
            name: {"messages": count, "digest": f"{digest:016x}"} for name, (count, digest) in made.queues.items()
        },
    }
    if as_json:
        typer.echo(json.dumps(said, indent=2))
        return
    table = Table(title=f"{into} holds what {made.applied} leads to, and a log up to {made.tail}", box=SIMPLE_HEAD)
    for column in ("queue", "messages", "digest"):
        table.add_column(column, overflow="fold")
    for name, (count, digest) in sorted(made.queues.items()):
        table.add_row(name, str(count), f"{digest:016x}")
    Console(emoji=False, markup=False).print(table)
