"""The three files that a node's TLS is made of, and what must be true of them before they are used.

Each error says in one sentence what is wrong and with which file, and shows nothing of a key.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from recovery.secret_file import SecretFileError, read_bytes

LARGEST = 1 << 20
"""Bytes of one of these files; what is larger is none of them."""
TIME = "%Y-%m-%d %H:%M:%S UTC"


class TlsError(Exception):
    """The certificate, its key or the authorities cannot be used; one sentence says why."""


class TlsFiles(NamedTuple):
    """Where they stand, in PEM: this node's certificate, with those between it and its authority behind it; its key;
    and the certificates of the authorities whose certificates are trusted."""

    certificate: Path
    key: Path
    authority: Path


class Material(NamedTuple):
    """What stands there, of which each is fit for the others. ``leaf``: this node's own certificate."""

    chain: bytes
    key: bytes
    authorities: bytes
    leaf: x509.Certificate

    @property
    def not_after(self) -> datetime:
        """When this node's certificate expires."""
        return self.leaf.not_valid_after_utc


def read(files: TlsFiles, now: datetime | None = None) -> Material:
    """All three. ``now``: the time, unless it is that of the system's clock. Raises TlsError."""
    at = datetime.now(UTC) if now is None else now
    chain, authorities = _bytes(files.certificate), _bytes(files.authority)
    key = _bytes(files.key, private=True)
    leaf = _certificates(files.certificate, chain)[0]
    if leaf.not_valid_after_utc < at:
        raise TlsError(f"the certificate in {files.certificate} has expired at {leaf.not_valid_after_utc:{TIME}}")
    if leaf.not_valid_before_utc > at:
        raise TlsError(
            f"the certificate in {files.certificate} is valid from {leaf.not_valid_before_utc:{TIME}} on, and not now"
        )
    _check_key(files, key, leaf)
    _check_authorities(files.authority, authorities, at)
    return Material(chain, key, authorities, leaf)


def _bytes(path: Path, private: bool = False) -> bytes:
    try:
        found = read_bytes(path, LARGEST + 1, private)
    except SecretFileError as error:
        raise TlsError(str(error)) from None
    if len(found) > LARGEST:
        raise TlsError(f"{path} holds more than {LARGEST} bytes: it is no file of certificates or of a key")
    return found


def _certificates(path: Path, data: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(data)
    except ValueError:
        raise TlsError(f"{path} holds no certificate in PEM that can be read") from None


def _check_key(files: TlsFiles, data: bytes, leaf: x509.Certificate) -> None:
    try:
        key = load_pem_private_key(data, None)
    except TypeError:
        raise TlsError(f"the key in {files.key} is encrypted: a node takes one without a passphrase") from None
    except (ValueError, UnsupportedAlgorithm):
        raise TlsError(f"{files.key} holds no private key in PEM that can be read") from None
    if key.public_key() != leaf.public_key():
        raise TlsError(f"the key in {files.key} does not belong to the certificate in {files.certificate}")


def _check_authorities(path: Path, data: bytes, now: datetime) -> None:
    found = [each for each in _certificates(path, data) if is_authority(each)]
    if not found:
        raise TlsError(f"{path} holds no certificate of an authority (CA), by which others could be trusted")
    if all(each.not_valid_after_utc < now for each in found):
        raise TlsError(f"every authority in {path} has expired")


def is_authority(certificate: x509.Certificate) -> bool:
    """Whether it may sign others."""
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False
