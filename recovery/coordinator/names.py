"""Names that a coordinator gives: recognisable as its own, and never given twice; and what brokers are called.

A global transaction is called ``<whose>.<when>.<which>``: the id of the decisions that it hangs on (of a log, or of a
table), when it began (seconds since 1970, in hex), and a random number. All of it is printable ASCII, as PostgreSQL's
clients want it. Behind the number a - and the id of a branch may follow: that branch prepares only when the log has
the transaction's intent (docs/decisions/older-logs.md).
"""

from __future__ import annotations

import re
import secrets
import time
from typing import NamedTuple

from txobserver.xid import MAX_PART, Xid

FORMAT_ID = int.from_bytes(b"txha", "big")
"""The format of all our xids: 1954048097."""

_RANDOM_BYTES = 8
_LAST = "-"
_BROKER = "amqp:"
_WITH_IDENTITY = re.compile(_BROKER + "(.*)/[0-9a-f]{32}", re.DOTALL)


class GlobalName(NamedTuple):
    """A global transaction of ours, taken apart. ``began``: seconds since 1970, by the clock of who began it."""

    whose: str
    began: int
    which: str

    def __str__(self) -> str:
        return f"{self.whose}.{self.began:x}.{self.which}"

    @property
    def last(self) -> str:
        """The branch that prepares only when the log has the transaction's intent; empty if the name tells none."""
        return self.which.partition(_LAST)[2]


def new_id() -> str:
    """An id for a log, 16 characters, drawn once in its life."""
    return secrets.token_hex(8)


def new_global_name(whose: str, earliest: int = 0, last: str = "") -> GlobalName:
    """A name that has not been given before. It says that it began at ``earliest`` if the clock is behind that.

    ``last``: see ``GlobalName.last``; left out where the name would be too long, or could not be read.
    """
    which = secrets.token_hex(_RANDOM_BYTES)
    name = GlobalName(whose, max(int(time.time()), earliest), which)
    if not last or "." in last or len(f"{name}{_LAST}{last}".encode()) > MAX_PART:
        return name
    return name._replace(which=f"{which}{_LAST}{last}")


def read_global_name(text: str) -> GlobalName | None:
    """A name as it is written; None for everything else."""
    parts = text.split(".")
    try:
        name = GlobalName(parts[0], int(parts[1], 16), parts[2])
    except (IndexError, ValueError):
        return None
    return name if str(name) == text else None


def branch_xid(name: str, resource: str) -> Xid:
    """The branch that one resource has in a global transaction. Raises ValueError for a name that is too long."""
    bqual = resource.encode()
    if not 1 <= len(bqual) <= MAX_PART or not resource.isascii() or not resource.isprintable():
        raise ValueError(f"{resource!r} cannot name a branch: 1 to {MAX_PART} printable ASCII characters")
    return Xid(FORMAT_ID, name.encode(), bqual)


def read_our_name(xid: Xid) -> GlobalName | None:
    """The global transaction of a branch of a coordinator of ours, whatever decides it; None for those of others."""
    name = read_global_name(xid.gtrid.decode(errors="replace"))
    if name is None or xid.format_id != FORMAT_ID or not name.whose:
        return None
    return name if str(name).encode() == xid.gtrid else None


def our_name(xid: Xid, *whose: str) -> GlobalName | None:
    """The global transaction of a branch if it hangs on the decisions ``whose``; None for those of all others.

    More than one: decisions that earlier versions called otherwise. An empty one names no decisions.
    """
    name = read_our_name(xid)
    return None if name is None or name.whose not in whose else name


def broker_name(cluster: str, cluster_id: str) -> str:
    """The name of a cluster as a resource. ``cluster_id``: its random identity; empty if it has none, or tells none."""
    return f"{_BROKER}{cluster}/{cluster_id}" if cluster_id else _BROKER + cluster


def without_identity(resource: str) -> str:
    """The name that earlier versions gave to this resource: that of a broker lacked its cluster's identity."""
    found = _WITH_IDENTITY.fullmatch(resource)
    return resource if found is None else _BROKER + found[1]


def is_unique(resource: str) -> bool:
    """Whether who has this name is certainly one resource: two clusters may have a name without identity in common."""
    return not resource.startswith(_BROKER) or without_identity(resource) != resource


def may_be(participant: str, resource: str) -> bool:
    """Whether the participant that a decision names, perhaps one of an earlier version, can be this resource."""
    return participant in (resource, without_identity(resource))
