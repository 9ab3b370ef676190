"""The certificates that are in force on a node, and the contexts of TLS that are made of them.

Promise: what is in force is a whole: a certificate, its key and its authorities, that were read together and fit each
other. Where other files cannot be used, everything stays as it was.

A context is asked for anew for each connection, so what is loaded holds for all later ones. There are no session
tickets, and a session that is resumed without one (TLS 1.2) is of the same context: none outlives a reload.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from datetime import datetime
from typing import Literal, NamedTuple

from broker_plugin.tls.files import Material, TlsError, TlsFiles, read

Asking = Literal["ignore", "ask", "require"]
"""What becomes of clients' certificates: none is asked for; one that is given must be good; each must give one."""
_VERIFY = {"ignore": ssl.CERT_NONE, "ask": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}


class CertificatesInForce(NamedTuple):
    """What connections are made with. ``clients``: by what is asked of them; ``accepting`` and ``dialling``: the two
    ends between nodes, which both prove themselves. The name in a peer's certificate is for the caller to compare."""

    material: Material
    clients: dict[Asking, ssl.SSLContext]
    accepting: ssl.SSLContext
    dialling: ssl.SSLContext


class Contexts:
    """Of a node with these ``files``. Raises TlsError when it is made.

    ``check`` raises TlsError for what is whole, and of no use to this node.
    """

    def __init__(self, files: TlsFiles) -> None:
        self.files = files
        self.check: Callable[[CertificatesInForce], object] = lambda found: None
        self._in_force = prepared(files)

    @property
    def in_force(self) -> CertificatesInForce:
        """What holds for connections that come now."""
        return self._in_force

    def use(self, prepared: CertificatesInForce) -> CertificatesInForce:
        """This holds for every connection that comes from now on; returns what was in force."""
        former, self._in_force = self._in_force, prepared
        return former

    def reload(self) -> CertificatesInForce:
        """What stands in the files now holds from now on; returns what was in force. Raises TlsError, with nothing
        changed. It reads files: where a disk may hang, call ``prepared`` in a thread, and ``use`` then."""
        return self.use(self.prepared())

    def prepared(self) -> CertificatesInForce:
        """What stands in the files, ready to be used. Raises TlsError."""
        found = prepared(self.files)
        self.check(found)
        return found

    def clients(self, asking: Asking) -> ssl.SSLContext:
        """For one more connection of a client."""
        return self._in_force.clients[asking]

    def accepting(self) -> ssl.SSLContext:
        """For one more connection that another node, or a reader of the log, has made."""
        return self._in_force.accepting

    def dialling(self) -> ssl.SSLContext:
        """For one more connection to another node."""
        return self._in_force.dialling

    @property
    def not_after(self) -> datetime:
        """When the certificate in force expires."""
        return self._in_force.material.not_after


def prepared(files: TlsFiles) -> CertificatesInForce:
    """What stands in these files, ready to be used. Raises TlsError."""
    material = read(files)
    try:
        clients = {asking: _context(files, material, True, verify) for asking, verify in _VERIFY.items()}
        accepting = _between_nodes(_context(files, material, True, ssl.CERT_REQUIRED))
        dialling = _between_nodes(_context(files, material, False, ssl.CERT_REQUIRED))
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise TlsError(f"the certificate in {files.certificate} cannot be used: {error}") from None
    if read(files) != material:
        raise TlsError(f"{files.certificate} and the files that belong to it changed while they were read: try again")
    return CertificatesInForce(material, clients, accepting, dialling)  # type: ignore[arg-type]


def _context(files: TlsFiles, material: Material, server: bool, verify: ssl.VerifyMode) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = verify
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the file names whom to trust: it need not be a root
    if server:
        context.num_tickets = 0
    context.load_cert_chain(files.certificate, files.key, _no_passphrase)
    context.load_verify_locations(cadata=material.authorities.decode("ascii", "ignore"))
    return context


def _between_nodes(context: ssl.SSLContext) -> ssl.SSLContext:
    """TLS 1.2 shows the names in certificates in clear, and there is no one who needs it."""
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def _no_passphrase() -> str:
    """No one is asked for one at a terminal."""
    raise ValueError("its key is encrypted")
