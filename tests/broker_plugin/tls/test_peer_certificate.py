"""Whom a certificate stands for."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography import x509

from broker_plugin.tls.peer_certificate import LoginFrom, PeerCertificate, read_certificate
from tests.support.certificates import ONLY_CLIENT, Authority


def certificate(directory: Path, name: str = "alice", **fields: object) -> PeerCertificate:
    files = Authority(directory).issue(name, **fields, file="of-a-client")  # type: ignore[arg-type]
    found = read_certificate(ssl.PEM_cert_to_DER_cert(files.certificate.read_text()))
    assert found is not None
    return found


OTHERS = (x509.RFC822Name("alice@example.com"), x509.UniformResourceIdentifier("urn:alice"), x509.DNSName("a.example"))


@pytest.mark.parametrize(
    ("source", "user"),
    [
        ("common_name", "alice"),
        ("distinguished_name", "CN=alice,O=Example"),
        ("dns", "a.example"),
        ("email", "alice@example.com"),
        ("uri", "urn:alice"),
    ],
)
def test_the_user_is_what_the_configuration_says(tmp_path: Path, source: LoginFrom, user: str) -> None:
    assert certificate(tmp_path, others=OTHERS, organisation="Example").user(source) == user


@pytest.mark.parametrize("source", ["common_name", "email", "uri"])
def test_one_without_that_name_is_no_user(tmp_path: Path, source: LoginFrom) -> None:
    assert certificate(tmp_path, "", organisation="Example").user(source) is None


def test_what_it_may_be_used_for(tmp_path: Path) -> None:
    both, client, any_use = (
        certificate(tmp_path),
        certificate(tmp_path, usages=ONLY_CLIENT),
        certificate(tmp_path, usages=()),
    )
    assert (both.serves, both.asks) == (client.asks, any_use.serves) == (any_use.asks, True) == (True, True)
    assert not client.serves


def test_what_is_no_certificate_stands_for_no_one() -> None:
    assert read_certificate(b"\x30\x03\x02\x01\x01") is None
