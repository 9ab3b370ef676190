"""What the verified certificate of the other end says of it."""

from __future__ import annotations

import asyncio
from typing import Literal, NamedTuple, TypeVar

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LoginFrom = Literal["common_name", "distinguished_name", "dns", "email", "uri"]
"""What of a client's certificate is its user's name; the last three are those of the alternative names."""
Extension = TypeVar("Extension", bound=x509.ExtensionType)


class PeerCertificate(NamedTuple):
    """``common_name``: empty where it has none, or several. ``distinguished_name``: the whole, as RFC 4514 writes it.

    ``serves`` and ``asks``: whether it may be used by a server, and by a client, as its extended key usage says; one
    without that extension may both. ``not_after``: in seconds since 1970.
    """

    common_name: str
    distinguished_name: str
    dns_names: tuple[str, ...]
    email_names: tuple[str, ...]
    uris: tuple[str, ...]
    serves: bool
    asks: bool
    not_after: float

    def user(self, source: LoginFrom) -> str | None:
        """The name of the user that it stands for; None where it has no such name, or several common names."""
        if source == "common_name":
            return self.common_name or None
        if source == "distinguished_name":
            return self.distinguished_name or None
        names = {"dns": self.dns_names, "email": self.email_names, "uri": self.uris}[source]
        return names[0] if names and names[0] else None


def certificate_of(transport: asyncio.BaseTransport) -> PeerCertificate | None:
    """Of the other end of this connection, which has been verified; None where it gave none, or there is no TLS.

    None as well for a certificate that OpenSSL has accepted and that cannot be read here: it stands for no one.
    """
    secured = transport.get_extra_info("ssl_object")
    found = None if secured is None else secured.getpeercert(True)
    return None if found is None else read_certificate(found)


def read_certificate(der: bytes) -> PeerCertificate | None:
    """Of a certificate in DER; None where it cannot be read."""
    try:
        return _read(x509.load_der_x509_certificate(der))
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        return None


def _read(found: x509.Certificate) -> PeerCertificate:
    names = found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    others = _extension(found, x509.SubjectAlternativeName) or x509.SubjectAlternativeName([])
    usage = _extension(found, x509.ExtendedKeyUsage)
    return PeerCertificate(
        str(names[0].value) if len(names) == 1 else "",
        found.subject.rfc4514_string(),
        tuple(others.get_values_for_type(x509.DNSName)),
        tuple(others.get_values_for_type(x509.RFC822Name)),
        tuple(others.get_values_for_type(x509.UniformResourceIdentifier)),
        usage is None or ExtendedKeyUsageOID.SERVER_AUTH in usage,
        usage is None or ExtendedKeyUsageOID.CLIENT_AUTH in usage,
        found.not_valid_after_utc.timestamp(),
    )


def _extension(found: x509.Certificate, kind: type[Extension]) -> Extension | None:
    try:
        return found.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None
