"""A small authority for tests, which makes certificates that are good, expired, or another's."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from broker_plugin.tls.files import TlsFiles

BOTH = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
ONLY_CLIENT = (ExtendedKeyUsageOID.CLIENT_AUTH,)


class Authority:
    """Of tests, whose files are in ``directory``; a root, unless another one ``above`` signs for it."""

    def __init__(
        self,
        directory: Path,
        name: str = "authority of tests",
        until: timedelta = timedelta(days=30),
        above: Authority | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.file = directory / "authority.pem"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        above = above or self
        builder = _builder(self._name, above._name, self._key, timedelta(days=-1), until)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.certificate = builder.sign(above._key, hashes.SHA256())
        self.file.write_bytes(self.certificate.public_bytes(Encoding.PEM))

    def issue(
        self,
        name: str,
        usages: tuple[x509.ObjectIdentifier, ...] = BOTH,
        since: timedelta = timedelta(days=-1),
        until: timedelta = timedelta(days=2),
        others: tuple[x509.GeneralName, ...] = (),
        organisation: str = "",
        file: str = "",
    ) -> TlsFiles:
        """A certificate with this common name, in files that begin with ``file``, or the name. Times are from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, name)] if name else []
        if organisation:
            attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation))
        builder = _builder(x509.Name(attributes), self._name, key, since, until)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        if usages:
            builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        names = [*others, x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        stem = self.directory / (file or name)
        files = TlsFiles(stem.with_name(stem.name + ".pem"), stem.with_name(stem.name + ".key"), self.file)
        files.certificate.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))
        files.key.unlink(missing_ok=True)
        files.key.touch(0o600)
        files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return files

    def client(self, files: TlsFiles | None = None, **fields: Any) -> ssl.SSLContext:
        """What a client uses that trusts this authority, with its own certificate if it has one."""
        context = ssl.create_default_context(cafile=str(self.file))
        if files is not None:
            context.load_cert_chain(files.certificate, files.key)
        for name, value in fields.items():
            setattr(context, name, value)
        return context


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, since: timedelta, until: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now + since,
        not_valid_after=now + until,
    )
