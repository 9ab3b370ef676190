"""Events of a node's log that are about TLS."""

from __future__ import annotations

from typing import NamedTuple


class CertificateInForce(NamedTuple):
    """Connections that come from now on are made by the certificate that a call has had read, which expires then.

    ``undone``: the call is not made, and it is the one that was in force before.
    """

    not_after: str
    undone: bool = False


class CertificateUnread(NamedTuple):
    """The HTTP door cannot use what its node has read. Where it runs already, it goes on with what was in force."""

    reason: str


class TlsRefused(NamedTuple):
    """A connection could not be encrypted and is closed, and ``unsaid`` others were since the last line.

    ``what``: who comes there; ``address``: the other end's, empty where the system says none.
    """

    what: str
    address: str
    reason: str
    unsaid: int = 0


class CertificateExpires(NamedTuple):
    """What stands in ``file``, the node's certificate or its authorities, is valid until ``at``, ``days`` from now."""

    file: str
    at: str
    days: int
