"""Names that a coordinator gives: recognisable as its own, and never given twice.

A global transaction is called ``<whose>.<when>.<which>``: the id of the decisions that it hangs on (of a log, or of a
table), when it began (seconds since 1970, in hex), and a random number. All of it is printable ASCII, as PostgreSQL's
clients want it.
"""

from __future__ import annotations

import secrets
import time
from typing import NamedTuple

from txobserver.xid import MAX_PART, Xid

FORMAT_ID = int.from_bytes(b"txha", "big")
"""The format of all our xids: 1954048097."""

_RANDOM_BYTES = 8


class GlobalName(NamedTuple):
    """A global transaction of ours, taken apart. ``began``: seconds since 1970, by the clock of who began it."""

    whose: str
    began: int
    which: str

    def __str__(self) -> str:
        return f"{self.whose}.{self.began:x}.{self.which}"


def new_id() -> str:
    """An id for a log, 16 characters, drawn once in its life."""
    return secrets.token_hex(8)


def new_global_name(whose: str) -> GlobalName:
    """A name that nobody has given before."""
    return GlobalName(whose, int(time.time()), secrets.token_hex(_RANDOM_BYTES))


def branch_xid(name: str, resource: str) -> Xid:
    """The branch that one resource has in a global transaction. Raises ValueError for a name that is too long."""
    bqual = resource.encode()
    if not 1 <= len(bqual) <= MAX_PART or not resource.isascii() or not resource.isprintable():
        raise ValueError(f"{resource!r} cannot name a branch: 1 to {MAX_PART} printable ASCII characters")
    return Xid(FORMAT_ID, name.encode(), bqual)


def our_name(xid: Xid, whose: str) -> GlobalName | None:
    """The global transaction of a branch if it hangs on the decisions ``whose``; None for everybody else's."""
    parts = xid.gtrid.split(b".")
    if xid.format_id != FORMAT_ID or len(parts) != 3 or parts[0] != whose.encode():
        return None
    try:
        name = GlobalName(whose, int(parts[1], 16), parts[2].decode())
    except ValueError:
        return None
    return name if str(name).encode() == xid.gtrid else None
