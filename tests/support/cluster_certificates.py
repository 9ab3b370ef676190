"""A cluster's authority for tests, and the contexts of those for whom it signs."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from broker_plugin.cli.certificates import files, issuing
from recovery.certificate_names import CertificateName

HOSTS = ("localhost", "127.0.0.1")


class ClusterAuthority:
    """Of this cluster, with its files in ``directory``."""

    def __init__(self, directory: Path, cluster: str = "c") -> None:
        self.directory, self.cluster = directory, cluster
        self._authority = issuing.make_authority(cluster, issuing.new_key(), 9, datetime.now(UTC))
        files.write_authority(directory / "ca", self._authority)

    def holder(self, kind: str, name: str, cluster: str | None = None, age: int = 0) -> Path:
        """The directory with the three files of a node, a reader or a client; of one that was made days ago."""
        out = self.directory / f"{cluster or self.cluster}-{kind}-{name}-{age}"
        if not out.exists():
            key = issuing.new_key()
            whose = CertificateName(kind, cluster or self.cluster, name)
            then = datetime.now(UTC) - timedelta(days=age)
            made = issuing.issue(self._authority, whose, HOSTS if kind == "node" else (), key, 2, then)
            files.write_holder(self.directory / "ca", out, made, key, self._authority)
        return out


def accepting(holder: Path, verify: ssl.VerifyMode = ssl.CERT_OPTIONAL) -> ssl.SSLContext:
    """Of a node: the end to which others connect."""
    return _context(holder, ssl.PROTOCOL_TLS_SERVER, verify)


def dialling(holder: Path) -> ssl.SSLContext:
    """The end that connects; who is there is for others to compare."""
    return _context(holder, ssl.PROTOCOL_TLS_CLIENT, ssl.CERT_REQUIRED)


def _context(holder: Path, protocol: int, verify: ssl.VerifyMode) -> ssl.SSLContext:
    found = ssl.SSLContext(protocol)
    found.check_hostname = False
    found.verify_mode = verify
    found.load_cert_chain(holder / files.CERTIFICATE, holder / files.KEY)
    found.load_verify_locations(holder / files.AUTHORITY)
    return found
