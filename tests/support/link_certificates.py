"""Certificates for tests of links, and the contexts of nodes and readers that have them."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from recovery.certificate_names import NODE, CertificateName
from recovery.reader.tls_socket import ReaderCertificate

DAY = datetime.timedelta(days=1)
BOTH_ENDS = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


class Files(NamedTuple):
    """Where a certificate, its key and the authority stand."""

    certificate: Path
    key: Path
    authority: Path

    @property
    def reader(self) -> ReaderCertificate:
        """As a reader names them."""
        return ReaderCertificate(*map(str, self))


class TestContexts:
    """Those of a node with these files, as ``broker_plugin.tls.contexts`` makes them."""

    __test__ = False

    def __init__(self, files: Files) -> None:
        self.files = files
        self.made = 0

    def accepting(self) -> ssl.SSLContext:
        return self._context(ssl.PROTOCOL_TLS_SERVER)

    def dialling(self) -> ssl.SSLContext:
        return self._context(ssl.PROTOCOL_TLS_CLIENT)

    def _context(self, purpose: int) -> ssl.SSLContext:
        self.made += 1
        context = ssl.SSLContext(purpose)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(self.files.certificate, self.files.key)
        context.load_verify_locations(self.files.authority)
        return context


class Authority:
    """Signs certificates, and puts them below ``directory``."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = self._sign(name, self._key, None, (), 0, 3650)
        self.path = directory / f"{name}.pem"
        self.path.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))
        self._made = 0

    def issue(
        self,
        name: CertificateName | str | None,
        begins: float = -1,
        days: float = 30,
        ends: tuple[x509.ObjectIdentifier, ...] = BOTH_ENDS,
    ) -> Files:
        """A certificate of this name, or with this as its URI, valid from ``begins`` days from now on."""
        self._made += 1
        key = ec.generate_private_key(ec.SECP256R1())
        uri = name.uri if isinstance(name, CertificateName) else name
        common = name.name if isinstance(name, CertificateName) else "any"
        made = self._sign(common, key, uri, ends, begins, days)
        files = [self._directory / f"{self._made}-{self.path.stem}.{kind}" for kind in ("pem", "key")]
        files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
        files[1].touch(0o600)
        form, clear = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        files[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, form, clear))
        return Files(files[0], files[1], self.path)

    def node(self, name: str, cluster: str = "cluster", begins: float = -1, days: float = 30) -> Files:
        """A node's."""
        return self.issue(CertificateName(NODE, cluster, name), begins, days)

    def _sign(
        self,
        common: str,
        key: ec.EllipticCurvePrivateKey,
        uri: str | None,
        ends: tuple[x509.ObjectIdentifier, ...],
        begins: float,
        days: float,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
        issuer = subject if not ends and not hasattr(self, "path") else self._certificate.subject
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + begins * DAY)
            .not_valid_after(now + days * DAY)
            .add_extension(x509.BasicConstraints(ca=not ends, path_length=None), critical=True)
        )
        if uri is not None:
            names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)])
            builder = builder.add_extension(names, critical=False)
        if ends:
            builder = builder.add_extension(x509.ExtendedKeyUsage(ends), critical=False)
        return builder.sign(self._key, hashes.SHA256())
