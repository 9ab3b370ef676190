"""The table ``tls`` of a configuration: by what this node proves itself, and whose certificates it trusts."""

from __future__ import annotations

from broker_plugin.node.sources import Named
from broker_plugin.node.timing import Section
from broker_plugin.tls.files import TlsFiles


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
