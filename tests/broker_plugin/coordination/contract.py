"""What every coordination store keeps, whatever it is made of (``ha.membership.record.Coordination``).

A new adapter is one more entry of ``STORES``: how to open the store, twice or more often, as different nodes do.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from broker_plugin.coordination.coordination_process import CoordinationProcess
from broker_plugin.coordination.sqlite_coordination import SqliteCoordination
from ha.membership.record import Coordination, MemoryCoordination

Open = Callable[[], Coordination]
"""Another handle on one and the same store"""


def memory(directory: Path) -> Open:
    """One object, for as many as there are."""
    store = MemoryCoordination()
    return lambda: store


def sqlite(directory: Path) -> Open:
    """A file, opened by each."""
    return lambda: SqliteCoordination(directory / "r", "c", create=True)


def sqlite_process(directory: Path) -> Open:
    """The same through a process of each node's own, which does not make the file."""
    SqliteCoordination(directory / "r", "c", create=True)._found()
    return lambda: CoordinationProcess(directory / "r", "c")


STORES: dict[str, Callable[[Path], Open]] = {"memory": memory, "sqlite": sqlite, "sqlite-process": sqlite_process}
