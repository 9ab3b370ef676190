"""The table ``tls`` of a configuration: by what this node proves itself, and whose certificates it trusts."""

from __future__ import annotations

from collections.abc import Sequence

from broker_plugin.node.amqp_config import Amqp
from broker_plugin.node.sources import ConfigError, Named
from broker_plugin.node.timing import Section
from broker_plugin.tls.contexts import Contexts
from broker_plugin.tls.files import TlsError, TlsFiles


class Tls(Section):
    """Three files in PEM. ``certificate``: this node's, with those between it and its authority behind it;
    ``authority``: the certificates of the authorities whose certificates are trusted."""

    certificate: Named
    key: Named
    authority: Named

    @property
    def files(self) -> TlsFiles:
        """The three of them."""
        return TlsFiles(self.certificate, self.key, self.authority)


def check_tls(tls: Tls | None, amqp: Amqp, listeners: Sequence[str], others: Sequence[str]) -> None:
    """Refuse keys that need the table ``tls`` where there is none, and a table that nothing needs.

    ``listeners``: the keys by which listeners for clients are encrypted, beside ``amqp.tls_port``; ``others``: those
    by which anything else is. Raises ValueError.
    """
    clients = [*([] if amqp.tls_port is None else ["amqp.tls_port"]), *listeners]
    if tls is None and (needs := [*clients, *others]):
        raise ValueError(f"{needs[0]} needs the table tls, with certificate, key and authority")
    if tls is not None and not clients and not others:
        raise ValueError("the table tls has no effect: set amqp.tls_port, peer.tls, or tls where a listener has it")
    if amqp.client_certificates != "ignore" and not clients:
        raise ValueError("amqp.client_certificates has no effect: no client connects with TLS; set amqp.tls_port")


def contexts_of(tls: Tls | None) -> Contexts | None:
    """The certificates in force from now on; None where there are none. Raises ConfigError."""
    try:
        return None if tls is None else Contexts(tls.files)
    except TlsError as error:
        raise ConfigError(f"tls: {error}") from None
