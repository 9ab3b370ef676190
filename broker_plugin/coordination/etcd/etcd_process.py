"""EtcdProcess: the record in etcd, as a node uses it, through a process of its own (``etcd_child``)."""

from __future__ import annotations

from broker_plugin.coordination.coordination_process import ANSWER_SECONDS, NO_RENEWALS, ChildProcess
from broker_plugin.coordination.etcd.place import PASSWORD, EtcdPlace
from broker_plugin.coordination.etcd.version_pipe import VersionReader
from broker_plugin.coordination.shared_watchdog import SharedWatchdog
from broker_plugin.coordination.told_changes import ToldChanges
from ha.membership.record import Snapshot, Waiter
from ha.membership.watchdog import Renewals


class EtcdProcess(ChildProcess):
    """Calls block for ``seconds`` at most; use it from one thread. Raises OSError where there is no descriptor."""

    def __init__(
        self,
        place: EtcdPlace,
        cluster: str,
        seconds: float = ANSWER_SECONDS,
        watchdog: SharedWatchdog | None = None,
        renewals: Renewals = NO_RENEWALS,
    ) -> None:
        self._changes = ToldChanges(self.read)
        self._versions = VersionReader(self._changes.changed)
        command = ("broker_plugin.coordination.etcd.etcd_child", place.url, cluster, str(seconds))
        super().__init__(
            (*command, str(self._versions.descriptor)),
            "the coordination record in etcd",
            seconds,
            watchdog,
            renewals,
            descriptors=(self._versions.descriptor,),
            needed=(PASSWORD,) if place.needs_password else (),
        )

    def watch(self, after: int, seconds: float, waiter: Waiter) -> Snapshot | None:
        """As the port says: the child tells when it is time to look."""
        return self._changes.watch(after, seconds, waiter)

    def close(self) -> None:
        """End the child."""
        super().close()
        self._versions.close()
