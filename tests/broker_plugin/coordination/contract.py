"""What every coordination store keeps, whatever it is made of (``ha.membership.record.Coordination``).

A new adapter is one more entry of ``STORES``: how to open the store, twice or more often, as different nodes do.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from broker_plugin.coordination.coordination_process import CoordinationProcess
from broker_plugin.coordination.etcd.etcd_coordination import EtcdCoordination
from broker_plugin.coordination.etcd.etcd_process import EtcdProcess
from broker_plugin.coordination.etcd.place import EtcdPlace
from broker_plugin.coordination.sqlite_coordination import SqliteCoordination
from ha.membership.record import Coordination, MemoryCoordination
from tests.support.etcd import one_member

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


def place_below(directory: Path) -> EtcdPlace:
    """Of keys that no other test has."""
    return EtcdPlace.of_url(one_member().address(str(directory)).removeprefix("etcd://"))


def etcd(directory: Path) -> Open:
    """A key of a real etcd, with connections of each handle's own."""
    place = place_below(directory)
    return lambda: EtcdCoordination(place, "c", create=True)


def etcd_process(directory: Path) -> Open:
    """The same through a process of each node's own, which does not make the key."""
    place = place_below(directory)
    one_member().control(0, "put", place.key.decode(), "")
    return lambda: EtcdProcess(place, "c")


STORES: dict[str, Callable[[Path], Open]] = {
    "memory": memory,
    "sqlite": sqlite,
    "sqlite-process": sqlite_process,
    "etcd": etcd,
    "etcd-process": etcd_process,
}
