"""TlsChannel: one end of a TLS connection without a socket: bytes in, bytes out.

Nodes use it under the event loop and readers of a log on a blocking socket. So both begin in the same way and say the
same of what is wrong with the other's certificate, and what comes in clear before TLS can be taken off
(``ClearBeginning``).
"""

from __future__ import annotations

import ssl

from ha.messages.proof import MAX_UNPROVEN
from ha.messages.seals import LENGTH
from recovery.certificate_names import CertificateName, name_of_peer

HANDSHAKE = 0x16
"""The first byte of a record of TLS that begins a handshake; a step of the proof in clear begins with 0"""
_RECORD = 1 << 14
"""Bytes in a record of TLS at most: what one read gives"""


class ChannelRefused(ValueError):
    """TLS could not be agreed on, or the other end's certificate does not count; one sentence says why."""


class TlsChannel:
    """``outgoing`` takes what is to be sent, after each call. ``name``: whose certificate the other end has shown."""

    def __init__(self, context: ssl.SSLContext, server_side: bool) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=server_side)
        self.established = False
        self.ended = False
        """The other end has said that nothing more comes"""
        self.name: CertificateName | None = None

    def begin(self) -> None:
        """The handshake, at the end that dialled."""
        self._shake_hands()

    def take(self, data: bytes) -> bytes:
        """What has come; returns what it says. Raises ChannelRefused; then ``outgoing`` may tell the other why."""
        self._in.write(data)
        if not self.established and not self._shake_hands():
            return b""
        found: list[bytes] = []
        try:
            while more := self._tls.read(_RECORD):
                found.append(more)
            self.ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.ended = True
        except ssl.SSLError as error:
            raise ChannelRefused(in_words(error)) from None
        return b"".join(found)

    def encrypt(self, data: bytes) -> bytes:
        """As it is sent. Raises ChannelRefused once the channel is broken."""
        try:
            self._tls.write(data)
        except ssl.SSLError as error:
            raise ChannelRefused(in_words(error)) from None
        return self._out.read()

    def outgoing(self) -> bytes:
        """What is to be sent by now."""
        return self._out.read() if self._out.pending else b""

    def _shake_hands(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise ChannelRefused(in_words(error)) from None
        try:
            self.name = name_of_peer(self._tls.getpeercert() or {})
        except ValueError as error:
            raise ChannelRefused(str(error)) from None
        self.established = True
        return True


class ClearBeginning:
    """What a node says in clear before it has understood that TLS begins: one message of the proof, or none."""

    def __init__(self) -> None:
        self._kept = b""
        self.over = False
        self.message: bytes | None = None
        """The one that has come, without its length"""

    def take(self, data: bytes) -> bytes:
        """What has come; returns what is behind that message. Raises ValueError for a longer one."""
        if self.over:
            return data
        self._kept += data
        if self._kept[0] != 0:
            self.over = True
        elif len(self._kept) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._kept)
            if length > MAX_UNPROVEN:
                raise ValueError(f"a message of {length} bytes before it proves who it is")
            end = LENGTH.size + length
            if len(self._kept) >= end:
                self.message, self._kept, self.over = self._kept[LENGTH.size : end], self._kept[end:], True
        if not self.over:
            return b""
        rest, self._kept = self._kept, b""
        return rest


def in_words(error: ssl.SSLError) -> str:
    """What went wrong, as a sentence of which the other end is the subject."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _WHY_NOT_VERIFIED.get(error.verify_code) or f"its certificate does not count: {error.verify_message}"
    reason = error.reason or ""
    return _WHY_NOT.get(reason) or f"TLS with it fails: {(reason or str(error)).lower().replace('_', ' ')}"


_UNKNOWN = "its certificate is signed by none of the authorities that are known here (tls.authority)"
_WHY_NOT_VERIFIED = {
    9: "its certificate is not valid yet, by the clock here",
    10: "its certificate has expired: renew it",
    18: _UNKNOWN,
    19: _UNKNOWN,
    20: _UNKNOWN,
    21: _UNKNOWN,
    26: "its certificate is not for this purpose: it must be allowed both as server's and as client's",
}
"""By OpenSSL's codes (X509_V_ERR)"""
_REFUSED = "it refuses the certificate shown from here"
_WHY_NOT = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it asks for a certificate, and none is given here",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": f"{_REFUSED}, which has expired by its clock: renew it",
    "SSLV3_ALERT_BAD_CERTIFICATE": f"{_REFUSED}, or it is not valid yet by its clock",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": f"{_REFUSED}, which is not for this purpose",
    "TLSV1_ALERT_UNKNOWN_CA": f"{_REFUSED}, which is signed by none of the authorities that it knows (tls.authority)",
    "UNSUPPORTED_PROTOCOL": "it speaks no version of TLS that is allowed here (1.3)",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it speaks no version of TLS that is allowed here (1.3)",
    "WRONG_VERSION_NUMBER": "it does not speak TLS",
    "HTTP_REQUEST": "it speaks HTTP, and not TLS",
    "UNEXPECTED_EOF_WHILE_READING": "it ends the connection while TLS is being agreed on",
}
"""By OpenSSL's reasons"""
