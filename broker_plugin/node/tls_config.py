"""The table ``tls`` of a configuration: by what this node proves itself, and whose certificates it trusts."""

from __future__ import annotations

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


def contexts_of(tls: Tls | None) -> Contexts | None:
    """The certificates in force from now on; None where there are none. Raises ConfigError."""
    try:
        return None if tls is None else Contexts(tls.files)
    except TlsError as error:
        raise ConfigError(f"tls: {error}") from None
