"""Links over TLS: who is believed by which certificate, what each refusal says, and how plain and encrypted meet."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from broker_plugin.logs import seldom
from broker_plugin.node import links as links_module
from broker_plugin.node.link_tls import LinkTls
from broker_plugin.node.links import LinkCredentials
from ha.messages.proof import CERTIFIED, ONLY_TLS, LinkSecrets
from ha.messages.stream import Ack, Entries
from ha.messages.wire import encode
from recovery.certificate_names import CLIENT, READER, CertificateName
from tests.broker_plugin.node.test_strangers import Pair
from tests.broker_plugin.node.test_strangers import every_refusal_is_said as every_refusal_is_said
from tests.broker_plugin.node.test_strangers import ports as ports
from tests.support.far_end import SECRET, FarEnd, dialling
from tests.support.link_certificates import Authority, Files, TestContexts

Mode = Literal[False, "accept", True]
OTHER = b"another-secret-of-enough-characters"


class TlsPair(Pair):
    """Nodes a and b, each with a mode, a certificate, and secrets or none."""

    def __init__(
        self,
        files: dict[str, Files],
        modes: dict[str, Mode] | None = None,
        secrets: dict[str, list[bytes]] | None = None,
    ) -> None:
        super().__init__(secrets or {"a": [CERTIFIED], "b": [CERTIFIED]})
        self.contexts = {name: TestContexts(each) for name, each in files.items()}
        self.modes: dict[str, Mode] = modes or {"a": True, "b": True}

    def credentials(self, name: str) -> LinkCredentials:
        mode = self.modes[name]
        tls = LinkTls(self.contexts[name], "cluster", mode is True) if mode else None
        return LinkCredentials(LinkSecrets(self.secrets[name]), tls=tls)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def files(authority: Authority) -> dict[str, Files]:
    return {name: authority.node(name) for name in "ab"}


@pytest.fixture
async def encrypted(files: dict[str, Files], ports: tuple[int, int]) -> AsyncIterator[TlsPair]:
    pair = TlsPair(files)
    await pair.start(ports)
    yield pair
    await pair.stop()


async def test_nodes_link_by_their_certificates_alone_and_nothing_can_be_read(encrypted: TlsPair) -> None:
    frame = b"a payload that is long enough to be found" * 40_000
    encrypted.links["a"].send("b", Entries(1, 7, 3, frame))
    await encrypted.until(lambda: encrypted.got)
    assert encrypted.got == [("a", Entries(1, 7, 3, frame))]
    for said in (encrypted.tap.captured, encrypted.tap.answered):
        for readable in (frame[:40], b"cluster", b"identity", b"txha", b"127.0.0.1", encode(Ack(1, 7, 3))):
            assert readable not in said, readable
    assert len(encrypted.tap.captured) > len(frame)


@pytest.mark.parametrize("secrets", [[SECRET], [SECRET, OTHER]])
async def test_a_secret_that_is_set_must_be_proved_too(
    files: dict[str, Files], ports: tuple[int, int], secrets: list[bytes]
) -> None:
    pair = TlsPair(files, secrets={"a": [SECRET], "b": secrets})
    await pair.start(ports)
    await pair.true_message()
    assert SECRET not in pair.tap.captured
    await pair.stop()


@pytest.mark.parametrize(
    ("of_a", "of_b", "said"),
    [
        ([SECRET], [OTHER], ["it does not know the secret of this cluster (peer.secret)"]),
        (
            [SECRET],
            [CERTIFIED],
            [
                "it proves a secret (peer.secret), and this node goes by certificates alone: give it to both",
                "it goes by its certificate alone, and this node by a secret too (peer.secret): give it to both",
            ],
        ),
    ],
)
async def test_a_certificate_does_not_make_up_for_another_secret(
    files: dict[str, Files],
    ports: tuple[int, int],
    of_a: list[bytes],
    of_b: list[bytes],
    said: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    pair = TlsPair(files, secrets={"a": of_a, "b": of_b})
    await pair.start(ports, wait=False)
    for each in said:
        await pair.until(lambda each=each: each in caplog.text)  # type: ignore[misc]
    assert not pair.linked
    await pair.stop()


EXPIRED = "its certificate has expired: renew it"
TOO_EARLY = "its certificate is not valid yet, by the clock here"
UNKNOWN = "its certificate is signed by none of the authorities that are known here (tls.authority)"
PURPOSE = "its certificate is not for this purpose: it must be allowed both as server's and as client's"
SHOWN = "it refuses the certificate shown from here"


@pytest.mark.parametrize(
    ("make", "by_who_dials", "by_who_listens"),
    [
        (lambda ca, other: ca.node("a", begins=-9, days=-1), EXPIRED, EXPIRED),
        (lambda ca, other: ca.node("a", begins=1), TOO_EARLY, TOO_EARLY),
        (lambda ca, other: other.node("a")._replace(authority=ca.path), UNKNOWN, UNKNOWN),
        (
            lambda ca, other: ca.node("a", "elsewhere"),
            "its certificate says txha://elsewhere/node/a, and txha://cluster/node/a is dialled",
            "its certificate is of cluster elsewhere, and this node of cluster",
        ),
        (
            lambda ca, other: ca.node("c"),
            "its certificate says txha://cluster/node/c, and txha://cluster/node/a is dialled",
            "it greets as a, and its certificate says txha://cluster/node/c",
        ),
        (
            lambda ca, other: ca.issue(CertificateName(CLIENT, "cluster", "a")),
            "its certificate says txha://cluster/client/a, and txha://cluster/node/a is dialled",
            "its certificate is that of the client a of cluster cluster",
        ),
        (
            lambda ca, other: ca.issue(CertificateName(READER, "cluster", "a")),
            "its certificate says txha://cluster/reader/a, and txha://cluster/node/a is dialled",
            "it greets as a, and its certificate says txha://cluster/reader/a",
        ),
        (
            lambda ca, other: ca.issue(None),
            "its certificate names no node, and txha://cluster/node/a is dialled",
            "its certificate names neither a node nor a reader of cluster cluster: give it one with the URI "
            "txha://cluster/node/NAME",
        ),
        (
            lambda ca, other: ca.issue("txha://cluster/node/a/b"),
            "the certificate must have one URI txha://CLUSTER/KIND/NAME among its alternative names",
            "the certificate must have one URI txha://CLUSTER/KIND/NAME among its alternative names",
        ),
        (
            lambda ca, other: ca.issue(
                CertificateName("node", "cluster", "a"), ends=(ExtendedKeyUsageOID.EMAIL_PROTECTION,)
            ),
            PURPOSE,
            PURPOSE,
        ),
    ],
    ids=["expired", "too-early", "other-ca", "cluster", "name", "client", "reader", "no-name", "malformed", "purpose"],
)
async def test_another_certificate_is_refused_on_both_ways_and_the_line_says_why(
    authority: Authority,
    tmp_path: Path,
    ports: tuple[int, int],
    make: Callable[[Authority, Authority], Files],
    by_who_dials: str,
    by_who_listens: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Node a has it. ``by_who_dials``: what b says of a that it has dialled; ``by_who_listens``: where a dialled."""
    pair = TlsPair({"a": make(authority, Authority(tmp_path, "other")), "b": authority.node("b")})
    await pair.start(ports, wait=False)
    await pair.until(lambda: _line("an unknown peer", by_who_listens, caplog))
    await pair.until(lambda: _line("a", by_who_dials, caplog))
    assert ("b", "a") not in pair.linked and not pair.got, "a may take b for linked until b has read its greeting"
    await pair.stop()


def _line(peer: str, reason: str, caplog: pytest.LogCaptureFixture) -> bool:
    return any(f"with {peer} at" in line and reason in line for line in caplog.messages)


async def test_a_node_whose_certificate_is_refused_learns_why(
    authority: Authority, ports: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    """Also who listens where the certificates are looked at last, by who has dialled."""
    pair = TlsPair({"a": authority.node("a", begins=-9, days=-1), "b": authority.node("b")})
    await pair.start(ports, wait=False)
    why = f"{SHOWN}, which has expired by its clock: renew it"
    await pair.until(lambda: _line("b", why, caplog) and _line("an unknown peer", why, caplog))
    await pair.stop()


@pytest.mark.parametrize(
    ("a", "b"),
    [(False, "accept"), ("accept", "accept"), ("accept", True), (True, "accept"), (True, True), ("accept", False)],
)
async def test_a_running_cluster_is_switched_over_node_by_node(
    files: dict[str, Files], ports: tuple[int, int], a: Mode, b: Mode, caplog: pytest.LogCaptureFixture
) -> None:
    """Each pair of modes that meets on the way links on both ways, and nothing is refused."""
    pair = TlsPair(files, {"a": a, "b": b}, {"a": [SECRET], "b": [SECRET]})
    await pair.start(ports)
    await pair.true_message()
    assert (b"cluster" in pair.tap.captured) is (True not in (a, b)), "encrypted where one of them wants it"
    assert "closing the connection" not in caplog.text
    await pair.stop()


async def test_a_node_without_tls_and_one_with_nothing_else_say_so_on_both_sides(
    files: dict[str, Files], ports: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    pair = TlsPair(files, {"a": False, "b": True}, {"a": [SECRET], "b": [SECRET]})
    await pair.start(ports, wait=False)
    await pair.until(lambda: _line("b", "it speaks TLS only (peer.tls)", caplog))
    await pair.until(lambda: _line("an unknown peer", "it begins TLS, and this node speaks none (peer.tls)", caplog))
    await pair.until(
        lambda: _line("a", 'it ends the connection where TLS begins: it may have no peer.tls; give it "accept"', caplog)
    )
    assert not pair.linked
    await pair.stop()


async def said_to(port: int, data: bytes, ends: bool = True) -> bytes:
    """What a node answers, until it ends the connection, unless it is not to be waited for."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    answered = b""
    with contextlib.suppress(ConnectionError):
        while ends and (more := await reader.read(1 << 16)):
            answered += more
    writer.close()
    return answered


@pytest.mark.parametrize("mode", ["accept", True])
async def test_certificates_stand_in_for_the_secret_over_tls_only(
    files: dict[str, Files], ports: tuple[int, int], mode: Mode, caplog: pytest.LogCaptureFixture
) -> None:
    """Everybody knows what is proved in its place."""
    pair = TlsPair(files, {"a": mode, "b": mode}, {"a": [SECRET, CERTIFIED], "b": [SECRET, CERTIFIED]})
    await pair.start(ports)
    reader, writer = await asyncio.open_connection("127.0.0.1", ports[1])
    far = FarEnd(dialling(secret=CERTIFIED))
    with pytest.raises((asyncio.IncompleteReadError, ValueError)):
        await asyncio.wait_for(far.meet_there(reader, writer), 20)
    writer.close()
    assert far.session is None and not far.got
    await pair.true_message()
    await pair.stop()


def _shakes_hands(port: int, context: ssl.SSLContext) -> ssl.SSLObject:
    """To the end, so that the node gets to say what it thinks of the certificate."""
    import socket

    with socket.create_connection(("127.0.0.1", port), 20) as plain, context.wrap_socket(plain) as tls:
        tls.settimeout(20)
        assert tls.recv(1) == b""
    raise AssertionError("it was let in")


def _stranger(authority: Authority, **options: Any) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(authority.path)
    for name, value in options.items():
        setattr(context, name, value)
    return context


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "it shows no certificate"),
        (
            {"maximum_version": ssl.TLSVersion.TLSv1_2},
            "it speaks no version of TLS that is allowed here (1.3)",
        ),
    ],
)
async def test_a_stranger_without_a_certificate_is_refused(
    encrypted: TlsPair,
    authority: Authority,
    options: dict[str, Any],
    said: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(ssl.SSLError):
        await asyncio.to_thread(_shakes_hands, encrypted.port, _stranger(authority, **options))
    await encrypted.until(lambda: _line("an unknown peer", said, caplog))
    await encrypted.true_message()
    assert not encrypted.lost, "those that are linked stay so"


HELLO = bytes.fromhex("1603010200010001fc0303") + bytes(20)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x00\x00\x00\x05txha\x01", "it does not begin TLS, and this node speaks nothing else (peer.tls)"),
        (b"GET / HTTP/1.1\r\n\r\n", "it does not begin TLS, and this node speaks nothing else (peer.tls)"),
        (b"\x16\x03\x01\x00\x05hello", "TLS with it fails: "),
        (b"", "it does not prove who it is in time"),
        (HELLO, "it does not prove who it is in time"),
    ],
    ids=["a proof in clear", "http", "no hello", "silence", "half a handshake"],
)
async def test_what_does_not_come_to_tls_is_ended_in_time_and_disturbs_no_link(
    encrypted: TlsPair, data: bytes, said: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(links_module, "GREETING_SECONDS", 0.5)
    answered = await said_to(encrypted.port, data)
    assert answered == ONLY_TLS or answered[:1] in (b"", b"\x15"), "no more than that it speaks TLS, or an alert"
    assert _line("an unknown peer", said, caplog)
    await encrypted.true_message()
    assert not encrypted.lost


async def test_a_flood_of_half_handshakes_keeps_no_node_out(
    encrypted: TlsPair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(seldom, "QUIET_SECONDS", 60)
    monkeypatch.setattr(links_module, "GREETING_SECONDS", 600)
    connections = []
    for number in range(3 * links_module.UNGREETED):
        connections.append(await asyncio.open_connection("127.0.0.1", encrypted.port))
        connections[-1][1].write(HELLO if number % 2 else b"")
    await encrypted.until(lambda: len(encrypted.links["b"]._ungreeted) <= links_module.UNGREETED)
    for writer in encrypted.tap._writers:
        writer.transport.abort()
    await encrypted.until(lambda: ("a", "b") in encrypted.lost)
    await encrypted.true_message()
    (line,) = [each for each in caplog.messages if "unknown peer" in each]
    assert "others have come that have not proved who they are" in line
    for _, writer in connections:
        writer.transport.abort()


async def test_new_links_use_the_certificates_that_were_loaded_last(
    encrypted: TlsPair, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """A link that stands goes on by the old ones, also where they count no more by now."""
    encrypted.contexts["b"].files = authority.node("b", begins=-9, days=-1)
    await encrypted.true_message()
    assert not encrypted.lost and EXPIRED not in caplog.text
    for writer in encrypted.tap._writers:
        writer.transport.abort()
    await encrypted.until(lambda: _line("b", EXPIRED, caplog))
    encrypted.contexts["b"].files = authority.node("b")
    await encrypted.true_message(5)


async def test_a_stranger_that_listens_where_a_node_should_is_not_believed(
    encrypted: TlsPair, authority: Authority, ports: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    """It has a certificate of the right authority that is another's, and gets to hear nothing behind the handshake."""
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            heard.append(await reader.read(1 << 16))
        heard.append(b"")
        writer.close()

    await encrypted.links["b"].stop()
    context = TestContexts(authority.node("c")).accepting()
    async with asyncio.timeout(20):
        while True:
            try:
                server = await asyncio.start_server(serve, "127.0.0.1", ports[1], ssl=context)
                break
            except OSError:
                await asyncio.sleep(0.05)
    says = "its certificate says txha://cluster/node/c, and txha://cluster/node/b is dialled"
    await encrypted.until(lambda: _line("b", says, caplog) and heard)
    server.close()
    assert set(heard) == {b""}
