"""Certificates and their keys, made and read. Nothing here opens a file."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from broker_plugin.cli.certificates.given import as_address
from recovery.certificate_names import NODE, CertificateName, name_of_uris

SKEW = datetime.timedelta(minutes=5)
"""A certificate is valid so long before it is made: clocks of other hosts may be behind."""
Key = ec.EllipticCurvePrivateKey


class Authority(NamedTuple):
    """What signs. ``cluster``: whose nodes, readers and clients."""

    cluster: str
    certificate: x509.Certificate
    key: Key


def new_key() -> Key:
    """A key on the curve P-256."""
    return ec.generate_private_key(ec.SECP256R1())


def key_text(key: Key) -> bytes:
    """In PEM, in clear."""
    form, clear = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, form, clear)


def certificate_text(certificate: x509.Certificate) -> bytes:
    """In PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def read_key(text: bytes) -> Key | None:
    """The key in this PEM; None where there is none that txha makes."""
    try:
        key = serialization.load_pem_private_key(text, None)
    except (ValueError, TypeError):
        return None
    return key if isinstance(key, ec.EllipticCurvePrivateKey) else None


def read_certificates(text: bytes) -> list[x509.Certificate]:
    """All certificates in this PEM; none where one of them cannot be read."""
    try:
        return x509.load_pem_x509_certificates(text)
    except ValueError:
        return []


def belong_together(certificate: x509.Certificate, key: Key) -> bool:
    """Whether this is the certificate of this key."""
    return key.public_key() == certificate.public_key()


def make_authority(cluster: str, key: Key, days: int, now: datetime.datetime) -> Authority:
    """Its certificate, signed by itself: it may sign others, and these none."""
    subject = _subject(cluster, f"{cluster} authority"[:64])
    builder = _begun(subject, subject, key, now, now + datetime.timedelta(days=days))
    certificate = (
        builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(authority=True), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(cluster, certificate, key)


def issue(
    authority: Authority, name: CertificateName, hosts: Sequence[str], key: Key, days: int, now: datetime.datetime
) -> x509.Certificate:
    """A certificate for this key, which is valid no longer than the authority's.

    Of a node for both ends of a connection, at ``hosts``; of others for the end that connects.
    """
    until = min(now + datetime.timedelta(days=days), authority.certificate.not_valid_after_utc)
    alternatives: list[x509.GeneralName] = [x509.UniformResourceIdentifier(name.uri)]
    for host in hosts:
        address = as_address(host)
        alternatives.append(x509.DNSName(host) if address is None else x509.IPAddress(address))
    ends = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if name.kind == NODE:
        ends.insert(0, ExtendedKeyUsageOID.SERVER_AUTH)
    issuer = authority.certificate.subject
    return (
        _begun(_subject(name.cluster, name.name), issuer, key, now, until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(ends), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()),
            critical=False,
        )
        .sign(authority.key, hashes.SHA256())
    )


def organization(certificate: x509.Certificate) -> str:
    """The cluster in a certificate's subject; empty where there is none."""
    found = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    return str(found[0].value) if found else ""


def owner(certificate: x509.Certificate) -> CertificateName | None:
    """Whose it is, where its URI says that. Raises ValueError for one that is malformed."""
    return name_of_uris(_alternatives(certificate, x509.UniformResourceIdentifier))


def hosts_of(certificate: x509.Certificate) -> list[str]:
    """The hosts that it names, names first."""
    return _alternatives(certificate, x509.DNSName) + _alternatives(certificate, x509.IPAddress)


def _alternatives(certificate: x509.Certificate, kind: type[x509.GeneralName]) -> list[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(each.value) for each in found if isinstance(each, kind)]


def _subject(cluster: str, common: str) -> x509.Name:
    named = ((NameOID.ORGANIZATION_NAME, cluster), (NameOID.COMMON_NAME, common))
    return x509.Name([x509.NameAttribute(kind, value) for kind, value in named])


def _begun(
    subject: x509.Name, issuer: x509.Name, key: Key, now: datetime.datetime, until: datetime.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
