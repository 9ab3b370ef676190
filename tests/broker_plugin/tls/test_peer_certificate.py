"""Whom a certificate stands for."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID, NameOID

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


def made(names: list[str], *alternatives: x509.ExtensionType) -> PeerCertificate | None:
    """Of a certificate with these common names, that no authority of tests would sign."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each) for each in names])
    extensions = [x509.Extension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, False, each) for each in alternatives]
    until = now + timedelta(days=1)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, until, extensions)  # it refuses no pair
    return read_certificate(builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER))


def test_one_with_two_common_names_is_neither_of_them() -> None:
    """Whoever signs may look at the one only, and the node at the other."""
    alone, both = made(["alice"]), made(["alice", "bob"])
    assert alone is not None and alone.user("common_name") == "alice"
    assert both is not None and both.user("common_name") is None


def test_one_whose_names_cannot_be_read_stands_for_no_one() -> None:
    """OpenSSL takes both: names that stand there twice, and one of a kind that is not known here (X.400)."""
    alice = x509.SubjectAlternativeName([x509.DNSName("alice.example")])
    foreign = x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, bytes.fromhex("3004a3023000"))
    assert made(["alice"], alice) is not None
    assert made(["alice"], alice, alice) is None
    assert made(["alice"], foreign) is None


def test_what_it_may_be_used_for(tmp_path: Path) -> None:
    both, client, any_use = (
        certificate(tmp_path),
        certificate(tmp_path, usages=ONLY_CLIENT),
        certificate(tmp_path, usages=()),
    )
    assert (both.serves, both.asks) == (client.asks, any_use.serves) == (any_use.asks, True) == (True, True)
    assert not client.serves
    server = certificate(tmp_path, usages=(ExtendedKeyUsageOID.SERVER_AUTH,))
    assert server.serves and not server.asks


def test_what_is_no_certificate_stands_for_no_one() -> None:
    assert read_certificate(b"\x30\x03\x02\x01\x01") is None
