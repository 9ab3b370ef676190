"""A node's own certificate is tried before it links, and is said to expire before it does."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from broker_plugin.node import certificate_watch
from broker_plugin.node.certificate_watch import CertificateWatch, clock, watch_certificate
from broker_plugin.node.config import ConfigError, NodeConfig, parse_config
from broker_plugin.node.link_identity import link_credentials
from broker_plugin.node.tls_config import contexts_of
from broker_plugin.tls.contexts import Contexts
from broker_plugin.tls.files import TlsError, TlsFiles
from ha.messages.proof import CERTIFIED, PEER, READER
from recovery.certificate_names import CLIENT, CertificateName
from recovery.tls_channel import ChannelRefused, TlsChannel
from tests.support.guards import strict_guard
from tests.support.link_certificates import Authority, Files, TestContexts

SECRET, OTHER = "the-first-secret-of-this-cluster-of-tests", "a-secret-for-readers-only-of-some-length"
TOML = """
name = "a"
cluster = "cluster"
dir = "a"
coordination = "sqlite:///record"
[amqp]
tls_port = 5671
[peer]
port = 7001
{peer}
[tls]
certificate = "{files.certificate}"
key = "{files.key}"
authority = "{files.authority}"
"""


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def config(tmp_path: Path, files: Files, peer: str, environment: dict[str, str] | None = None) -> NodeConfig:
    text = TOML.format(files=files, peer=peer)
    return parse_config(text, tmp_path / "node.toml", environment=environment or {})


def secret(path: Path, *words: str) -> None:
    path.touch(0o600)
    path.write_text("\n".join(words))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda ca: ca.node("b"), "says txha://cluster/node/b, and with peer.tls it must say txha://cluster/node/a"),
        (
            lambda ca: ca.node("a", "else"),
            "says txha://else/node/a, and with peer.tls it must say txha://cluster/node/a",
        ),
        (lambda ca: ca.issue(CertificateName(CLIENT, "cluster", "a")), "says txha://cluster/client/a"),
        (lambda ca: ca.issue(None), "has no URI of txha, and with peer.tls"),
        (
            lambda ca: ca.issue(CertificateName("node", "cluster", "a"), ends=(ExtendedKeyUsageOID.SERVER_AUTH,)),
            "tls.certificate makes no links (peer.tls): its certificate is not for this purpose",
        ),
    ],
)
def test_a_certificate_by_which_no_node_could_link_is_refused_at_the_start(
    tmp_path: Path, authority: Authority, make: Callable[[Authority], Files], said: str
) -> None:
    given = config(tmp_path, make(authority), "tls = true")
    with pytest.raises(ConfigError) as error:
        link_credentials(given, contexts_of(given.tls))
    assert said in str(error.value)


def test_one_of_another_authority_is_refused_too(tmp_path: Path, authority: Authority) -> None:
    other = Authority(tmp_path, "other").node("a")._replace(authority=authority.path)
    given = config(tmp_path, other, "tls = true")
    with pytest.raises(ConfigError, match="signed by none of the authorities"):
        link_credentials(given, contexts_of(given.tls))


def met(dialler: ssl.SSLContext, listener: ssl.SSLContext) -> None:
    """As both ends of one connection. Raises ChannelRefused."""
    one, other = TlsChannel(dialler, False), TlsChannel(listener, True)
    one.begin()
    for _ in range(9):
        other.take(one.outgoing())
        one.take(other.outgoing())


def test_what_is_in_force_takes_neither_end_without_a_certificate_that_counts(
    tmp_path: Path, authority: Authority
) -> None:
    contexts = Contexts(TlsFiles(*authority.node("a")))
    met(contexts.dialling(), contexts.accepting())
    nothing = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    nothing.check_hostname = False
    nothing.load_verify_locations(authority.path)
    with pytest.raises(ChannelRefused, match="it shows no certificate"):
        met(nothing, contexts.accepting())
    other = Authority(tmp_path, "other").node("a")._replace(authority=authority.path)
    with pytest.raises(ChannelRefused, match="signed by none of the authorities"):
        met(TestContexts(other).dialling(), contexts.accepting())
    with pytest.raises(ChannelRefused, match="signed by none of the authorities"):
        met(contexts.dialling(), TestContexts(other).accepting())
    older = TestContexts(authority.node("a")).dialling()
    older.minimum_version = older.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ChannelRefused, match="no version of TLS that is allowed here"):
        met(older, contexts.accepting())


def test_one_that_is_loaded_later_is_refused_as_well_and_the_former_stays(tmp_path: Path, authority: Authority) -> None:
    files, another = authority.node("a"), authority.node("b")
    given = config(tmp_path, files, "tls = true")
    contexts = contexts_of(given.tls)
    tls = link_credentials(given, contexts).tls
    assert contexts is not None and tls is not None
    before = tls.contexts.accepting()
    for wrong, right in zip(another[:2], files[:2], strict=True):
        right.write_bytes(wrong.read_bytes())
    with pytest.raises(TlsError, match=r"says txha://cluster/node/b, and with peer\.tls it must say"):
        contexts.reload()
    assert tls.contexts.accepting() is before
    again = authority.node("a")
    for wrong, right in zip(again[:2], files[:2], strict=True):
        right.write_bytes(wrong.read_bytes())
    contexts.reload()
    assert tls.contexts.accepting() is not before


def test_certificates_alone_are_enough_and_no_secret_is_looked_for(tmp_path: Path, authority: Authority) -> None:
    given = config(tmp_path, authority.node("a"), "tls = true")
    credentials = link_credentials(given, contexts_of(given.tls))
    assert credentials.secrets.accepted(PEER) == (CERTIFIED,) and credentials.secrets.accepted(READER) == (CERTIFIED,)
    assert credentials.tls is not None and credentials.tls.only


def test_both_are_required_where_both_are_set(tmp_path: Path, authority: Authority) -> None:
    secret(tmp_path / "s", SECRET)
    secret(tmp_path / "r", OTHER)
    files = authority.node("a")
    both = link_credentials(given := config(tmp_path, files, 'tls = true\nsecret = "@s"'), contexts_of(given.tls))
    assert both.secrets.accepted(PEER) == both.secrets.accepted(READER) == (SECRET.encode(),)
    given = config(tmp_path, files, 'tls = true\nread_secret = "@r"')
    readers = link_credentials(given, contexts_of(given.tls)).secrets
    assert readers.accepted(PEER) == (CERTIFIED,) and readers.accepted(READER) == (OTHER.encode(),)


@pytest.mark.parametrize(
    ("peer", "words", "said"),
    [
        ('tls = "accept"', ["certificate"], "certificate stands first only where peer.tls is true"),
        ("", [SECRET, "certificate"], "certificate stands for a secret only where there is peer.tls"),
        ('tls = "accept"', None, "there is no file"),
    ],
)
def test_what_is_said_in_clear_is_proved_by_a_secret(
    tmp_path: Path, authority: Authority, peer: str, words: list[str] | None, said: str
) -> None:
    if words is not None:
        secret(tmp_path / "cluster.secret", *words)
    given = config(tmp_path, authority.node("a"), peer)
    with pytest.raises(ConfigError, match=said):
        link_credentials(given, contexts_of(given.tls))


@pytest.mark.parametrize(
    ("peer", "environment", "default"),
    [
        ("tls = true", {}, False),
        ("tls = false", {}, True),
        ('tls = "accept"', {}, True),
        ("", {"TXHA_PEER__TLS": "true"}, False),
        ("tls = true", {"TXHA_PEER__TLS": "accept"}, True),
        ("", {"TXHA_PEER": '{"tls": true}'}, False),
    ],
)
def test_the_secret_has_a_default_unless_all_links_are_over_tls(
    tmp_path: Path, authority: Authority, peer: str, environment: dict[str, str], default: bool
) -> None:
    found = config(tmp_path, authority.node("a"), peer, environment)
    assert (found.peer.secret is not None) is default


@pytest.mark.parametrize("value", ['"prefer"', "1", "[]"])
def test_another_mode_is_refused(tmp_path: Path, authority: Authority, value: str) -> None:
    with pytest.raises(ConfigError, match=r'peer\.tls: must be true, false or "accept"'):
        config(tmp_path, authority.node("a"), f"tls = {value}")


def test_tls_without_certificates_is_refused(tmp_path: Path) -> None:
    text = TOML.partition("[tls]")[0].replace("tls_port", "port").format(peer="tls = true")
    with pytest.raises(ConfigError, match=r"peer\.tls needs the table tls, with certificate, key and authority"):
        parse_config(text, tmp_path / "node.toml", environment={})


class Log:
    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    @property
    def lines(self) -> list[str]:
        return [line for line in self._caplog.messages if "is valid until" in line]


@pytest.mark.parametrize(("days", "lines"), [(15, 0), (13.5, 1), (0.5, 1)])
def test_a_certificate_that_expires_soon_is_said_once_a_day(
    tmp_path: Path, authority: Authority, days: float, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    contexts = Contexts(TlsFiles(*authority.node("a", days=days)))
    now = clock()
    watch = CertificateWatch(strict_guard(), contexts, lambda: now)
    for _ in range(3):
        watch.look()
    found = Log(caplog)
    assert len(found.lines) == lines
    if lines:
        assert f"{int(days)} days from now" in found.lines[0] and str(contexts.files.certificate) in found.lines[0]
        now += timedelta(hours=23)
        watch.look()
        assert len(found.lines) == 1
        now += timedelta(hours=1)
        watch.look()
        assert len(found.lines) == 2


async def test_it_is_looked_at_again_and_again_until_the_node_ends(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Any] = []
    monkeypatch.setattr(CertificateWatch, "look", lambda self: looked.append(self))
    guard, later = strict_guard(), []
    monkeypatch.setattr(guard, "call_later", lambda seconds, call: later.append((seconds, call)))
    stop = watch_certificate(guard, Contexts(TlsFiles(*authority.node("a"))))
    assert len(looked) == 1 and later[0][0] == certificate_watch.LOOK_SECONDS
    later[0][1]()
    assert len(looked) == 2
    stop()
    later[1][1]()
    assert len(looked) == 2
    watch_certificate(guard, None)()
