"""Readers of the log over TLS: by a certificate of their own, which makes no node of them."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from broker_plugin.logs import seldom
from broker_plugin.node.config import READ_SECRET
from broker_plugin.node.link_tls import LinkTls
from broker_plugin.node.links import LinkCredentials, Links, PeerAddress
from ha.messages.greeting import WIRE_VERSION, Hello
from ha.messages.proof import CERTIFIED, MAX_UNPROVEN, PEER, LinkSecrets
from ha.messages.seals import LENGTH
from ha.messages.stream import Ack
from recovery.certificate_names import CLIENT, NODE, READER, CertificateName
from recovery.pipeline.errors import PipelineError
from recovery.pipeline.remote import RemoteLog
from recovery.pipeline.source.options import parse_options
from recovery.reader.tls_socket import ReaderCertificate
from recovery.tls_channel import ClearBeginning, TlsChannel
from tests.broker_plugin.node.served_log import END, OURS, Node
from tests.recovery.pipeline.events import STORY, write_node
from tests.support.far_end import SECRET, FarEnd, dialling
from tests.support.guards import strict_guard
from tests.support.link_certificates import Authority, Files, TestContexts
from txobserver.ports.store import StoreError

READERS = b"a-secret-for-readers-only-of-some-length"


class TlsNode(Node):
    """Node n1 of cluster c, whose peer port speaks TLS."""

    def __init__(self, directory: Path, port: int, files: Files, secrets: LinkSecrets, only: bool = True) -> None:
        super().__init__(directory, port)
        self.links = Links(
            strict_guard(),
            OURS,
            LinkCredentials(secrets, tls=LinkTls(TestContexts(files), "c", only)),
            [PeerAddress("n2", "127.0.0.1", 1)],
            lambda peer, up: None,
            lambda peer, message: self.got.append((peer, message)),
            self.server.accept,
        )


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture(autouse=True)
def no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(READ_SECRET, raising=False)
    monkeypatch.setattr(seldom, "QUIET_SECONDS", 0)


Start = Callable[..., Any]


@pytest.fixture
async def start(tmp_path: Path, authority: Authority, unused_tcp_port: int) -> AsyncIterator[Start]:
    """Starts a node with secrets, or with certificates alone."""
    running: list[Node] = []

    async def begin(
        *peer: bytes, readers: tuple[bytes, ...] = (), only: bool = True, files: Files | None = None
    ) -> Node:
        write_node(tmp_path / "n1", STORY, segment_bytes=380)
        secrets = LinkSecrets(peer or [CERTIFIED], readers)
        node = TlsNode(tmp_path / "n1", unused_tcp_port, files or authority.node("n1", "c"), secrets, only)
        await node.links.start("127.0.0.1", unused_tcp_port)
        running.append(node)
        return node

    yield begin
    for node in running:
        node.server.stop()
        await node.links.stop()


async def read(node: Node, files: Files | None, secret_file: Path | None = None, cluster: str | None = None) -> int:
    """The last event that is there."""

    def there() -> int:
        certificate = None if files is None else files.reader
        log = RemoteLog(node.address, cluster, secret_file=secret_file and str(secret_file), certificate=certificate)
        try:
            frames = list(log.frames(1, END))
            return frames[-1].last
        finally:
            log.close()

    return await asyncio.to_thread(there)


@pytest.mark.parametrize("kind", [READER, NODE])
@pytest.mark.parametrize("only", [True, False])
async def test_a_reader_reads_by_its_certificate_alone(
    start: Start, authority: Authority, kind: str, only: bool
) -> None:
    """Also where the node takes connections in clear too; a node's certificate reads as well."""
    node = await start(*([] if only else [SECRET, CERTIFIED]), only=only)
    assert await read(node, authority.issue(CertificateName(kind, "c", "spark"))) == END


async def test_a_secret_for_readers_is_required_beside_the_certificate(start: Start, authority: Authority) -> None:
    node = await start(readers=(READERS,))
    files = authority.issue(CertificateName(READER, "c", "spark"))
    with pytest.raises(StoreError, match="it ends the connection"):
        await read(node, files)
    node.secret_file.write_bytes(READERS)
    assert await read(node, files, node.secret_file) == END


@pytest.mark.parametrize(
    ("make", "said", "logged"),
    [
        (lambda ca, other: ca.issue(CertificateName(CLIENT, "c", "x")), "it ends the connection", "the client x"),
        (lambda ca, other: ca.issue(CertificateName(READER, "d", "x")), "it ends the connection", "of cluster d"),
        (lambda ca, other: ca.issue(CertificateName(READER, "c", "x"), days=-0.5), "expired by its clock", "expired"),
        (
            lambda ca, other: other.issue(CertificateName(READER, "c", "x"))._replace(authority=ca.path),
            "signed by none of the authorities that it knows",
            "signed by none of the authorities",
        ),
        (
            lambda ca, other: ca.issue(CertificateName(READER, "c", "x"))._replace(authority=other.path),
            "signed by none of the authorities that are known here",
            "it refuses the certificate shown from here",
        ),
    ],
    ids=["client", "cluster", "expired", "other authority", "trusts another"],
)
async def test_another_certificate_reads_nothing_and_both_ends_say_why(
    start: Start,
    authority: Authority,
    tmp_path: Path,
    make: Callable[[Authority, Authority], Files],
    said: str,
    logged: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = await start()
    with pytest.raises(StoreError, match=said):
        await read(node, make(authority, Authority(tmp_path, "other")))
    async with asyncio.timeout(20):
        while logged not in caplog.text:
            await asyncio.sleep(0.01)
    assert not node.server.readers


@pytest.mark.parametrize(
    ("files", "cluster", "said"),
    [
        (lambda ca: ca.issue(CertificateName(READER, "c", "n1")), None, "not that of a node of txha"),
        (lambda ca: ca.node("n9", "c"), None, "it greets as n1 of c, and its certificate is txha://c/node/n9"),
        (lambda ca: ca.node("n1", "d"), None, "it greets as n1 of c, and its certificate is txha://d/node/n1"),
        (lambda ca: ca.node("n1", "c"), "other", "it belongs to cluster c, not to other"),
    ],
)
async def test_a_reader_believes_a_node_by_its_certificate(
    start: Start, authority: Authority, files: Callable[[Authority], Files], cluster: str | None, said: str
) -> None:
    given = files(authority)
    node = await start(files=given)
    with pytest.raises(StoreError, match=said):
        await read(node, authority.issue(CertificateName(READER, "c", "x")), cluster=cluster)


async def test_a_reader_without_tls_and_one_where_there_is_none_learn_what_is_wrong(
    start: Start, authority: Authority, tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    node = await start()
    with pytest.raises(StoreError, match="it speaks TLS only"):
        await read(node, None, node.secret_file)
    write_node(tmp_path / "plain", STORY)
    plain = Node(tmp_path / "plain", unused_tcp_port_factory())
    await plain.links.start("127.0.0.1", plain.port)
    with pytest.raises(StoreError, match=r"it may speak none \(peer\.tls\), read it without certificates"):
        await read(plain, authority.issue(CertificateName(READER, "c", "x")))
    await plain.links.stop()
    plain.server.stop()


async def test_a_readers_certificate_makes_no_node(
    start: Start, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even where it says that it is one, by the name that is in it."""
    node = await start()
    context = TestContexts(authority.issue(CertificateName(READER, "c", "n2"))).dialling()
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port, ssl=context, server_hostname="")
    far = await FarEnd(dialling(PEER, CERTIFIED)).meet_there(reader, writer)
    writer.write(far.say(Hello(WIRE_VERSION, "c", "n2", "", 0), Ack(1, 7, 1 << 40)))
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        assert await asyncio.wait_for(reader.read(1), 20) == b""
    writer.close()
    assert "it greets as n2, and its certificate says txha://c/reader/n2" in caplog.text and not node.got


def test_files_that_cannot_be_used_are_named(authority: Authority, tmp_path: Path) -> None:
    files = authority.issue(CertificateName(READER, "c", "x"))
    other = authority.issue(CertificateName(READER, "c", "x"))
    files.reader.context()
    for wrong, said in (
        (files._replace(key=tmp_path / "none"), "none cannot be read: No such file"),
        (files._replace(key=other.key), "are not a certificate and its key: key values mismatch"),
        (files._replace(authority=files.key), "holds no certificate of an authority in PEM"),
        (files._replace(certificate=files.key), "are not a certificate and its key"),
    ):
        with pytest.raises(ValueError, match=said):
            wrong.reader.context()
    files.key.chmod(0o640)
    with pytest.raises(ValueError, match="others than its owner may use"):
        files.reader.context()


def test_the_options_of_spark_belong_together() -> None:
    given = {"nodes": "h:1", "certificateFile": "/c", "keyFile": "/k", "authorityFile": "/a"}
    assert parse_options(given).certificate == ReaderCertificate("/c", "/k", "/a")
    assert parse_options({"nodes": "h:1"}).certificate is None
    del given["keyFile"]
    with pytest.raises(PipelineError, match="belong together: keyFile must be given too"):
        parse_options(given)


# -- one end of a connection, without a socket


def test_what_is_said_in_clear_before_tls_is_short() -> None:
    """Whoever dials, or is dialled, has proved nothing yet: it is kept until the whole message has come."""
    good = ClearBeginning()
    assert good.take(LENGTH.pack(MAX_UNPROVEN)) == b"" and not good.over
    assert good.take(b"x" * MAX_UNPROVEN + b"behind") == b"behind" and good.message == b"x" * MAX_UNPROVEN
    with pytest.raises(ValueError, match=f"a message of {MAX_UNPROVEN + 1} bytes before it proves who it is"):
        ClearBeginning().take(LENGTH.pack(MAX_UNPROVEN + 1))


@pytest.mark.parametrize("said", [b"\x15\x03\x03\x00\x02\x02\x28", b"HTTP/1.1 400 Bad Request\r\n"])
def test_what_is_no_step_of_the_proof_is_for_tls_to_judge(said: bytes) -> None:
    """An alert says why it refuses, in clear: it is no length of a message."""
    beginning = ClearBeginning()
    assert beginning.take(said) == said and beginning.over and beginning.message is None


def test_who_says_that_nothing_more_comes_has_ended(authority: Authority) -> None:
    """Though its connection stands: a reader would wait for more until its deadline."""
    contexts = TestContexts(authority.node("n1"))
    ours, come, sent = TlsChannel(contexts.dialling(), False), ssl.MemoryBIO(), ssl.MemoryBIO()
    theirs = contexts.accepting().wrap_bio(come, sent, server_side=True)
    ours.begin()
    for _ in range(3):
        come.write(ours.outgoing())
        with contextlib.suppress(ssl.SSLWantReadError):
            theirs.do_handshake()
        ours.take(sent.read())
    assert ours.established and not ours.ended
    theirs.write(b"the last")
    with contextlib.suppress(ssl.SSLWantReadError):
        theirs.unwrap()
    assert ours.take(sent.read()) == b"the last" and ours.ended
