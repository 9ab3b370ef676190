"""Introductions: a node that passes a client on says where the client comes from, before its first byte.

    passing node -> primary    TXHA 1 ? CR LF
    primary -> passing node    TXHA 1 <nonce> CR LF
    passing node -> primary    TXHA 1 <passing node> <primary> <host> <port> <proof> CR LF, then what the client says
                           or  TXHA 2 <passing node> <primary> <host> <port> <tls|clear> <name> <proof> CR LF, then ...

The second form is for connections between nodes that are encrypted: it says too whether the client's own is, and which
name the passing node has verified in the client's certificate (``-`` for none, else in percent-encoding).

Only nodes of the cluster can make the last line: its proof is an HMAC-SHA256 over the nonce and all before it, by a key
that they derive from the cluster's secret (``introduction_key``). The nonce is of this connection, so a line that was
captured is worth nothing on another one, whether the primary has read it or not. It names the primary, so who listens
in the place of another node cannot have a node answer the primary's nonce for it. A client that sends a line of its own
making is closed. Where nodes have no secret, the word ``certificate`` stands in the place of the proof: the connection
is encrypted, and the certificate that the other end has shown is that of the passing node.

Pure: the nonce is random, and the shell draws it.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

ASK: Final = b"TXHA 1 ?\r\n"
"""How a node that passes a client on begins; a client begins with AMQP's header."""
LONGEST_LINE: Final = 2048
"""Bytes of any of these lines"""
_END: Final = b"\r\n"
_PLAIN = re.compile(r"[!-~]{1,255}")
_CHALLENGE = re.compile(rb"TXHA 1 ([0-9a-f]{32})\r\n")
_LINE = re.compile(rb"TXHA 1 ([!-~]{1,255}) ([!-~]{1,255}) ([!-~]{1,64}) (\d{1,5}) ()()([0-9a-f]{64})\r\n")
_WITH_WAY = re.compile(
    rb"TXHA 2 ([!-~]{1,255}) ([!-~]{1,255}) ([!-~]{1,64}) (\d{1,5}) (tls|clear) ([!-~]{1,1024}) "
    rb"([0-9a-f]{64}|certificate)\r\n"
)
LONGEST_CERTIFIED: Final = 1024
"""Octets of the name in a client's certificate, in percent-encoding. No user has a longer one, so none is told."""
_NONE: Final = "-"
_BY_CERTIFICATE: Final = b"certificate"


class Carrier(NamedTuple):
    """The connection by which an introduction comes: whether it is encrypted, and which node's certificate the other
    end has shown."""

    encrypted: bool = False
    node: str | None = None


class ClientWay(NamedTuple):
    """How a client has come to the passing node: whether encrypted, and with which name in its verified certificate."""

    encrypted: bool = False
    certified: str | None = None


class Introduced(NamedTuple):
    """Where a client comes from, as ``node`` has it, and how it has come there."""

    node: str
    host: str
    port: int
    way: ClientWay = ClientWay()

    @property
    def peer(self) -> str:
        """The client's name in logs."""
        return f"{self.host}:{self.port} through {self.node}"


class IntroductionRefused(Exception):
    """Raised for what no node of this cluster has said on this connection."""


def introduction_key(secret: bytes, cluster_id: str) -> bytes:
    """The key by which nodes introduce clients, from a secret that only nodes know."""
    return hmac.digest(secret, b"txha introduces clients of " + cluster_id.encode(), "sha256")


class Introducer:
    """Makes the lines of one node. ``key`` None: its certificate proves them, on encrypted connections alone."""

    def __init__(self, node: str, key: bytes | None) -> None:
        self._node = _plain(node)
        self._key = key

    @property
    def by_certificate(self) -> bool:
        """Whether it can say nothing in clear."""
        return self._key is None

    def line(self, nonce: bytes, primary: str, host: str, port: int, way: ClientWay | None = None) -> bytes:
        """For a client that comes from there, and is passed on to this primary, which has said ``nonce``.

        ``way`` is told where it is given: only on a connection that is encrypted.
        """
        shown = host.split("%")[0]  # the zone of an address of IPv6 means nothing elsewhere
        assert way is not None or self._key is not None, "there is no proof in clear without a secret"
        said = "" if way is None else f"{'tls' if way.encrypted else 'clear'} {_certified(way.certified)} "
        text = f"TXHA {1 if way is None else 2} {self._node} {_plain(primary)} {shown} {port} {said}".encode()
        return text + (_BY_CERTIFICATE if self._key is None else _proof(self._key, nonce, text)) + _END


class Introduction:
    """The passing node's part in one connection, for a client that comes from there. It begins with ``ASK``."""

    def __init__(
        self, introducer: Introducer, primary: str, host: str, port: int, way: ClientWay | None = None
    ) -> None:
        self._introducer = introducer
        self._primary = primary
        self._client = host, port
        self._way = way
        self._partial = b""

    def take(self, data: bytes) -> bytes | None:
        """What the primary says; the line that answers it, None while that is not whole. Raises IntroductionRefused."""
        self._partial += data
        if not _whole(self._partial):
            return None
        found = _CHALLENGE.fullmatch(self._partial)
        if found is None:
            raise IntroductionRefused("the primary asks for no introduction")
        return self._introducer.line(found[1], self._primary, *self._client, self._way)


class Introductions:
    """Reads the lines that are for ``node``. ``keys``: any of them proves one; two while a secret is replaced.

    ``certificates``: the passing node's certificate proves it as well, where nodes have no secret.
    """

    def __init__(self, node: str, keys: Sequence[bytes], certificates: bool = False) -> None:
        self._node = _plain(node)
        self._keys = tuple(keys)
        self._certificates = certificates

    @property
    def believed(self) -> bool:
        """Whether there is any line that is believed."""
        return bool(self._keys) or self._certificates

    def read(self, line: bytes, nonce: bytes, carrier: Carrier = Carrier()) -> Introduced:  # noqa: B008 -- a tuple
        """Who is introduced by this line, which answers this nonce. Raises IntroductionRefused."""
        found = _LINE.fullmatch(line) or _WITH_WAY.fullmatch(line)
        if found is None:
            raise IntroductionRefused("its introduction is none that a node makes")
        node, primary, host, port, way, certified, proof = (each.decode() for each in found.groups())
        self._check_proof(line[: found.start(7)], nonce, proof.encode(), node, carrier)
        if primary != self._node:
            raise IntroductionRefused(f"its introduction is for node {primary}, not for this one")
        if way and not carrier.encrypted:
            raise IntroductionRefused("its introduction is one for an encrypted connection, and this is none")
        return Introduced(node, host, int(port), _way_of(way, certified))

    def _check_proof(self, text: bytes, nonce: bytes, proof: bytes, node: str, carrier: Carrier) -> None:
        if carrier.node is not None and _plain(carrier.node) != node:
            raise IntroductionRefused(f"it introduces as {node}, and its certificate is that of node {carrier.node}")
        if proof == _BY_CERTIFICATE:
            if not (self._certificates and carrier.encrypted and carrier.node is not None):
                raise IntroductionRefused("its introduction is not proved by the certificate of a node")
            return
        proofs = [_proof(key, nonce, text) for key in self._keys]
        if not any(hmac.compare_digest(each, proof) for each in proofs):
            raise IntroductionRefused("its introduction is not proved by the secret of this cluster")


class Beginning(NamedTuple):
    """What comes of some bytes at the beginning of a connection. ``rest``: what is for the broker."""

    answer: bytes = b""
    introduced: Introduced | None = None
    rest: bytes = b""


class Reception:
    """The beginning of one connection, where it comes to: a client's own, or one that a node introduces first.

    ``over``: what comes from now on is for the broker. ``asked``: a node has announced that it introduces a client.
    """

    def __init__(
        self,
        introductions: Introductions,
        draw_nonce: Callable[[], bytes],
        carrier: Carrier = Carrier(),  # noqa: B008 -- a tuple
    ) -> None:
        self.carrier = carrier
        self.over = False
        self.asked = False
        self.so_far = b""
        """What has come and is not taken yet"""
        self._introductions = introductions
        self._draw_nonce = draw_nonce
        self._nonce = b""

    def take(self, data: bytes) -> Beginning:
        """These bytes have come. Raises IntroductionRefused."""
        self.so_far += data
        answer = b""
        if not self.asked:
            if len(self.so_far) < len(ASK) and ASK.startswith(self.so_far):
                return Beginning()
            if not self.so_far.startswith(ASK):
                return Beginning(rest=self._end(0))
            if not self._introductions.believed:
                raise IntroductionRefused("no introductions are believed here")
            self.asked = True
            self.so_far = self.so_far[len(ASK) :]
            self._nonce = self._draw_nonce()
            answer = b"TXHA 1 " + self._nonce + _END
        if not _whole(self.so_far):
            return Beginning(answer)
        end = self.so_far.index(_END) + len(_END)
        introduced = self._introductions.read(self.so_far[:end], self._nonce, self.carrier)
        return Beginning(answer, introduced, self._end(end))

    def _end(self, at: int) -> bytes:
        self.over, self.asked = True, False
        rest, self.so_far = self.so_far[at:], b""
        return rest


def _whole(data: bytes) -> bool:
    """Whether there is a line. Raises IntroductionRefused where it has no end."""
    if _END in data[:LONGEST_LINE]:
        return True
    if len(data) >= LONGEST_LINE:
        raise IntroductionRefused("its introduction has no end")
    return False


def _plain(node: str) -> str:
    return node if _PLAIN.fullmatch(node) else node.encode().hex()[:255] or "-"


def _certified(name: str | None) -> str:
    """As it stands in a line; as none where it is too long."""
    if name is None:
        return _NONE
    said = quote(name, safe="") if name != _NONE else "%2D"
    return said if 0 < len(said) <= LONGEST_CERTIFIED else _NONE


def _way_of(way: str, certified: str) -> ClientWay:
    """What a line says of it. Raises IntroductionRefused."""
    if certified in ("", _NONE):
        return ClientWay(way == "tls")
    try:
        name = unquote(certified, errors="strict")
    except UnicodeDecodeError:
        name = ""
    if way != "tls" or _certified(name) != certified:
        raise IntroductionRefused("its introduction is none that a node makes")
    return ClientWay(True, name)


def _proof(key: bytes, nonce: bytes, text: bytes) -> bytes:
    return hmac.digest(key, nonce + b" " + text, "sha256").hex().encode()
