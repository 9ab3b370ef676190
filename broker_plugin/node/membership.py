"""Which cluster a node belongs to: what its store says and what the coordination record says must be one.

A node never founds a cluster. One with an empty store takes the identity that stands in the record; one without a
record ends, and says what to do.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from broker_plugin.logs.events import RecordUnread
from broker_plugin.logs.formats import tell
from broker_plugin.node.config import ConfigError, NodeConfig
from ha.membership.record import Coordination, CoordinationError
from recovery.planner.founding import holds_nothing, identity_in_record, make_empty
from recovery.planner.lease import WATCH_SECONDS
from recovery.store.identity import Identity, check_identity, may_take, nobodys
from txobserver.ports.store import StoreError

log = logging.getLogger("txha.node")
AGAIN_SECONDS = 0.2


async def cluster_identity(config: NodeConfig, coordination: Coordination, ended: Callable[[], bool]) -> str | None:
    """The identity of this node's cluster; None if the node was told to end before the record could be read.

    A node whose store knows the identity need not read the record to start. Raises ConfigError.
    """
    complaint = ""

    def watch() -> bool:
        until = time.monotonic() + max(WATCH_SECONDS, config.timing.lease_ttl)
        while time.monotonic() < until and not ended():
            time.sleep(AGAIN_SECONDS)
        return not ended()

    try:
        identity = check_identity(config.dir, config.cluster, config.name)
        known = identity.cluster_id if identity is not None else ""
        while not ended():
            try:
                found = await asyncio.to_thread(identity_in_record, coordination, known, watch)
            except CoordinationError as error:
                if str(error) != complaint:
                    complaint = str(error)
                    tell(log, logging.ERROR, RecordUnread(complaint))
                if known:
                    return known
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                if ended():
                    return None
                return _agreed(config, identity, found)
    except StoreError as error:
        raise ConfigError(str(error)) from error
    return None


def _agreed(config: NodeConfig, identity: Identity | None, found: str | None) -> str:
    """``found``, if the store may belong to that cluster. Raises ConfigError, StoreError."""
    if found is None:
        raise ConfigError(_no_record(config))
    if identity is None or identity.cluster_id == found:
        return found
    if holds_nothing(config.dir) and found:
        if identity.cluster_id:  # it may be the founder, which its own record needs, with the wrong record for once
            raise ConfigError(_empty_of_another(config, identity, found))
        make_empty(config.dir, config.cluster, config.name, found)
    elif not found:
        raise ConfigError(_older_record(config))
    elif not identity.cluster_id and not may_take(found):
        raise ConfigError(nobodys(config.dir, config.cluster, found))
    return found  # of another cluster: the store refuses it


def _no_record(config: NodeConfig) -> str:
    """Raises StoreError."""
    where = f"there is no coordination record in {config.coordination}"
    if holds_nothing(config.dir):
        return (
            f"{where}: found cluster {config.cluster} with `txha init`, once and with one of its nodes; "
            "if it was founded before and the record was lost, write a new one with `txha recover`"
        )
    return f"{where}, but {config.dir} holds data: write a new record with `txha recover`"


def _empty_of_another(config: NodeConfig, identity: Identity, found: str) -> str:
    return (
        f"{config.dir} is an empty store of another cluster that is also called {config.cluster} (identity "
        f"{identity.cluster_id}; the record in {config.coordination} has {found}): name the right `coordination`, or "
        "give this store up with `txha discard`"
    )


def _older_record(config: NodeConfig) -> str:
    return (
        f"the record in {config.coordination} is older than this node's store, which knows the identity of its cluster:"
        " a copy must never be put in the record's place; write a new record with `txha recover`"
    )
