"""Xid: the name that a coordinator gives to a branch of a distributed transaction (PEP 249, AMQP 0-10 class dtx)."""

from __future__ import annotations

from typing import Annotated, NamedTuple
from urllib.parse import quote_from_bytes, unquote_to_bytes

import msgspec

MAX_FORMAT = (1 << 31) - 1
MAX_PART = 64
"""Bytes of a gtrid, of a bqual, and of a token."""

FormatId = Annotated[int, msgspec.Meta(ge=0, le=MAX_FORMAT)]
Gtrid = Annotated[bytes, msgspec.Meta(min_length=1, max_length=MAX_PART)]
Bqual = Annotated[bytes, msgspec.Meta(max_length=MAX_PART)]
Token = Annotated[bytes, msgspec.Meta(min_length=1, max_length=MAX_PART)]


class Global(NamedTuple):
    """What the branches of one global transaction have in common."""

    format_id: FormatId
    gtrid: Gtrid

    def __str__(self) -> str:
        return f"{self.format_id}:{quote_from_bytes(self.gtrid, safe='')}"


class Xid(NamedTuple):
    """A branch: the format of the name, the global transaction, and the branch within it.

    As text it is ``format:gtrid:bqual``, with everything but letters, digits and ``_.-~`` in percent signs and hex.
    """

    format_id: FormatId
    gtrid: Gtrid
    bqual: Bqual

    @property
    def globally(self) -> Global:
        """The global transaction that this is a branch of."""
        return Global(self.format_id, self.gtrid)

    def __str__(self) -> str:
        return f"{self.globally}:{quote_from_bytes(self.bqual, safe='')}"


def checked_xid(format_id: int, gtrid: bytes, bqual: bytes) -> Xid:
    """The xid of these parts. Raises ValueError, with a sentence for people, for parts that none can have."""
    if not 0 <= format_id <= MAX_FORMAT:
        raise ValueError(f"the format id {format_id} of an xid is not between 0 and {MAX_FORMAT}")
    if not 1 <= len(gtrid) <= MAX_PART:
        raise ValueError(f"the global id of an xid has 1 to {MAX_PART} bytes, not {len(gtrid)}")
    if len(bqual) > MAX_PART:
        raise ValueError(f"the branch id of an xid has at most {MAX_PART} bytes, not {len(bqual)}")
    return Xid(format_id, gtrid, bqual)


def parse_xid(text: str) -> Xid:
    """The xid that ``str`` wrote so. Raises ValueError."""
    parts = text.split(":")
    if len(parts) != 3 or not (parts[0].isascii() and parts[0].isdigit()):
        raise ValueError(f"{text!r} is no xid: one reads format:gtrid:bqual")
    return checked_xid(int(parts[0]), unquote_to_bytes(parts[1]), unquote_to_bytes(parts[2]))
