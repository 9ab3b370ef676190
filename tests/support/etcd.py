"""One etcd for all tests of a run that need but one member that works; each test has a prefix of its own."""

from __future__ import annotations

import atexit
import subprocess
from functools import cache
from pathlib import Path

from python_tests.harness.servers.etcd import EtcdServers


@cache
def one_member() -> EtcdServers:
    """It ends with the process of the tests."""
    server = EtcdServers(1)
    server.__enter__()
    atexit.register(server.__exit__, None, None, None)
    return server


def certificates(directory: Path) -> None:
    """An authority and what it has signed for 127.0.0.1 and a client; and another authority."""
    for name in ("ca", "other"):
        _openssl(
            directory,
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
            "-subj",
            f"/CN={name}",
            "-keyout",
            f"{name}.key",
            "-out",
            f"{name}.pem",
        )
    (directory / "names").write_text("subjectAltName=IP:127.0.0.1")
    for name in ("server", "client"):
        _openssl(
            directory,
            "req",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-subj",
            f"/CN={name}",
            "-keyout",
            f"{name}.key",
            "-out",
            f"{name}.csr",
        )
        _openssl(
            directory,
            "x509",
            "-req",
            "-in",
            f"{name}.csr",
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            "2",
            "-extfile",
            "names",
            "-out",
            f"{name}.pem",
        )


def _openssl(directory: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=directory, check=True, capture_output=True)
