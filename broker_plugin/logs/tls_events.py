"""Events of a node's log that are about TLS."""

from __future__ import annotations

from typing import NamedTuple


class TlsRefused(NamedTuple):
    """A connection could not be encrypted and is closed, and ``unsaid`` others were since the last line.

    ``what``: who comes there; ``address``: the other end's, empty where the system says none.
    """

    what: str
    address: str
    reason: str
    unsaid: int = 0
