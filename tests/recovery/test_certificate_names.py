"""Whose a certificate is, by its URI."""

from __future__ import annotations

import pytest

from recovery.certificate_names import (
    CertificateName,
    common_name,
    name_of_peer,
    name_of_uris,
    names_a_client,
    node_shown,
)


@pytest.mark.parametrize("name", ["node-1", "a b/c?d#e%41", "Zoë", "..", "txha://x/node/y"])
def test_a_name_comes_back_as_it_was(name: str) -> None:
    for kind in ("node", "reader", "client"):
        whose = CertificateName(kind, f"c/{name}", name)
        assert whose.uri.isascii()
        assert name_of_uris(["https://example.org", whose.uri]) == whose


def test_none_where_no_uri_is_ours() -> None:
    assert name_of_uris(["https://example.org/node/n"]) is None
    assert name_of_peer({}) is None
    assert name_of_peer({"subjectAltName": (("DNS", "txha://c/node/n"),)}) is None


@pytest.mark.parametrize(
    "uris",
    [
        *(["txha://c/node/n", "txha://c/node/m"], ["txha://c/node/n", "txha://c/node/n"], ["txha://c/node"]),
        *(["txha://c/node/"], ["txha:///node/n"], ["txha://c/king/n"], ["TXHA://c/node/n"], ["txha:c"]),
        *(["txha://c/node/n/m"], ["txha://c/node/n?x"], ["txha://c/node/n\n"], ["txha://c/node/%ff"]),
        *(["txha://c/node/%6e"], ["txha://c/node/n%2fm"], ["txha://c/node/a b"]),
    ],
)
def test_what_is_written_otherwise_is_refused(uris: list[str]) -> None:
    with pytest.raises(ValueError, match="the certificate"):
        name_of_uris(uris)


def test_the_common_name_is_one() -> None:
    one = (("organizationName", "c"),), (("commonName", "bob"),)
    assert common_name({"subject": one}) == "bob"
    assert common_name({"subject": (*one, (("commonName", "eve"),))}) is None
    assert common_name({}) is None


def shown(*uris: str) -> dict[str, object]:
    return {"subjectAltName": tuple(("URI", uri) for uri in uris)}


def test_a_node_of_the_cluster_is_what_its_uri_says_and_nothing_else() -> None:
    node, client = CertificateName("node", "c", "n").uri, CertificateName("client", "c", "n").uri
    reader, other = CertificateName("reader", "c", "n").uri, CertificateName("node", "d", "n").uri
    assert node_shown(shown(node), "c") == "n"
    for certificate in (shown(client), shown(reader), shown(other), shown(node, node), shown(), {}, None):
        assert node_shown(certificate, "c") is None
    assert [names_a_client([uri], "c") for uri in (client, node, reader)] == [True, False, False]
    assert names_a_client([], "c") and names_a_client(["https://example.org"], "c")
    assert not names_a_client([CertificateName("client", "d", "n").uri], "c")
    assert not names_a_client([client, client], "c") and not names_a_client(["txha:x"], "c")
