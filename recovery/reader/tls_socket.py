"""TLS of a reader of the log: where its certificate stands, and its socket; blocking."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

from recovery.certificate_names import NODE, CertificateName
from recovery.secret_file import SecretFileError, read_bytes
from recovery.tls_channel import ChannelRefused, ClearBeginning, TlsChannel

_PIECE = 1 << 18


@dataclass(frozen=True)
class ReaderCertificate:
    """Files in PEM, on each machine that reads: the reader's certificate, its key, and the authority of the nodes'."""

    certificate: str
    key: str
    authority: str

    def context(self) -> ssl.SSLContext:
        """Of what stands there now. Raises ValueError, with one sentence that shows nothing of the key."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False  # the certificate names the node, wherever that listens
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        self._check_readable()
        try:
            context.load_verify_locations(self.authority)
        except ssl.SSLError:
            raise ValueError(f"{self.authority} holds no certificate of an authority in PEM") from None
        try:
            context.load_cert_chain(self.certificate, self.key, _no_passphrase)
        except (ssl.SSLError, ValueError) as error:
            why = error.reason if isinstance(error, ssl.SSLError) and error.reason else "no PEM, or encrypted"
            pair = f"{self.certificate} and {self.key}"
            raise ValueError(f"{pair} are not a certificate and its key: {why.lower().replace('_', ' ')}") from None
        return context

    def _check_readable(self) -> None:
        for path in (self.certificate, self.key, self.authority):
            try:
                read_bytes(Path(path), 0, private=path == self.key)
            except SecretFileError as error:
                raise ValueError(str(error)) from None


class TlsSocket:
    """A connected socket that is encrypted from now on; ``name`` is the node's, by its certificate.

    Raises OSError, and ValueError where TLS cannot be agreed on.
    """

    def __init__(self, connected: socket.socket, context: ssl.SSLContext) -> None:
        self._socket = connected
        self._channel = TlsChannel(context, server_side=False)
        self._beginning = ClearBeginning()
        self._said = b""
        self._channel.begin()
        try:
            while not self._channel.established:
                self._flush()
                if not (data := self._socket.recv(_PIECE)):
                    raise ValueError(self._why_it_ended())
                self._take(data)
        except ChannelRefused:
            self._flush()
            raise
        self._flush()
        if (found := self._channel.name) is None or found.kind != NODE:
            raise ValueError("its certificate is not that of a node of txha")
        self.name: CertificateName = found

    def sendall(self, data: bytes) -> None:
        """Send."""
        self._socket.sendall(self._channel.encrypt(data))

    def recv(self, size: int) -> bytes:
        """What has come, of whatever size; nothing where the other end has ended the connection."""
        while not self._said and not self._channel.ended and (data := self._socket.recv(size)):
            self._take(data)
        said, self._said = self._said, b""
        return said

    def close(self) -> None:
        """End it."""
        self._socket.close()

    def _take(self, data: bytes) -> None:
        if rest := self._beginning.take(data):
            self._said += self._channel.take(rest)

    def _flush(self) -> None:
        if waiting := self._channel.outgoing():
            self._socket.sendall(waiting)

    def _why_it_ended(self) -> str:
        if self._beginning.message is not None:
            return "it ends the connection where TLS begins: it may speak none (peer.tls), read it without certificates"
        return "it ends the connection where TLS begins"


def _no_passphrase() -> str:
    """Asked for where the key is encrypted: no one is there who could give it."""
    raise ValueError("encrypted")
