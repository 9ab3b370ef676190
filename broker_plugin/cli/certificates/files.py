"""The files of an authority and of those for whom it signs.

Of the authority, in its directory: ``authority.pem``, ``authority-key.pem``, and ``issued/`` with a copy of each
certificate that it has signed. Of others: ``certificate.pem``, ``key.pem``, and ``authority.pem``, by which they verify
those who have one of the same authority. Keys have the mode 0600. A file that is there is left, unless it is renewed.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from cryptography import x509

from broker_plugin.cli.asking import BadArgument
from broker_plugin.cli.certificates.issuing import (
    Authority,
    Key,
    belong_together,
    certificate_text,
    key_text,
    organization,
    read_certificates,
    read_key,
)
from broker_plugin.tls.files import is_authority
from recovery import new_file
from recovery.secret_file import SecretFileError, read_bytes

AUTHORITY, AUTHORITY_KEY, ISSUED = "authority.pem", "authority-key.pem", "issued"
CERTIFICATE, KEY = "certificate.pem", "key.pem"
LARGEST_FILE = 1 << 20
"""Bytes that are read of a file of certificates"""


def made_directory(path: Path) -> Path:
    """This directory, which only its owner may use if it is made here. Raises BadArgument."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise BadArgument(f"cannot make the directory {path}: {error.strerror}") from None
    return path


def refuse_existing(*paths: Path) -> None:
    """Raises BadArgument if one of them is there, also as a link to nothing."""
    for path in paths:
        if _is_there(path):
            raise BadArgument(f"{path} is there already: give another directory, or --renew for a new certificate")


def refuse_alone(key: Path, certificate: Path) -> None:
    """Raises BadArgument for a key without its certificate, which no --renew can replace."""
    if _is_there(key) and not _is_there(certificate):
        raise BadArgument(
            f"{key} is there without {certificate.name}: bring that back; or remove {key.name}, if a command that was "
            "ended in the middle has left it; or give another directory"
        )


def _is_there(path: Path) -> bool:
    return path.exists() or path.is_symlink()


def write_new(path: Path, data: bytes, mode: int) -> None:
    """A file that is not there yet, whole or not at all. Raises BadArgument."""
    try:
        new_file.write_new(path, data, mode)
    except OSError as error:
        if isinstance(error, FileExistsError):
            refuse_existing(path)
        raise BadArgument(f"cannot write {path}: {error.strerror}") from None


def replace(path: Path, data: bytes, mode: int) -> None:
    """In one step: a node that reads it meanwhile finds the former one, or this. Raises BadArgument."""
    temporary: Path | None = None
    try:
        temporary = new_file.written_beside(path, data, mode)
        temporary.replace(path)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise BadArgument(f"cannot write {path}: {error.strerror}") from None


def write_authority(directory: Path, authority: Authority) -> None:
    """The files of a new one; none of them if one is there. Raises BadArgument."""
    certificate, key = directory / AUTHORITY, directory / AUTHORITY_KEY
    refuse_alone(key, certificate)
    refuse_existing(certificate, key)
    made_directory(directory)
    write_new(key, key_text(authority.key), 0o600)
    try:
        write_new(certificate, certificate_text(authority.certificate), 0o644)
    except BadArgument:
        key.unlink()
        raise


def write_holder(directory: Path, out: Path, certificate: x509.Certificate, key: Key, authority: Authority) -> None:
    """The files of a node, a reader or a client, and the authority's copy: all, or none. Raises BadArgument."""
    files = (
        (out / KEY, key_text(key), 0o600),
        (out / AUTHORITY, certificate_text(authority.certificate), 0o644),
        (out / CERTIFICATE, certificate_text(certificate), 0o644),
        (_copy_of(directory, certificate), certificate_text(certificate), 0o644),
    )
    refuse_alone(out / KEY, out / CERTIFICATE)
    refuse_existing(*(path for path, _, _ in files))
    made_directory(out)
    made_directory(directory / ISSUED)
    written: list[Path] = []
    try:
        for path, data, mode in files:
            write_new(path, data, mode)
            written.append(path)
    except BadArgument:
        for path in written:
            path.unlink()
        raise


def renew_holder(directory: Path, out: Path, certificate: x509.Certificate, authority: Authority) -> None:
    """A new certificate in the place of the former one, and that of the authority where that is renewed as well.

    Other authorities in the file stay. Raises BadArgument, with the former certificate in its place.
    """
    made_directory(directory / ISSUED)
    former = read_certificates(read_file(out / AUTHORITY))
    known = [authority.certificate if belong_together(each, authority.key) else each for each in former]
    write_new(_copy_of(directory, certificate), certificate_text(certificate), 0o644)
    if known != former:
        replace(out / AUTHORITY, b"".join(map(certificate_text, known)), 0o644)
    replace(out / CERTIFICATE, certificate_text(certificate), 0o644)


def _copy_of(directory: Path, certificate: x509.Certificate) -> Path:
    return directory / ISSUED / f"{certificate.serial_number:040x}.pem"


def read_file(path: Path, private: bool = False) -> bytes:
    """Raises BadArgument. ``private``: others may not be able to use it."""
    try:
        data = read_bytes(path, LARGEST_FILE + 1, private)
    except SecretFileError as error:
        raise BadArgument(str(error)) from None
    if len(data) > LARGEST_FILE:
        raise BadArgument(f"{path} is no file of certificates: it has more than {LARGEST_FILE} bytes")
    return data


def read_one(path: Path) -> x509.Certificate:
    """The first certificate in this file. Raises BadArgument."""
    found = read_certificates(read_file(path))
    if not found:
        raise BadArgument(f"{path} holds no certificate in PEM that can be read")
    return found[0]


def read_private_key(path: Path) -> Key:
    """A key that txha has made. Raises BadArgument."""
    key = read_key(read_file(path, private=True))
    if key is None:
        raise BadArgument(f"{path} holds no key that `txha certificates` has made")
    return key


def read_authority(directory: Path, now: datetime, expired: bool = False) -> Authority:
    """The authority in this directory. Raises BadArgument, also if it has expired, unless that may be."""
    if not (directory / AUTHORITY).is_file():
        raise BadArgument(f"{directory} holds no authority: make one with `txha certificates init --dir {directory}`")
    certificate = read_one(directory / AUTHORITY)
    key = read_private_key(directory / AUTHORITY_KEY)
    if not is_authority(certificate) or not organization(certificate):
        raise BadArgument(f"{directory / AUTHORITY} is no authority that `txha certificates init` has made")
    if not belong_together(certificate, key):
        raise BadArgument(f"{directory / AUTHORITY_KEY} is not the key of {directory / AUTHORITY}")
    if not expired and not certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc:
        raise BadArgument(
            f"the authority in {directory} is not valid now: it is from {certificate.not_valid_before_utc:%Y-%m-%d} to "
            f"{certificate.not_valid_after_utc:%Y-%m-%d}; renew it with `txha certificates init --renew`"
        )
    return Authority(organization(certificate), certificate, key)
