"""Each kind of invariant of a copy fails, at the primary and at the joiner, on a state that is broken on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ha.effects import (
    ResetLog,
)
from tests.support.broken_states import broken, copying, joiner_of, put, put_all, replicator_of, resync_of, session_of
from tests.support.memory_cluster import MemoryCluster
from txobserver.xid import Xid

pytestmark = pytest.mark.plain

Y = Xid(1, b"another", b"")


Break = Callable[[Any], Any]
COPIES: dict[str, tuple[str, Callable[[MemoryCluster], Any]]] = {
    "bytes under way": ("P12", lambda cluster: put(resync_of(cluster)._under_way, "bytes", -1)),
    "bytes counted otherwise": ("P12", lambda cluster: put(resync_of(cluster)._under_way, "bytes", 7)),
    "changes counted otherwise": ("P12", lambda cluster: put(resync_of(cluster)._live, "waiting", 7)),
    "an end at no position": ("P7", lambda cluster: put(resync_of(cluster), "ended_at", 7)),
    "not marked": ("P9", lambda cluster: put(resync_of(cluster), "_marked", False)),
    "an answer that no queue awaits": (
        "P12",
        lambda cluster: put_all(resync_of(cluster), _walking=None, _asked=True),
    ),
    "a subscription of another queue": (
        "P5",
        lambda cluster: put(list(resync_of(cluster)._live.subscriptions.values())[-1], "queue", 99),
    ),
    "a walk before the beginning": (
        "P7",
        lambda cluster: put(next(iter(resync_of(cluster)._live.subscriptions.values())), "cursor", -9),
    ),
    "a copy that is not told": (
        "P7",
        lambda cluster: cluster.primary.core.leading.backups.attachments.copies.clear(),  # type: ignore[union-attr]
    ),
    "a joiner that counts": (
        "P9",
        lambda cluster: put(session_of(cluster, joiner_of(cluster).name).guard, "at", 5),
    ),
    "a joiner that acknowledged": (
        "P9",
        lambda cluster: put(session_of(cluster, joiner_of(cluster).name), "acknowledged", -2),
    ),
    "a portion of less than nothing": ("P12", lambda cluster: put(resync_of(cluster)._portions, "_bytes", -1)),
    "a rest of one who works": (
        "P12",
        lambda cluster: (
            put(resync_of(cluster)._portions, "_resting", True),
            resync_of(cluster)._portions._throttle.begin(1.0),
        ),
    ),
}


@pytest.mark.parametrize("kind", COPIES)
def test_a_broken_copy_is_found_at_the_primary(kind: str) -> None:
    promise, do = COPIES[kind]
    cluster = copying()
    cluster.primary.core.take_effects()
    do(cluster)
    assert broken(cluster.primary).promise == promise


JOINERS: dict[str, tuple[str, Break]] = {
    "of another attachment": ("P7", lambda core: put(replicator_of(core), "_session", 1)),
    "less than no part": ("P12", lambda core: put(replicator_of(core), "taken", -1)),
    "more told than taken": ("P12", lambda core: put(core.following.backup.progress, "taken", 1 << 30)),
    "a transaction without events": ("P1", lambda core: replicator_of(core)._forwarded.update({7: []})),
    "wanted of no page": ("P12", lambda core: replicator_of(core)._wanted.update({1: 1})),
    "a queue that is not there": ("P7", lambda core: replicator_of(core)._queues.add(99)),
    "a store that counts as whole": ("P9", lambda core: put(core.replica, "_whole", True)),
    "a store that is not marked": ("P7", lambda core: put(core.replica, "resyncing", False)),
    "events that wait": ("P6", lambda core: core.replica._unapplied.append((1, 1, None))),
    "a log begun anew too early": ("P9", lambda core: put(core.following.backup, "_reset", ResetLog(1, ()))),
}


@pytest.mark.parametrize("kind", JOINERS)
def test_a_broken_joiner_is_found(kind: str) -> None:
    promise, do = JOINERS[kind]
    node = joiner_of(copying())
    node.core.take_effects()
    do(node.core)
    assert broken(node).promise == promise
