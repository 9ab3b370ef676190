"""``txha certificates``: what it makes holds in OpenSSL and in handshakes, and what it refuses changes nothing."""

from __future__ import annotations

import json
import socket
import ssl
import stat
import subprocess
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from broker_plugin.cli.certificates import files, issuing
from broker_plugin.tls.files import is_authority
from recovery.certificate_names import CertificateName, name_of_peer
from tests.support.commands import txha_here


def made(*words: object) -> dict[str, Any]:
    answer = txha_here("certificates", *map(str, words), "--json")
    assert answer.returncode == 0, answer.stderr
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def refused(*words: object) -> str:
    answer = txha_here("certificates", *map(str, words))
    assert answer.returncode == 2, answer.stderr
    (line,) = answer.stderr.strip().splitlines()
    assert line.startswith("txha: ") and "PRIVATE" not in line
    return line


def everything(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    made("init", "--dir", tmp_path / "ca", "--cluster", "prod")
    return tmp_path / "ca"


def node(ca: Path, name: str = "node-1", host: str = "localhost,127.0.0.1") -> Path:
    made("node", name, "--dir", ca, "--out", ca.parent / name, "--host", host)
    return ca.parent / name


def client(ca: Path, user: str = "bob", kind: str = "client") -> Path:
    made(kind, user, "--dir", ca, "--out", ca.parent / user)
    return ca.parent / user


def verified(authority: Path, certificate: Path, *options: str) -> bool:
    words = ["openssl", "verify", "-x509_strict", "-CAfile", str(authority), *options, str(certificate)]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


# -- what is made


def test_openssl_verifies_what_is_made(ca: Path) -> None:
    authority = ca / "authority.pem"
    assert verified(authority, authority)
    for holder, serves in ((node(ca), True), (client(ca), False), (client(ca, "etl", "reader"), False)):
        certificate = holder / "certificate.pem"
        assert verified(holder / "authority.pem", certificate, "-purpose", "sslclient")
        assert verified(authority, certificate, "-purpose", "sslserver") is serves
    assert verified(authority, ca.parent / "node-1/certificate.pem", "-verify_hostname", "localhost")
    assert verified(authority, ca.parent / "node-1/certificate.pem", "-verify_ip", "127.0.0.1")
    assert not verified(authority, ca.parent / "node-1/certificate.pem", "-verify_hostname", "example.org")


def test_no_holder_can_sign_for_others(ca: Path) -> None:
    certificate = files.read_one(node(ca) / "certificate.pem")
    assert is_authority(files.read_one(ca / "authority.pem")) and not is_authority(certificate)
    key = files.read_private_key(ca.parent / "node-1/key.pem")
    forged = issuing.issue(
        issuing.Authority("prod", certificate, key),
        CertificateName("node", "prod", "node-2"),
        [],
        issuing.new_key(),
        9,
        datetime.now(UTC),
    )
    path = ca.parent / "forged.pem"
    path.write_bytes(issuing.certificate_text(forged))
    assert not verified(ca / "authority.pem", path, "-untrusted", str(ca.parent / "node-1/certificate.pem"))


def handshake(server: ssl.SSLContext, dials: ssl.SSLContext, host: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What each end knows of the other: the server first. Raises ssl.SSLError as the one that dials does."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        seen: list[Any] = []

        def serve() -> None:
            accepted, _ = listening.accept()
            accepted.settimeout(30)
            try:
                with server.wrap_socket(accepted, server_side=True) as ours:
                    seen.append(ours.getpeercert())
                    ours.sendall(b"!")
            except OSError as error:
                seen.append(error)
                accepted.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with (
                socket.create_connection(listening.getsockname()[:2], 30) as raw,
                dials.wrap_socket(raw, server_hostname=host) as theirs,
            ):
                assert theirs.recv(1) == b"!"
                return seen[0], theirs.getpeercert() or {}
        finally:
            thread.join()


def context(holder: Path, server: bool) -> ssl.SSLContext:
    made_for = ssl.Purpose.CLIENT_AUTH if server else ssl.Purpose.SERVER_AUTH
    found = ssl.create_default_context(made_for, cafile=str(holder / "authority.pem"))
    found.load_cert_chain(holder / "certificate.pem", holder / "key.pem")
    found.verify_mode = ssl.CERT_REQUIRED
    return found


def test_handshakes_tell_both_ends_who_is_there(ca: Path) -> None:
    server = context(node(ca), server=True)
    for holder, kind in ((node(ca, "node-2"), "node"), (client(ca), "client"), (client(ca, "etl", "reader"), "reader")):
        seen, by = handshake(server, context(holder, server=False), "localhost")
        assert name_of_peer(seen) == CertificateName(kind, "prod", holder.name)
        assert name_of_peer(by) == CertificateName("node", "prod", "node-1")


def test_a_client_serves_none_and_a_stranger_is_not_verified(ca: Path, tmp_path: Path) -> None:
    dials = context(node(ca), server=False)
    with pytest.raises(ssl.SSLError):
        handshake(context(client(ca), server=True), dials, "localhost")
    made("init", "--dir", tmp_path / "other/ca", "--cluster", "prod")
    stranger = node(tmp_path / "other/ca", "node-9")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(context(stranger, server=True), dials, "localhost")
    with pytest.raises(ssl.SSLCertVerificationError, match=r"doesn't match|mismatch"):
        handshake(context(ca.parent / "node-1", server=True), dials, "example.org")


def test_modes_and_the_table_for_the_nodes_file(ca: Path, tmp_path: Path) -> None:
    answer = txha_here("certificates", "node", "n", "--dir", str(ca), "--out", str(tmp_path / "n"), "--host", "h")
    assert "PRIVATE" not in answer.stdout + answer.stderr
    lines = answer.stdout.splitlines()
    named = [f'{key} = "{tmp_path / "n" / key}.pem"' for key in ("certificate", "key", "authority")]
    assert lines == ["[tls]", *named]
    for path, mode in ((ca / "authority-key.pem", 0o600), (tmp_path / "n/key.pem", 0o600), (ca, 0o700)):
        assert stat.S_IMODE(path.stat().st_mode) == mode
    assert (
        "[tls]" not in txha_here("certificates", "client", "u", "--dir", str(ca), "--out", str(tmp_path / "u")).stdout
    )


def test_how_long_it_is_valid(ca: Path, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    authority = files.read_one(ca / "authority.pem")
    certificate = files.read_one(node(ca) / "certificate.pem")
    minute = timedelta(minutes=1)
    for each, days in ((authority, 3650), (certificate, 825)):
        assert abs(each.not_valid_after_utc - now - timedelta(days=days)) < minute
        assert abs(now - each.not_valid_before_utc - timedelta(minutes=5)) < minute
    made("client", "c", "--dir", ca, "--out", tmp_path / "c", "--days", 36_500)
    assert files.read_one(tmp_path / "c/certificate.pem").not_valid_after_utc == authority.not_valid_after_utc


def test_names_that_are_odd_are_told_as_they_are(tmp_path: Path) -> None:
    made("init", "--dir", tmp_path / "ca", "--cluster", "Köln/prod")
    found = made("client", "eve/../node:1", "--dir", tmp_path / "ca", "--out", tmp_path / "o")
    assert (found["kind"], found["cluster"], found["name"]) == ("client", "Köln/prod", "eve/../node:1")


# -- renewed


def test_a_renewed_certificate_is_of_the_same_key_and_hosts(ca: Path) -> None:
    out = node(ca, host="b.example.org,10.0.0.7,::1")
    before, key = files.read_one(out / "certificate.pem"), (out / "key.pem").read_bytes()
    words = ("node", "node-1", "--dir", ca, "--out", out, "--renew")
    assert made(*words)["hosts"] == ["b.example.org", "10.0.0.7", "::1"]
    after = files.read_one(out / "certificate.pem")
    assert after.serial_number != before.serial_number and (out / "key.pem").read_bytes() == key
    assert made(*words, "--host", "c.example.org")["hosts"] == ["c.example.org"]
    names = [row["name"] for row in made("list", "--dir", ca)]
    assert sorted(names) == ["node-1", "node-1", "node-1", "prod authority"]
    assert sorted(path.name for path in out.iterdir()) == ["authority.pem", "certificate.pem", "key.pem"]


def test_a_renewed_authority_is_believed_by_those_who_have_the_former_one(ca: Path) -> None:
    out, before = node(ca), (ca / "authority.pem").read_bytes()
    made("init", "--dir", ca, "--renew", "--days", 9)
    assert (ca / "authority.pem").read_bytes() != before
    assert verified(out / "authority.pem", out / "certificate.pem")
    assert verified(ca / "authority.pem", out / "certificate.pem")
    assert verified(out / "authority.pem", client(ca) / "certificate.pem")
    (out / "authority.pem").write_bytes(before + before)
    made("node", "node-1", "--dir", ca, "--out", out, "--renew")
    assert (out / "authority.pem").read_bytes() == 2 * (ca / "authority.pem").read_bytes()
    made("init", "--dir", ca.parent / "other", "--cluster", "prod")
    another = (ca.parent / "other/authority.pem").read_bytes()
    (out / "authority.pem").write_bytes(another + before)
    made("node", "node-1", "--dir", ca, "--out", out, "--renew")
    assert (out / "authority.pem").read_bytes() == another + (ca / "authority.pem").read_bytes()


def test_nothing_takes_anothers_place(ca: Path, tmp_path: Path) -> None:
    out = node(ca)
    bob = client(ca)
    made("init", "--dir", tmp_path / "o/ca", "--cluster", "prod")
    made("init", "--dir", tmp_path / "p/ca", "--cluster", "test")
    before = everything(tmp_path)
    assert "is there already" in refused("init", "--dir", ca, "--cluster", "prod")
    assert "is there already" in refused("node", "node-1", "--dir", ca, "--out", out, "--host", "h")
    assert "is there already" in refused("client", "eve", "--dir", ca, "--out", bob)
    assert "of client bob" in refused("client", "eve", "--dir", ca, "--out", bob, "--renew")
    assert "of client bob" in refused("reader", "bob", "--dir", ca, "--out", bob, "--renew")
    assert "another authority" in refused("client", "bob", "--dir", tmp_path / "o/ca", "--out", bob, "--renew")
    assert "of prod, not of" in refused("client", "bob", "--dir", tmp_path / "p/ca", "--out", bob, "--renew")
    assert "its key has to stay alone" in refused("client", "bob", "--dir", ca, "--out", ca)
    assert "cannot be read" in refused("client", "bob", "--dir", ca, "--out", tmp_path / "none", "--renew")
    assert "of cluster prod, not of" in refused("init", "--dir", ca, "--cluster", "test", "--renew")
    (bob / "key.pem").write_bytes((out / "key.pem").read_bytes())
    before[str(bob / "key.pem")] = before[str(out / "key.pem")]
    assert "is not the key of" in refused("client", "bob", "--dir", ca, "--out", bob, "--renew")
    assert everything(tmp_path) == before


def test_what_fails_in_the_middle_leaves_nothing(ca: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from broker_plugin.cli.asking import BadArgument

    before, write = everything(tmp_path), files.write_new

    def fails(path: Path, data: bytes, mode: int) -> None:
        if path.parent.name == "issued":
            raise BadArgument(f"cannot write {path}: no room")
        write(path, data, mode)

    monkeypatch.setattr(files, "write_new", fails)
    assert "no room" in refused("client", "bob", "--dir", ca, "--out", tmp_path / "bob")
    assert everything(tmp_path) == before


def test_an_authority_whose_certificate_cannot_be_written_leaves_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from broker_plugin.cli.asking import BadArgument

    write = files.write_new

    def fails(path: Path, data: bytes, mode: int) -> None:
        if path.name == files.AUTHORITY:
            raise BadArgument(f"cannot write {path}: no room")
        write(path, data, mode)

    monkeypatch.setattr(files, "write_new", fails)
    assert "no room" in refused("init", "--dir", tmp_path / "ca", "--cluster", "prod")
    assert everything(tmp_path) == {}
    monkeypatch.undo()
    made("init", "--dir", tmp_path / "ca", "--cluster", "prod")


def test_what_cannot_take_its_place_is_not_left_beside_it(tmp_path: Path) -> None:
    from broker_plugin.cli.asking import BadArgument

    (tmp_path / "certificate.pem").mkdir()
    with pytest.raises(BadArgument, match="cannot write"):
        files.replace(tmp_path / "certificate.pem", b"new", 0o644)
    assert [each.name for each in tmp_path.iterdir()] == ["certificate.pem"]


# -- what is refused


@pytest.mark.parametrize("host", ["", "a,,b", "a:5672", "[::1]", "*.a.org", "é.org", "300.1.1.1", "fe80::1%eth0", "-a"])
def test_hosts_that_are_none(ca: Path, host: str) -> None:
    before = everything(ca.parent)
    assert "--host" in refused("node", "n", "--dir", ca, "--out", ca.parent / "n", "--host", host)
    assert "--host" in refused("node", "n", "--dir", ca, "--out", ca.parent / "n")
    assert everything(ca.parent) == before and not (ca.parent / "n").exists()


@pytest.mark.parametrize("name", ["", "n" * 65, "a\nb", " a", "a\x00b", "\u202ea", "\udc80"])
def test_names_that_cannot_be(ca: Path, name: str) -> None:
    before = everything(ca.parent)
    assert "the name of the user" in refused("client", name, "--dir", ca, "--out", ca.parent / "n")
    assert "the name of the cluster" in refused("init", "--dir", ca.parent / "x", "--cluster", name)
    assert everything(ca.parent) == before and not (ca.parent / "n").exists() and not (ca.parent / "x").exists()


def test_an_authority_that_is_none(ca: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ("client", "bob", "--out", out, "--dir")
    assert "holds no authority" in refused(*words, tmp_path / "nowhere")
    assert "--cluster" in refused("init", "--dir", tmp_path / "new")
    assert "of cluster prod, not of test" in refused(*words, ca, "--cluster", "test")
    for days in (0, -1, 36_501):
        assert "--days" in refused(*words, ca, "--days", days)
    key = ca / "authority-key.pem"
    key.chmod(0o640)
    assert "chmod go=" in refused(*words, ca)
    key.chmod(0o600)
    good, bob = key.read_bytes(), client(ca, "other")
    key.write_bytes((bob / "key.pem").read_bytes())
    assert "is not the key of" in refused(*words, ca)
    key.write_bytes(b"nonsense")
    assert "holds no key" in refused(*words, ca)
    key.write_bytes(good)
    certificate = (ca / "authority.pem").read_bytes()
    (ca / "authority.pem").write_bytes((bob / "certificate.pem").read_bytes())
    assert "is no authority" in refused(*words, ca)
    (ca / "authority.pem").write_bytes(certificate[:-100])
    assert "no certificate in PEM" in refused(*words, ca)
    assert not out.exists()


def test_an_empty_name_is_not_the_current_directory(ca: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ca.parent)
    before = everything(ca.parent)
    assert "empty name: write . for the current one" in refused("init", "--dir", "", "--cluster", "prod")
    assert "empty name" in refused("client", "bob", "--dir", ca, "--out", "")
    assert "empty name" in refused("list", "--dir", "")
    assert everything(ca.parent) == before


@pytest.mark.parametrize("also", [(), ("authority.pem",)])
def test_what_a_command_has_left_that_was_ended_is_told_with_what_to_do(ca: Path, also: tuple[str, ...]) -> None:
    """It said --renew, which needs the certificate that is not there."""
    out = client(ca)
    for path in out.iterdir():
        if path.name not in ("key.pem", *also):
            path.unlink()
    said = f"{out}/key.pem is there without certificate.pem: bring that back; or remove key.pem, if a command"
    assert said in refused("client", "bob", "--dir", ca, "--out", out)
    (ca / "authority.pem").unlink()
    said = f"{ca}/authority-key.pem is there without authority.pem: bring that back; or remove authority-key.pem, if"
    assert said in refused("init", "--dir", ca, "--cluster", "prod")


def test_a_directory_among_what_was_issued_is_passed_over(ca: Path) -> None:
    client(ca)
    (ca / "issued" / "aside.pem").mkdir()
    assert [row["name"] for row in made("list", "--dir", ca)] == ["bob", "prod authority"]


@pytest.mark.parametrize(("begun", "days"), [(-400, 365), (5, 9)])
def test_an_authority_that_is_not_valid_signs_nothing(tmp_path: Path, begun: int, days: int) -> None:
    then = datetime.now(UTC) + timedelta(days=begun)
    files.write_authority(tmp_path / "ca", issuing.make_authority("prod", issuing.new_key(), days, then))
    words = ("client", "bob", "--dir", tmp_path / "ca", "--out", tmp_path / "bob")
    assert "is not valid now" in refused(*words)
    assert txha_here("certificates", "show", str(tmp_path / "ca/authority.pem")).returncode == 1
    assert made("list", "--dir", tmp_path / "ca")[0]["valid"] is False
    made("init", "--dir", tmp_path / "ca", "--renew")
    assert made(*words)["valid"] is True


def test_show_says_what_is_in_files(ca: Path, tmp_path: Path) -> None:
    out = node(ca)
    rows = made("show", out / "certificate.pem", out / "authority.pem")
    assert [(row["kind"], row["name"], row["cluster"], row["amiss"]) for row in rows] == [
        ("node", "node-1", "prod", None),
        ("authority", "prod authority", "prod", None),
    ]
    assert rows[0]["hosts"] == ["localhost", "127.0.0.1"] and rows[0]["days_left"] == 824
    shown = txha_here("certificates", "show", str(out / "certificate.pem"))
    assert shown.returncode == 0 and "node-1" in shown.stdout
    assert "no certificate" in refused("show", out / "key.pem")
    assert "cannot be read" in refused("show", tmp_path / "none")
