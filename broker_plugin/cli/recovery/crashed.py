"""Which cluster is meant by the directories of one that does not run: its nodes, its record, who would be in it."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from broker_plugin.cli.asking import BadArgument
from broker_plugin.cli.layout import (
    CLUSTER_FILE,
    CONFIG_FILE,
    ClusterError,
    cluster_id,
    local_record,
    read_nodes,
)
from broker_plugin.coordination.address import store_at
from ha.membership.record import CoordinationError, RecordStore
from recovery.planner.site import cluster_of
from recovery.planner.survey import whose
from recovery.store.identity import FILE, read_identity
from txobserver.ports.store import StoreDamaged

_UNSAID = (OSError, ValueError, KeyError, TypeError, AttributeError)
"""What reading a configuration raises that does not say what is asked, whatever else it holds"""


@dataclass(frozen=True)
class Given:
    """What the operator has named: directories, and who else knows of the branches; ``brokers`` are urls of nodes."""

    directories: Sequence[Path]
    coordination: RecordStore | None = None
    decisions: Sequence[Path] = ()
    databases: Sequence[str] = ()
    brokers: Sequence[str] = ()

    def check(self) -> None:
        """Whether the decision logs are there, and the packages that reading them needs. Raises BadArgument."""
        if (self.decisions or self.databases) and find_spec("psycopg") is None:
            raise BadArgument("--decisions and --database need psycopg: pip install 'txha[dtx]'")
        for path in self.decisions:
            if not path.is_file():
                raise BadArgument(f"there is no decision log {path}")


@dataclass(frozen=True)
class Crashed:
    """``directory``: of the cluster, None if only nodes were given. ``nodes``: all names, None if they are not known.

    ``ports``: where the nodes of a local cluster listened for clients. ``lease_ttl``: the greatest that a node of the
    given directories has in its node.toml, in seconds; 0 if none says it. ``expected``: where the nodes look for the
    record, as far as the directories say.
    """

    cluster: str
    directory: Path | None
    directories: dict[str, Path]
    record: RecordStore
    nodes: frozenset[str] | None
    ports: tuple[int, ...] = ()
    lease_ttl: float = 0.0
    expected: frozenset[RecordStore] = frozenset()

    def check_record(self) -> None:
        """Whether a record that is lost would be written where nodes look for it. Raises BadArgument."""
        try:
            self.record.check_expected(self.expected)
        except CoordinationError as error:
            raise BadArgument(str(error)) from error

    @property
    def locked(self) -> dict[str, Path]:
        """Every directory that a process of the cluster locks while it runs, by whose it is."""
        return {**self.directories, **({"the cluster": self.directory} if self.directory else {})}


def crashed_cluster(given: Given) -> Crashed:
    """The cluster in this directory, or with these nodes. Raises BadArgument, StoreError."""
    directories = given.directories
    for path in directories:
        if not path.is_dir():
            raise BadArgument(f"there is no directory {path}")
    if len(directories) == 1 and not _is_node(directories[0]):
        found = _of_directory(directories[0], given.coordination)
    else:
        found = _of_nodes(directories, given.coordination)
    try:
        found.record.check_readable()
    except CoordinationError as error:
        raise BadArgument(str(error)) from error
    return found


def _is_node(path: Path) -> bool:
    return any((path / part).exists() for part in (FILE, "log", "state"))


def _of_directory(directory: Path, coordination: RecordStore | None) -> Crashed:
    locked = directory if (directory / CLUSTER_FILE).exists() else None
    try:
        entries = read_nodes(directory)
    except ClusterError:  # it is gone or damaged: what looks like a node is one
        entries = []
    if not entries:
        nodes = sorted(path for path in directory.iterdir() if path.is_dir() and _is_node(path))
        if not nodes:
            raise BadArgument(f"{directory} holds neither a cluster nor a node")
        return replace(_of_nodes(nodes, coordination), directory=locked)
    directories = {entry.name: directory / entry.name for entry in entries}
    return Crashed(
        cluster=cluster_id(directory) or cluster_of(directories.values()),
        directory=locked,
        directories=directories,
        record=coordination or local_record(directory),
        nodes=frozenset(directories),
        ports=tuple(entry.amqp_port for entry in entries),
        lease_ttl=_lease_ttl(directories.values()),
        expected=_expected(directories.values(), set()) | {local_record(directory)},
    )


def _of_nodes(given: Sequence[Path], coordination: RecordStore | None) -> Crashed:
    directories: dict[str, Path] = {}
    names: set[str] = set()
    records: set[RecordStore] = set()
    known = True
    for path in given:
        name, peers, record = _configured(path, coordination is not None)
        if name in directories:
            raise BadArgument(f"{directories[name]} and {path} are both of {name}: name one directory of each node")
        directories[name] = path
        names |= {name, *peers}
        known = known and record is not None
        records.add(record or local_record(path.parent))
    if coordination is None and len(records) > 1:
        raise BadArgument("these nodes do not share one coordination record; say which with --coordination")
    return Crashed(
        cluster=cluster_of(given),
        directory=None,
        directories=directories,
        record=coordination or records.pop(),
        nodes=frozenset(names) if known else None,
        lease_ttl=_lease_ttl(given),
        expected=_expected(given, {local_record(path.parent) for path in given}),
    )


def _configured(path: Path, named: bool) -> tuple[str, list[str], RecordStore | None]:
    """The name of a node, those of its peers, and where its record is, as far as its directory says so.

    A store that is called what it is not would be foreign, and nothing that is lost would be looked for in it: so the
    name of the directory says something only where neither identity nor configuration nor log does. Raises BadArgument
    for a copy of a node's directory, whose file names the record of the cluster that it is of, unless the operator has
    ``named`` another.
    """
    name = ""
    with suppress(StoreDamaged):
        if (identity := read_identity(path)) is not None:
            name = identity.node
    try:
        config = tomllib.loads((path / CONFIG_FILE).read_text())
        if not named and "dir" in config and Path(config["dir"]).resolve() != path.resolve():
            raise BadArgument(
                f"{path / CONFIG_FILE} is that of a node in {config['dir']}: give that directory, or, if this one is a "
                "copy or was moved, name the coordination record that belongs to it with --coordination"
            )
        name = name or str(config["name"])
        peers = [str(peer["name"]) for peer in config.get("peers", [])]
        return name, peers, store_at(config["coordination"])
    except _UNSAID:
        return name or _name_in_log(path) or path.name, [], None


def _name_in_log(path: Path) -> str:
    """Whose log this directory holds; empty if it does not say it, or cannot be read."""
    with suppress(OSError):
        if (owner := whose(path)) is not None:
            return owner.node
    return ""


def _coordination(path: Path) -> RecordStore | None:
    """Where a node keeps the coordination record, if its node.toml says so, whatever else that holds."""
    try:
        return store_at(tomllib.loads((path / CONFIG_FILE).read_text())["coordination"])
    except _UNSAID:
        return None


def _expected(directories: Iterable[Path], otherwise: Iterable[RecordStore]) -> frozenset[RecordStore]:
    """Where these nodes look for the record; ``otherwise`` if none of them says it."""
    return frozenset(path for each in directories if (path := _coordination(each)) is not None) or frozenset(otherwise)


def _lease_ttl(directories: Iterable[Path]) -> float:
    """The greatest that is configured in these; a node.toml that says none, or is none, has the default."""
    return max(map(_configured_ttl, directories), default=0.0)


def _configured_ttl(path: Path) -> float:
    try:
        found = float(tomllib.loads((path / CONFIG_FILE).read_text())["timing"]["lease_ttl"])
    except _UNSAID:
        return 0.0
    return found if math.isfinite(found) else 0.0
