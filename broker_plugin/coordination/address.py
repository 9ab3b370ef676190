"""Addresses of coordination stores: which adapter serves which scheme. A new one is one more line of ``SCHEMES``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from broker_plugin.coordination import sqlite_file
from broker_plugin.coordination.etcd import place
from broker_plugin.coordination.etcd.etcd_store import EtcdStore
from broker_plugin.coordination.sqlite_file import SqliteFile
from ha.membership.record import RecordStore

SCHEMES: dict[str, tuple[str, Callable[[str], RecordStore]]] = {
    "sqlite": (sqlite_file.FORM, SqliteFile.of_url),
    "etcd": (place.FORM, EtcdStore.of_url),
}
"""Of each scheme: what an address looks like, for people, and what makes a store of what stands behind ``scheme://``"""


def store_at(address: str) -> RecordStore:
    """The store that ``coordination`` names: a URL, or the path of an SQLite file, as in earlier versions.

    Raises ValueError, with one sentence that says what to write.
    """
    scheme, separator, rest = address.partition("://")
    forms = ", ".join(form for form, _ in SCHEMES.values())
    if not separator:
        if not address:
            raise ValueError(f"an empty text names no coordination store: write {forms}")
        if ":" in address.partition("/")[0]:
            raise ValueError(f"{address} is neither an address nor a path: write {forms}, or ./{address} for a file")
        return SqliteFile(Path(address), address)
    if scheme not in SCHEMES:
        raise ValueError(f"no coordination store has the scheme {scheme!r}; there are {forms}")
    return SCHEMES[scheme][1](rest)


def in_file(path: Path) -> RecordStore:
    """The store in a file of this host: the one that needs nothing but a directory."""
    return SqliteFile(path)
