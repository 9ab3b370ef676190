"""Founding a cluster, once and on purpose: its random identity, its first store, and the first coordination record.

A node that finds no record never writes one. The record may have been lost, and a node that founded the cluster anew
then would overwrite the stores that hold what was acknowledged (``empty_node_founds_anew``). Only an operator founds.

The founder's store comes first, then the record that names it. If that is cut short in between, a second attempt gives
the empty store another identity: it may be a joiner's, whose cluster has lost its record, and must not found that
cluster a second time under the same identity.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ha.membership.record import CasConflict, Coordination, CoordinationError, Record, first_record
from recovery.reader.node_log import NodeLog
from recovery.store.crash_points import crash_point
from recovery.store.files import explain
from recovery.store.identity import FORMAT_VERSION, GIVEN_LATER, Identity, lock_directory
from recovery.store.lmdb_state import read_meta
from recovery.store.store import check_parts, make_store
from txobserver.ports.store import Meta, StoreError


def new_cluster_id() -> str:
    """A random identity: 32 hex digits."""
    while (found := secrets.token_hex(16)).startswith(GIVEN_LATER):
        pass
    return found


def later_cluster_id() -> str:
    """A random identity for a cluster that was founded before there were any."""
    return GIVEN_LATER + secrets.token_hex(12)


def found(
    directory: Path,
    cluster: str,
    node: str,
    coordination: Coordination,
    new_id: Callable[[], str] = new_cluster_id,
) -> Record:
    """Found ``cluster`` with the store of ``node`` in ``directory``; returns its first record.

    Raises StoreError, with nothing written, where there is a record already or the store holds anything.
    """
    try:
        if (there := coordination.read()) is not None:
            raise StoreError(_founded(there))
        with _made_empty(directory, cluster, node, new_id()) as identity:  # no other process founds with it meanwhile
            crash_point("init.store-made")
            record = coordination.compare_and_set(0, first_record(cluster, identity.cluster_id, identity.member))
            crash_point("init.record-written")
    except CasConflict as conflict:
        assert conflict.current is not None
        raise StoreError(_founded(conflict.current)) from None
    except CoordinationError as error:
        raise StoreError(f"cluster {cluster} cannot be founded: {error}") from error
    return record


def make_empty(directory: Path, cluster: str, node: str, cluster_id: str) -> Identity:
    """A new store, or one that holds nothing and is given another identity. Raises StoreError, with nothing written."""
    with _made_empty(directory, cluster, node, cluster_id) as identity:
        return identity


def holds_nothing(directory: Path) -> bool:
    """Whether nothing was ever written to the store in this directory, if there is one. Raises StoreError."""
    return NodeLog(directory).tail() is None and read_meta(directory) == Meta()


def identity_in_record(
    coordination: Coordination, known: str, watch: Callable[[], bool], new_id: Callable[[], str] = later_cluster_id
) -> str | None:
    """The identity that stands in the record, None if there is no record. Raises CoordinationError.

    A record of before such identities gets one, unless ``known``, that of our store, shows that it is a copy of then.
    ``watch`` blocks for as long as a primary would need to renew its lease (False: it was ended before): one that knows
    no identities would write the record back without, and every node would be given another one. Raises StoreError,
    with nothing written, if there is such a primary.
    """
    watched = None
    while (record := coordination.read()) is not None:
        if record.cluster_id or known:
            return record.cluster_id
        if watched is None:
            watched = record
            if not watch():
                return ""
            continue
        if record != watched:
            raise StoreError(
                "a node of an earlier version is still the primary: stop all nodes, then start them with this version"
            )
        given = msgspec.structs.replace(record, version=record.version + 1, cluster_id=new_id())
        try:
            return coordination.compare_and_set(record.version, given).cluster_id
        except CasConflict:
            continue  # another node was first: its identity counts
    return None


def _refuse_data(directory: Path, cluster: str, node: str) -> None:
    if check_parts(directory, cluster, node) is not None and not holds_nothing(directory):
        raise StoreError(
            f"{directory} holds data already, and a cluster is founded with an empty store; if the coordination record "
            "of its cluster was lost, write a new one with `txha recover`"
        )


def _founded(record: Record) -> str:
    return f"cluster {record.cluster} has been founded already; start its nodes with `txha node`"


@contextmanager
def _made_empty(directory: Path, cluster: str, node: str, cluster_id: str) -> Iterator[Identity]:
    """See ``make_empty``; the store stays locked meanwhile. Raises StoreError."""
    _refuse_data(directory, cluster, node)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise explain(error, directory) from error
    descriptor = lock_directory(directory)
    try:
        _refuse_data(directory, cluster, node)
        identity = Identity(FORMAT_VERSION, cluster, node, secrets.token_hex(4), cluster_id=cluster_id)
        try:
            make_store(directory, identity)
        except OSError as error:
            raise explain(error, directory) from error
        yield identity
    finally:
        os.close(descriptor)
