"""EtcdStore: a coordination store in etcd, for nodes on any hosts (``etcd://host:port,host:port/prefix``)."""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from broker_plugin.coordination.etcd.etcd_process import EtcdProcess
from broker_plugin.coordination.etcd.place import SCHEME, EtcdPlace
from broker_plugin.coordination.shared_watchdog import SharedWatchdog
from ha.membership.record import Coordination, CoordinationError, RecordStore, Served
from ha.membership.watchdog import Renewals

if TYPE_CHECKING:
    from broker_plugin.coordination.etcd.members import Members

ASIDE = "set-aside"
"""Behind the name of a key that has been set aside, with a number"""


class EtcdStore(RecordStore):
    """gRPC is loaded by what opens the record, and by no node: a node asks a process of its own."""

    def __init__(self, place: EtcdPlace, named: str = "") -> None:
        self.place = place
        self._named = named or place.url

    @classmethod
    def of_url(cls, rest: str) -> EtcdStore:
        """``rest`` stands behind ``etcd://``. Raises ValueError, with a sentence."""
        return cls(EtcdPlace.of_url(rest), SCHEME + rest)

    def __str__(self) -> str:
        return self._named

    def __eq__(self, other: object) -> bool:
        """However the members are put in order, and whatever this node proves itself by."""
        return isinstance(other, EtcdStore) and self._where == other._where

    def __hash__(self) -> int:
        return hash(self._where)

    @property
    def _where(self) -> tuple[frozenset[str], str]:
        return frozenset(self.place.members), self.place.prefix

    @property
    def notes(self) -> Path:
        """The directory that the option ``plans`` names. Raises CoordinationError."""
        if (named := self.place.options.get("plans")) is None:
            raise CoordinationError(
                "plans are kept in a directory, and the address of etcd names none: add plans=DIR to its options, as "
                f"{self.place.with_option('plans', '/var/lib/txha')}"
            )
        if not (path := Path(named)).is_dir():
            raise CoordinationError(f"there is no directory {path} for plans: make it, or name another one with plans=")
        return path

    def open(self, cluster: str, create: bool = False, confirm: bool = False) -> Coordination:
        """In this process. What is read is confirmed in any case: a majority of the members has synced it."""
        from broker_plugin.coordination.etcd.etcd_coordination import EtcdCoordination

        return EtcdCoordination(self.place, cluster, create)

    def serve(self, cluster: str, answer_seconds: float, renewals: Renewals) -> Served:
        """In a process of its own, which renews while the node does not come to it. Raises OSError."""
        watchdog = SharedWatchdog()
        return Served(EtcdProcess(self.place, cluster, answer_seconds, watchdog, renewals), watchdog)

    def check_writable(self) -> None:
        """Certificates, key and password are looked at; etcd is not asked: it may come later than a node.

        Raises CoordinationError.
        """
        self.place.check()

    def check_readable(self) -> None:
        """The same, and where plans are kept: what reads them needs that. Raises CoordinationError."""
        self.place.check()
        _ = self.notes

    def check_expected(self, expected: Collection[RecordStore]) -> None:
        """Elsewhere only with a sign that this is wanted: a key that is there, be it empty, or was set aside.

        Raises CoordinationError.
        """
        if self in expected:
            return
        if not self._keys():
            used = " or ".join(sorted(map(str, expected)))
            key = self.place.key.decode()
            raise CoordinationError(
                f"there is no key {key} in etcd, and the directories lead to {used}: name the right address with "
                "--coordination, or, if the record is lost and a new one is to be written there, make the key first: "
                f"etcdctl put {key} ''"
            )

    def set_aside(self) -> None:
        """In one transaction: the value gets another key, and the record's key is deleted.

        Raises CoordinationError; it may have been done then.
        """
        from broker_plugin.coordination.etcd import wire

        key, keys = self.place.key, self._keys()
        if key not in keys:
            return
        number = 1
        while (aside := key + f".{ASIDE}-{number}".encode()) in keys:
            number += 1
        content, mod_revision = keys[key]
        request = wire.changed_if(
            key,
            mod_revision,
            wire.RequestOp(request_put=wire.PutRequest(key=aside, value=content)),
            wire.RequestOp(request_delete_range=wire.DeleteRangeRequest(key=key)),
        )
        with self._asking() as members:
            if not members.ask(wire.TXN, request, _until(), change=True).succeeded:
                raise CoordinationError(f"{key.decode()} was changed while it was set aside; run it again")

    def _keys(self) -> dict[bytes, tuple[bytes, int]]:
        """The record's key and those that were set aside, with value and revision. Raises CoordinationError."""
        from broker_plugin.coordination.etcd import wire

        request = wire.RangeRequest(key=self.place.key, range_end=wire.below(self.place.key))
        with self._asking() as members:
            found = members.ask(wire.RANGE, request, _until()).kvs
        return {each.key: (each.value, each.mod_revision) for each in found}

    def _asking(self) -> Members:
        from broker_plugin.coordination.etcd.etcd_coordination import ATTEMPT_SECONDS
        from broker_plugin.coordination.etcd.members import Members

        return Members(self.place, ATTEMPT_SECONDS)


def _until() -> float:
    from broker_plugin.coordination.etcd.etcd_coordination import CALL_SECONDS

    return time.monotonic() + CALL_SECONDS
