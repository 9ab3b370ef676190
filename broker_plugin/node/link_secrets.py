"""By what secrets a node and the readers of its log prove themselves, from where its configuration says they are."""

from __future__ import annotations

from pathlib import Path

from pydantic import SecretStr

from broker_plugin.amqp.protocol.introductions import Introducer, Introductions, introduction_key
from broker_plugin.node.config import Address, ConfigError, NodeConfig
from ha.messages.proof import CERTIFIED, LinkSecrets
from recovery.secret_file import BY_CERTIFICATE, MARK, SecretFileError, make_link_secret, read_link_secrets

MISSING = (
    "peer.secret is missing, by which the nodes of a cluster prove themselves to each other: name its file, "
    '`secret = "@FILE"` under [peer], or set TXHA_PEER__SECRET'
)


def link_secrets(config: NodeConfig) -> LinkSecrets:
    """Of this node, now. Raises ConfigError, which tells nothing of them."""
    path = _file(config.peer)
    if path is not None and not path.exists():
        raise ConfigError(
            f"peer.secret: there is no file {path}: copy that of another node, or found cluster {config.cluster} with "
            "`txha init`, which makes it; a cluster that was founded before there were secrets is given one as "
            "docs/upgrading.md says"
        )
    peer = config.peer
    readers = () if peer.read_secret is None else _read("peer.read_secret", peer.read_secret)
    if CERTIFIED in readers:
        raise ConfigError("peer.read_secret: a reader's certificate stands in for it where it is not given at all")
    if peer.tls is True and peer.secret is None:
        return LinkSecrets([CERTIFIED], readers)
    found = _read("peer.secret", _given(peer))
    if found[0] == CERTIFIED and peer.tls is not True:
        raise ConfigError(f"peer.secret: {BY_CERTIFICATE} stands first only where peer.tls is true")
    if CERTIFIED in found and peer.tls is False:
        raise ConfigError(f"peer.secret: {BY_CERTIFICATE} stands for a secret only where there is peer.tls")
    return LinkSecrets(found, readers)


def make_secret(peer: Address) -> Path | None:
    """Make the file of the cluster's secret, if it is not there; returns its path if so. Raises ConfigError."""
    path = _file(peer)
    try:
        return path if path is not None and make_link_secret(path) else None
    except OSError as error:
        raise ConfigError(f"peer.secret: {path} cannot be written: {error.strerror}") from error


def introducer_of(secrets: LinkSecrets, node: str, cluster_id: str) -> Introducer:
    """What tells the primary where clients come from; it proves itself by the same secret as on a link, or by the
    node's certificate."""
    return Introducer(node, introduction_key(secrets.own, cluster_id) if secrets.own != CERTIFIED else None)


def introductions_of(secrets: LinkSecrets, node: str, cluster_id: str) -> Introductions:
    """Of other nodes to this one, which believes each secret by which they may link, and certificates where those
    stand in for it."""
    keys = [introduction_key(secret, cluster_id) for secret in secrets.shared]
    return Introductions(node, keys, secrets.by_certificate)


def _given(peer: Address) -> SecretStr:
    if peer.secret is None:
        raise ConfigError(MISSING)
    return peer.secret


def _file(peer: Address) -> Path | None:
    """Where the secret stands; None where it has been given itself."""
    if peer.tls is True and peer.secret is None:
        return None
    given = _given(peer).get_secret_value()
    return Path(given[len(MARK) :]) if given.startswith(MARK) else None


def _read(key: str, given: SecretStr) -> tuple[bytes, ...]:
    try:
        return read_link_secrets(given.get_secret_value())
    except SecretFileError as error:
        raise ConfigError(f"{key}: {error}") from None
