"""What a node goes by on its links, from its configuration; its own certificate is tried on itself first.

So a certificate that no other node would believe is found where it was given, and not in the logs of the others.
"""

from __future__ import annotations

from functools import partial

from broker_plugin.node.config import ConfigError, NodeConfig
from broker_plugin.node.link_secrets import link_secrets
from broker_plugin.node.link_tls import LinkTls
from broker_plugin.node.links import LinkCredentials
from broker_plugin.tls.contexts import CertificatesInForce, Contexts
from broker_plugin.tls.files import TlsError
from recovery.certificate_names import NODE, CertificateName
from recovery.tls_channel import ChannelRefused, TlsChannel


def link_credentials(config: NodeConfig, contexts: Contexts | None) -> LinkCredentials:
    """Of this node, now. Raises ConfigError."""
    secrets = link_secrets(config)
    if config.peer.tls is False or contexts is None:
        return LinkCredentials(secrets)
    try:
        check_own(config, contexts.in_force)
    except TlsError as error:
        raise ConfigError(str(error)) from None
    contexts.check = partial(check_own, config)
    return LinkCredentials(secrets, tls=LinkTls(contexts, config.cluster, config.peer.tls is True))


def check_own(config: NodeConfig, in_force: CertificatesInForce) -> None:
    """Raises TlsError for a certificate by which this node could not link, where its links are over TLS."""
    if config.peer.tls is False:
        return
    wanted = CertificateName(NODE, config.cluster, config.name)
    try:
        found = _shown_to_itself(in_force)
    except ChannelRefused as error:
        raise TlsError(f"tls.certificate makes no links (peer.tls): {error}") from None
    if found != wanted:
        says = "has no URI of txha" if found is None else f"says {found.uri}"
        raise TlsError(f"tls.certificate {says}, and with peer.tls it must say {wanted.uri}: make one for this node")


def _shown_to_itself(in_force: CertificatesInForce) -> CertificateName | None:
    """The name in the certificate, where both ends of a link accept it. Raises ChannelRefused."""
    dialler, listener = TlsChannel(in_force.dialling, False), TlsChannel(in_force.accepting, True)
    dialler.begin()
    while not (dialler.established and listener.established):
        listener.take(dialler.outgoing())
        dialler.take(listener.outgoing())
    return dialler.name
