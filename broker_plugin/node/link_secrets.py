"""By what secrets a node and the readers of its log prove themselves, from where its configuration says they are."""

from __future__ import annotations

from pathlib import Path

from pydantic import SecretStr

from broker_plugin.amqp.protocol.introductions import Introducer, Introductions, introduction_key
from broker_plugin.node.config import Address, ConfigError, NodeConfig
from ha.messages.proof import PEER, LinkSecrets
from recovery.secret_file import MARK, SecretFileError, make_link_secret, read_link_secrets

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
    return LinkSecrets(_read("peer.secret", _given(peer)), readers)


def make_secret(peer: Address) -> Path | None:
    """Make the file of the cluster's secret, if it is not there; returns its path if so. Raises ConfigError."""
    path = _file(peer)
    try:
        return path if path is not None and make_link_secret(path) else None
    except OSError as error:
        raise ConfigError(f"peer.secret: {path} cannot be written: {error.strerror}") from error


def introducer_of(secrets: LinkSecrets, node: str, cluster_id: str) -> Introducer:
    """What tells the primary where clients come from; it proves itself by the same secret as on a link.

    Where there is none, since certificates stand in for it, by this node's certificate.
    """
    return Introducer(node, introduction_key(secrets.own, cluster_id) if secrets.own else None)


def introductions_of(secrets: LinkSecrets, node: str, cluster_id: str) -> Introductions:
    """Of other nodes to this one, which believes each secret by which they may link; else a node's certificate."""
    keys = [introduction_key(secret, cluster_id) for secret in secrets.accepted(PEER) if secret]
    return Introductions(node, keys, certificates=not keys)


def _given(peer: Address) -> SecretStr:
    if peer.secret is None:
        raise ConfigError(MISSING)
    return peer.secret


def _file(peer: Address) -> Path | None:
    """Where the secret stands; None where it has been given itself."""
    given = _given(peer).get_secret_value()
    return Path(given[len(MARK) :]) if given.startswith(MARK) else None


def _read(key: str, given: SecretStr) -> tuple[bytes, ...]:
    try:
        return read_link_secrets(given.get_secret_value())
    except SecretFileError as error:
        raise ConfigError(f"{key}: {error}") from None
