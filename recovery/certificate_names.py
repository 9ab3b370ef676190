"""What a certificate says of its owner: of which cluster it is, whether a node, a reader of the log or a client.

It stands in the certificate as one URI among the alternative names, ``txha://CLUSTER/KIND/NAME``, with CLUSTER and NAME
in percent-encoding. Only this makes a certificate that of a node or of a reader: a common name, or who has signed, does
not. So a client's certificate never passes as a node's, nor does one of another cluster that has the same authority. A
certificate without such a URI is a client's, of people who have an authority of their own.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

NODE: Final = "node"
READER: Final = "reader"
CLIENT: Final = "client"
KINDS: Final = (NODE, READER, CLIENT)
SCHEME: Final = "txha:"
_URI = re.compile(r"txha://([^/?#]+)/(node|reader|client)/([^/?#]+)")


class CertificateName(NamedTuple):
    """``kind`` is one of ``KINDS``; ``name`` that of the node, the reader or the user."""

    kind: str
    cluster: str
    name: str

    @property
    def uri(self) -> str:
        """As it stands in the certificate."""
        return f"txha://{quote(self.cluster, safe='')}/{self.kind}/{quote(self.name, safe='')}"


def name_of_uris(uris: Sequence[str]) -> CertificateName | None:
    """What the URIs of a certificate say; None where none is txha's.

    Raises ValueError, with one sentence, for more than one of txha's, and for one that is not as it is written here.
    """
    ours = [uri for uri in uris if uri.lower().startswith(SCHEME)]
    if not ours:
        return None
    found = _URI.fullmatch(ours[0])
    if len(ours) > 1 or found is None:
        raise ValueError("the certificate must have one URI txha://CLUSTER/KIND/NAME among its alternative names")
    try:
        name = CertificateName(found[2], unquote(found[1], errors="strict"), unquote(found[3], errors="strict"))
    except UnicodeDecodeError:
        raise ValueError("the URI txha://CLUSTER/KIND/NAME of the certificate is not UTF-8") from None
    if name.uri != ours[0]:  # one name has one form
        raise ValueError(f"the URI of the certificate must be written as {name.uri}")
    return name


def name_of_peer(certificate: Mapping[str, Any]) -> CertificateName | None:
    """The same of a verified certificate as ``ssl.SSLSocket.getpeercert()`` tells it. Raises ValueError."""
    return name_of_uris([str(value) for kind, value in certificate.get("subjectAltName", ()) if kind == "URI"])


def common_name(certificate: Mapping[str, Any]) -> str | None:
    """The common name of a verified certificate's subject; None where it has none, or several."""
    found = [value for part in certificate.get("subject", ()) for kind, value in part if kind == "commonName"]
    return str(found[0]) if len(found) == 1 else None


def names_a_client(uris: Sequence[str], cluster: str) -> bool:
    """Whether a certificate with these URIs may stand for a user of this cluster; one without txha's may."""
    try:
        found = name_of_uris(uris)
    except ValueError:
        return False
    return found is None or (found.kind, found.cluster) == (CLIENT, cluster)


def node_shown(certificate: Mapping[str, Any] | None, cluster: str) -> str | None:
    """Which node of this cluster a verified certificate is of; None for all others, malformed ones too."""
    try:
        found = name_of_peer(certificate or {})
    except ValueError:
        return None
    return found.name if found is not None and (found.kind, found.cluster) == (NODE, cluster) else None
