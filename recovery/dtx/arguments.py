"""What a program hands over, looked at before anything is begun, sent or decided: most of them are not typed."""

from __future__ import annotations

from recovery.dtx.errors import ProgrammingError
from txobserver.dtx_wire import XidFields
from txobserver.xid import MAX_PART, Global, Xid, checked_xid

MAX_SECONDS = (1 << 32) - 1
"""What the field of a timeout can hold."""


def make_xid(format_id: int, gtrid: str | bytes, bqual: str | bytes = b"") -> Xid:
    """An xid; text is encoded as UTF-8. Raises ProgrammingError for parts that none can have."""
    if type(format_id) is not int or not isinstance(gtrid, str | bytes) or not isinstance(bqual, str | bytes):
        raise ProgrammingError("an xid is a number and two parts of text or bytes: xid(1, 'order-17', 'broker')")
    try:
        return checked_xid(format_id, _bytes(gtrid), _bytes(bqual))
    except ValueError as error:
        raise ProgrammingError(str(error)) from None


def _bytes(part: str | bytes) -> bytes:
    return part.encode() if isinstance(part, str) else part


def fields_of(xid: Xid) -> XidFields:
    """As methods of class dtx have it. Raises ProgrammingError."""
    if not isinstance(xid, Xid):
        raise ProgrammingError(f"an xid is what the method xid returns, and not {type(xid).__name__}")
    return XidFields(*xid)


def checked_global(which: Global) -> Global:
    """The same. Raises ProgrammingError, also for an xid: that is one branch, and what is meant here is all."""
    if not isinstance(which, Global):
        raise ProgrammingError(f"a global transaction is named by xid.globally, and not by {type(which).__name__}")
    return which


def checked_decision(commit: bool) -> bool:
    """The same. Raises ProgrammingError for what is only true or false in a way, as text is true."""
    if not isinstance(commit, bool):
        raise ProgrammingError(f"commit is True or False, and not {commit!r}")
    return commit


def check_timeout(timeout: int | None) -> None:
    """Raises ProgrammingError for what is no number of seconds."""
    if timeout is not None and (type(timeout) is not int or not 0 <= timeout <= MAX_SECONDS):
        raise ProgrammingError(f"a timeout is a whole number of seconds, 0 for none, and not {timeout!r}")


def check_token(token: bytes) -> None:
    """Raises ProgrammingError for what cannot be a token."""
    if not isinstance(token, bytes) or not 1 <= len(token) <= MAX_PART:
        raise ProgrammingError(f"a token is 1 to {MAX_PART} bytes, and not {token!r}")
