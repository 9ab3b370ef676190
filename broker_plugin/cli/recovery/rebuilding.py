"""The work of ``txha rebuild``: where events come from, how far they count, and what is said."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from broker_plugin.cli.asking import BadArgument
from broker_plugin.cli.terminal import PlainConsole, say
from broker_plugin.node.config import check_outcomes
from recovery.planner.rebuild import Located, OutcomeLimits, Rebuilt, rebuild
from recovery.planner.site import cluster_of
from recovery.reader.node_admin import AdminError, ask
from recovery.store.identity import FORMAT_VERSION, Identity, read_identity
from recovery.store.lmdb_state import read_meta
from txobserver.ports.store import StoreDamaged


@dataclass(frozen=True)
class Source:
    """A log or an archive: the name of the cluster that its events are of, and its identity, as far as it says that.

    ``format``: of the identity that says it; 1 is of before there were identities of clusters.
    """

    path: Path
    cluster: str
    cluster_id: str
    format: int = FORMAT_VERSION


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
    cluster_id: str | None = None,
) -> None:
    """Raises BadArgument, ConfigError, StoreError."""
    check_outcomes(outcomes_kept, outcome_seconds)
    if log is None and archive is None:
        raise BadArgument("there is nothing to make a store from: give --log, --archive, or both")
    if archived_node is not None and archive is None:
        raise BadArgument("--archived-node is for --archive, and there is none")
    for path in (log, archive):
        if path is not None and not path.is_dir():
            raise BadArgument(f"there is no directory {path}")
    if log is not None and not (log / "log").is_dir():
        raise BadArgument(f"{log} is not the directory of a node, as node-1 of a cluster is: it has no log/")
    sources = []
    events: Iterable[Located] = ()
    if archive is not None:
        found, events = _archived(archive, archived_node)
        sources.append(found)
    if log is not None:
        sources.append(_log(log))
    clusters = {source.cluster for source in sources} | ({cluster} if cluster else set())
    if len(clusters) > 1:
        raise BadArgument(f"these are of different clusters: {', '.join(sorted(clusters))}")
    name, incarnation = node or into.absolute().name, secrets.token_hex(4)
    known = cluster_identity(sources, cluster_id)
    identity = Identity(FORMAT_VERSION if known else 1, clusters.pop(), name, incarnation, cluster_id=known)
    commit = commit_point(log) if log is not None else 0

    def progress(sequence: int) -> None:
        say(f"txha: up to event {sequence:,}", beside=True)

    outcomes = OutcomeLimits(outcomes_kept, outcome_seconds)
    named = "" if archive is None else f"{archive.absolute()}" + (f" of {archived_node}" if archived_node else "")
    made = rebuild(into, identity, events, log, commit, outcomes, progress, archive_name=named)
    _tell(made, into, identity, as_json)


def cluster_identity(sources: Sequence[Source], given: str | None) -> str:
    """The identity of the one cluster that all these events are of. Raises BadArgument.

    Another cluster may have the same name, and its node would take the store in, so nothing is left to be guessed:
    what does not say whose it is, is whose the operator says with ``--cluster-id``. Empty only for the log of a node
    of before there were identities: its cluster has got none yet, or one that such a store may take.
    """
    if given is not None and not re.fullmatch("[0-9a-f]{32}", given):
        raise BadArgument(f"--cluster-id {given}: an identity is 32 hex digits, as `cluster_id` in identity.json")
    said = {f"{source.path}": source.cluster_id for source in sources if source.cluster_id}
    if given is not None:
        said["--cluster-id"] = given
    if len(set(said.values())) > 1:
        each = ", ".join(f"{whose} is of the identity {identity}" for whose, identity in said.items())
        raise BadArgument(f"these are of different clusters that are called {sources[0].cluster}: {each}")
    if len(sources) == 1 and sources[0].format == 1 and given is None:
        return ""
    for source in sources:
        if not source.cluster_id and given is None:
            raise BadArgument(
                f"{source.path} does not say which identity its cluster has, and another one may be called "
                f"{source.cluster}, too: give the `cluster_id` that identity.json of its nodes has, with --cluster-id"
            )
    return next(iter(said.values()))


def _log(log: Path) -> Source:
    identity = None
    with suppress(StoreDamaged):
        identity = read_identity(log)
    if identity is None:
        return Source(log, cluster_of([log]), "")
    return Source(log, identity.cluster, identity.cluster_id, identity.format)


def commit_point(log: Path) -> int:
    """Up to where a node's log certainly counts: a running one says so, else its last checkpoint; 0 if neither does."""
    try:
        return int(ask(log, "status")["applied"])
    except AdminError:
        with suppress(StoreDamaged):
            return read_meta(log).applied.sequence
        return 0


def _archived(archive: Path, node: str | None) -> tuple[Source, Iterable[Located]]:
    """Whose archive it is, and its events."""
    if find_spec("pyarrow") is None:
        raise BadArgument("--archive needs pyarrow: pip install 'txha[spark]'")
    from recovery.pipeline.archive.stream import archived_events, cluster_of_archive

    whose = cluster_of_archive(archive)
    return Source(archive, whose.name, whose.id), archived_events(archive, node)


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
    PlainConsole().print(table)
