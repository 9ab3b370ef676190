"""Where a node's secrets come from, which places are refused, and that none of them is shown."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from broker_plugin.amqp.protocol.introductions import (
    Carrier,
    ClientWay,
    Introduced,
    Introducer,
    IntroductionRefused,
    introduction_key,
)
from broker_plugin.node import main
from broker_plugin.node.config import SECRET_FILE, Address, ConfigError, NodeConfig, load_config
from broker_plugin.node.link_secrets import introducer_of, introductions_of, link_secrets, make_secret
from broker_plugin.node.links import Links
from ha.messages.alarms import ALARMS_FEATURE
from ha.messages.greeting import FEATURES, INTRODUCTIONS
from ha.messages.proof import PEER, READER, LinkSecrets
from tests.broker_plugin.node.starting import Reached, started_until_reached
from tests.broker_plugin.node.test_config import secret, write

ONE, TWO, READ = "1" * 40, "2" * 40, "r" * 40


def by(word: str) -> bytes:
    return word.encode()


def test_the_file_beside_the_configuration_unless_another_one_is_named(tmp_path: Path) -> None:
    secret(tmp_path / SECRET_FILE, ONE)
    secret(tmp_path / "other", f"{TWO}\n{ONE}\n")
    found = link_secrets(load_config(write(tmp_path), environment={}))
    assert found.own == by(ONE) and found.accepted(PEER) == found.accepted(READER) == (by(ONE),)
    found = link_secrets(load_config(write(tmp_path), {"peer.secret": f"@{tmp_path / 'other'}"}, {}))
    assert found.own == by(TWO) and found.accepted(PEER) == (by(TWO), by(ONE))


def test_the_environment(tmp_path: Path) -> None:
    """The secrets themselves, or the file in which they stand."""
    found = link_secrets(load_config(write(tmp_path), environment={"TXHA_PEER__SECRET": f"{TWO} {ONE}"}))
    assert found.accepted(PEER) == (by(TWO), by(ONE))
    named = f"@{secret(tmp_path / 'file', TWO)}"
    assert link_secrets(load_config(write(tmp_path), environment={"TXHA_PEER__SECRET": named})).own == by(TWO)


def test_readers_may_have_a_secret_of_their_own(tmp_path: Path) -> None:
    secret(tmp_path / SECRET_FILE, ONE)
    secret(tmp_path / "readers", READ)
    path = write(
        tmp_path,
        text="""name = "n"
cluster = "c"
dir = "{dir}"
coordination = "{dir}/c.sqlite"
[peer]
port = 1
read_secret = "@readers"
""",
    )
    found = link_secrets(load_config(path, environment={}))
    assert found.accepted(READER) == (by(READ), by(ONE)) and found.accepted(PEER) == (by(ONE),)
    (tmp_path / "readers").chmod(0o644)
    with pytest.raises(ConfigError, match=r"^peer\.read_secret: others than its owner may use"):
        link_secrets(load_config(path, environment={}))


def test_no_secret_stands_in_a_configuration_or_a_command_line(tmp_path: Path) -> None:
    """Every user sees the processes, and a TOML file may be read by all."""
    for key in ("secret", "read_secret"):
        for options, text in (({f"peer.{key}": ONE}, ""), ({}, f'{key} = "{ONE}"\n')):
            path = tmp_path / "node.toml"
            path.write_text(f'name = "n"\ncluster = "c"\ndir = "."\ncoordination = "c"\n[peer]\nport = 1\n{text}')
            with pytest.raises(ConfigError, match=f"peer.{key} names a file, as @FILE, or .*TXHA_PEER__") as found:
                load_config(path, options, {})
            assert ONE not in str(found.value)


def test_what_is_missing_or_open_to_others_is_said(tmp_path: Path) -> None:
    config = load_config(write(tmp_path), environment={})
    with pytest.raises(ConfigError, match=r"there is no file .*cluster\.secret: copy that of another node, or found"):
        link_secrets(config)
    secret(tmp_path / SECRET_FILE, ONE, 0o604)
    with pytest.raises(ConfigError, match=r"^peer\.secret: others than its owner may use") as found:
        link_secrets(config)
    assert ONE not in str(found.value)
    alone = NodeConfig(name="a", cluster="c", dir=tmp_path, coordination=tmp_path, peer=Address(port=1))
    for call in (lambda: link_secrets(alone), lambda: make_secret(alone.peer)):
        with pytest.raises(ConfigError, match=r"peer\.secret is missing"):
            call()


def test_a_secret_is_made_where_its_file_is_not(tmp_path: Path) -> None:
    config = load_config(write(tmp_path), environment={})
    assert make_secret(config.peer) == tmp_path / SECRET_FILE and make_secret(config.peer) is None
    assert len(link_secrets(config).own) == 43
    given = load_config(write(tmp_path), environment={"TXHA_PEER__SECRET": ONE})
    assert make_secret(given.peer) is None
    nowhere = load_config(write(tmp_path), {"peer.secret": f"@{tmp_path / 'nowhere' / 's'}"}, {})
    with pytest.raises(ConfigError, match=r"peer\.secret: .*nowhere/s cannot be written: No such file or directory"):
        make_secret(nowhere.peer)


def test_no_secret_is_shown(tmp_path: Path) -> None:
    config = load_config(write(tmp_path), environment={"TXHA_PEER__SECRET": ONE, "TXHA_PEER__READ_SECRET": READ})
    shown = [repr(config), str(config), str(config.model_dump()), repr(link_secrets(config)), str(vars(config.peer))]
    assert not any(word in each for each in shown for word in (ONE, READ))


def test_nodes_introduce_clients_by_the_secrets_by_which_they_link() -> None:
    """Two while one takes the other's place: a node that has begun to prove itself by the new one is believed, and so
    is one that has not. What lets the log be read introduces none."""
    nonce = b"0" * 32

    def believes(accepted: list[bytes], own: bytes) -> bool:
        line = introducer_of(LinkSecrets([own]), "b", "id").line(nonce, "a", "192.0.2.1", 1)
        try:
            return introductions_of(LinkSecrets(accepted, [by(READ)]), "a", "id").read(line, nonce).host == "192.0.2.1"
        except IntroductionRefused:
            return False

    old, new = by(ONE), by(TWO)
    steps = [[old], [old, new], [new, old], [new]]
    for before, after in pairwise(steps):
        assert believes(after, before[0]) and believes(before, after[0]), "one of them has been started anew"
    assert not believes([new], old) and not believes([old], by(READ))


def test_a_nodes_certificate_introduces_clients_where_no_secret_does() -> None:
    """Certificates stand in for the secret, for which the links have an empty one."""
    line = introducer_of(LinkSecrets([b""]), "b", "id").line(b"0" * 32, "a", "192.0.2.1", 1, ClientWay(True))
    by_certificate, by_secret = (introductions_of(LinkSecrets([each]), "a", "id") for each in (b"", by(ONE)))
    assert by_certificate.read(line, b"0" * 32, Carrier(True, "b")).host == "192.0.2.1"
    empty = Introducer("b", introduction_key(b"", "id")).line(b"0" * 32, "a", "192.0.2.1", 1, ClientWay(True))
    for wrong, carrier in ((line, Carrier(True)), (empty, Carrier(True, "b")), (empty, Carrier(True))):
        with pytest.raises(IntroductionRefused):
            by_certificate.read(wrong, b"0" * 32, carrier)
    with pytest.raises(IntroductionRefused):
        by_secret.read(line, b"0" * 32, Carrier(True, "b"))


async def test_a_node_greets_as_one_that_is_told_where_clients_come_from_and_of_alarms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listens(*parts: object) -> None:
        raise Reached

    monkeypatch.setattr(main, "AdminServer", listens)
    monkeypatch.setattr(Links, "start", nothing_yet)
    node = await started_until_reached(tmp_path)
    hello = node.links.hello
    assert hello.features == sorted([ALARMS_FEATURE, INTRODUCTIONS, *FEATURES])
    line = introducer_of(node._credentials.secrets, "b", hello.cluster_id).line(b"0" * 32, "a", "192.0.2.1", 1)
    assert node.clients.arrivals.introductions.read(line, b"0" * 32) == Introduced("b", "192.0.2.1", 1)
    node._coordination.close = lambda: None
    await node._started.aclose()


async def nothing_yet(links: Links, host: str, port: int) -> None:
    """No other node can reach it, and it dials none."""
