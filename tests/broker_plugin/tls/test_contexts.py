"""What must be true of a certificate, its key and the authorities before they are in force."""

from __future__ import annotations

import re
import ssl
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from broker_plugin.tls import contexts as module
from broker_plugin.tls.contexts import Contexts
from broker_plugin.tls.files import TlsError, TlsFiles, read
from tests.support.certificates import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def broken(name: str, authority: Authority, good: TlsFiles) -> tuple[TlsFiles, str]:
    """Files that cannot be used, and what is said of them."""
    directory = authority.directory
    other = authority.issue("other")
    if name == "missing":
        return good._replace(certificate=directory / "none.pem"), "cannot be read: No such file"
    if name == "key of another":
        return good._replace(key=other.key), "does not belong to the certificate"
    if name == "expired":
        return authority.issue("old", until=timedelta(hours=-1)), "has expired at"
    if name == "not yet":
        return authority.issue("new", since=timedelta(hours=1)), "is valid from .* on, and not now"
    if name == "no authority":
        return good._replace(authority=other.certificate), "holds no certificate of an authority"
    if name == "no certificate":
        (directory / "text.pem").write_text("a text\n")
        return good._replace(certificate=directory / "text.pem"), "holds no certificate in PEM"
    if name == "no key":
        return good._replace(key=_private(directory / "text.key", b"a text\n")), "holds no private key"
    if name == "open to others":
        other.key.chmod(0o644)
        return other, "others than its owner may use"
    if name == "passphrase":
        key = load_pem_private_key(good.key.read_bytes(), None)
        kept = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"word"))
        return good._replace(key=_private(directory / "kept.key", kept)), "is encrypted"
    assert name == "too large"
    (directory / "large.pem").write_bytes(b"\n" * (1 << 21))
    return good._replace(authority=directory / "large.pem"), "holds more than"


def _private(path: Path, data: bytes) -> Path:
    path.touch(0o600)
    path.write_bytes(data)
    return path


NAMES = [
    *("missing", "key of another", "expired", "not yet", "no authority", "no certificate"),
    *("no key", "open to others", "passphrase", "too large"),
]


@pytest.mark.parametrize("name", NAMES)
def test_what_cannot_be_used_is_refused_in_a_sentence_and_changes_nothing(authority: Authority, name: str) -> None:
    good = authority.issue("node-1")
    contexts = Contexts(good)
    before = contexts.in_force
    contexts.files, said = broken(name, authority, good)
    with pytest.raises(TlsError) as caught:
        contexts.reload()
    assert re.search(said, str(caught.value)) and "\n" not in str(caught.value)
    assert contexts.in_force is before
    with pytest.raises(TlsError, match=said):
        Contexts(contexts.files)


def test_a_reload_says_what_was_in_force(authority: Authority) -> None:
    contexts = Contexts(authority.issue("node-1"))
    first = contexts.in_force
    authority.issue("node-1", until=timedelta(days=9))
    assert contexts.reload() is first
    second = contexts.in_force
    assert contexts.not_after > first.material.not_after
    assert contexts.use(first) is second and contexts.in_force is first
    assert contexts.clients("ask") is first.clients["ask"] and contexts.dialling() is first.dialling


def test_no_one_is_asked_for_the_passphrase_of_a_key(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where it came while the files were read: a node would wait at its terminal for ever."""
    good = authority.issue("node-1")
    material, (encrypted, _) = read(good), broken("passphrase", authority, good)
    monkeypatch.setattr(module, "read", lambda files: material)
    with pytest.raises(TlsError, match="cannot be used: its key is encrypted"):
        Contexts(encrypted)


def test_an_authority_need_not_be_a_root(tmp_path: Path) -> None:
    """The file names whom to trust, and those whom another part of the same company signs for are not among them."""
    above = Authority(tmp_path / "above")
    ours = Authority(tmp_path / "ours", "ours", above=above)
    contexts = Contexts(ours.issue("node-1"))
    partial = ssl.VERIFY_X509_PARTIAL_CHAIN
    client = ours.client(ours.issue("alice"), check_hostname=False, verify_flags=partial)
    shaken(client, contexts.clients("require"))
    shaken(contexts.dialling(), contexts.accepting())
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken(contexts.dialling(), Contexts(above.issue("node-2")._replace(authority=ours.file)).accepting())


def shaken(dialling: ssl.SSLContext, accepting: ssl.SSLContext) -> None:
    """A handshake between these two. Raises ssl.SSLError."""
    one, other = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [dialling.wrap_bio(one, other), accepting.wrap_bio(other, one, server_side=True)]
    for _ in range(5):
        for end in ends:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()


def test_files_that_change_while_they_are_read_are_not_used(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The contexts would be of others than what was looked at."""
    contexts = Contexts(authority.issue("node-1"))
    before, made = contexts.in_force, module._context

    def behind_the_last(files: TlsFiles, material: Any, server: bool, verify: ssl.VerifyMode) -> ssl.SSLContext:
        found = made(files, material, server, verify)
        if not server:
            authority.issue("node-1")
        return found

    monkeypatch.setattr(module, "_context", behind_the_last)
    with pytest.raises(TlsError, match="changed while they were read"):
        contexts.reload()
    assert contexts.in_force is before


def test_what_is_of_no_use_to_a_node_changes_nothing(authority: Authority) -> None:
    contexts = Contexts(authority.issue("node-1"))
    before = contexts.in_force

    def refuse(found: object) -> None:
        raise TlsError("it names another node")

    contexts.check = refuse
    for load in (contexts.reload, contexts.prepared):
        with pytest.raises(TlsError, match="it names another node"):
            load()
    assert contexts.in_force is before


def test_one_authority_that_is_valid_is_enough(tmp_path: Path) -> None:
    """A new one is added to the file before the former one has expired, which is taken out when there is time."""
    ours, former = Authority(tmp_path / "ours"), Authority(tmp_path / "former", until=timedelta(days=5))
    both = tmp_path / "both.pem"
    both.write_bytes(former.file.read_bytes() + ours.file.read_bytes())
    good, now = ours.issue("node-1", until=timedelta(days=99))._replace(authority=both), datetime.now(UTC)
    assert read(good, now + timedelta(days=10)).leaf.subject == read(good, now).leaf.subject
    with pytest.raises(TlsError, match=r"every authority in .* has expired"):
        read(good, now + timedelta(days=40))


def test_a_chain_may_stand_behind_the_certificate_and_others_before_the_authority(authority: Authority) -> None:
    good = authority.issue("node-1")
    good.certificate.write_bytes(good.certificate.read_bytes() + authority.file.read_bytes())
    mixed = authority.directory / "mixed.pem"
    leaf = authority.issue("other").certificate.read_bytes()
    mixed.write_bytes("# Bäume\n".encode() + leaf + authority.file.read_bytes())
    Contexts(good._replace(authority=mixed))


def test_tls_1_2_is_the_oldest_and_between_nodes_both_prove_themselves(authority: Authority) -> None:
    """OpenSSL's own level of security may refuse older versions as well, and does not everywhere."""
    in_force = Contexts(authority.issue("node-1")).in_force
    mutual = [in_force.accepting, in_force.dialling]
    assert {each.minimum_version for each in in_force.clients.values()} == {ssl.TLSVersion.TLSv1_2}
    assert {each.minimum_version for each in mutual} == {ssl.TLSVersion.TLSv1_3}
    assert [each.verify_mode for each in mutual] == [ssl.CERT_REQUIRED] * 2


def test_no_context_has_tickets_or_renegotiates(authority: Authority) -> None:
    """A renegotiation of TLS 1.2 is work that a client can ask for without end."""
    in_force = Contexts(authority.issue("node-1")).in_force
    for each in (*in_force.clients.values(), in_force.accepting, in_force.dialling):
        assert each.options & ssl.OP_NO_RENEGOTIATION and each.options & ssl.OP_NO_TICKET
