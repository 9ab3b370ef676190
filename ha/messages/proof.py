"""Proof: before anything else is said, both ends of a connection show each other that they know one secret.

    listener -> dialler    challenge: "txha", version (1 byte), nonce (32)
    dialler  -> listener   answer:    "txha", version, purpose (1), nonce (32), proof (32)
    listener -> dialler    counter-proof (32)

Each has its length in front (4 bytes, big endian), as all messages of a link. Neither end says the cluster's name or
id, or a node's name, before both have proved themselves: they stand in the greetings, which are the first messages
under the seals (``ha.messages.seals``), with versions and features.

Proofs and keys come out of one root by HKDF (RFC 5869, HMAC-SHA256), each by a label that names its role or direction.
The root is made of the secret and of the hash of challenge and answer, so it is of these two nonces, this version and
this purpose: what was captured of another connection is worth nothing here, what one end says cannot be turned round to
it, and what a reader proves does not make it a peer. The listener answers with the secret that the dialler has proved
to know. So two secrets can be valid while one takes the other's place.

Over TLS the certificates of both ends can stand in for the secret: then ``CERTIFIED`` is proved in its place, which
is no secret, and messages are framed and not sealed. It counts nowhere else. A listener that speaks TLS only says
``ONLY_TLS`` to one that waits for its challenge.

Pure: nonces come from the shell, and must be random.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import NamedTuple

from ha.messages.framing import Framer, Unframer
from ha.messages.seals import LENGTH, Sealer, Unsealer, hash_of

PROOF_VERSION = 1
NONCE, PROOF = 32, 32
"""Bytes"""
MAX_UNPROVEN = 256
"""Bytes of a message before both ends have proved themselves: who has not fills no memory"""
PEER, READER = 1, 2
"""Purposes: another node, and a reader of the log"""
SHORTEST_SECRET = 32
"""Characters; one that can be guessed could be found from a captured proof"""
CERTIFIED = b""
"""Stands in the place of a secret where certificates prove who both ends are; no secret is empty"""
_MARK = b"txha"
ONLY_TLS = LENGTH.pack(len(_MARK) + 1) + _MARK + b"T"
"""As it is sent; version 0.1.0 takes it for a proof of another version"""
_CHALLENGE = len(_MARK) + 1 + NONCE
_ANSWER = _CHALLENGE + 1
_WITHOUT_PROOF = range(0x90, 0xA0)
"""How greetings of versions before 0.1.0 begin, which are msgpack arrays"""
_SECRETS_OF = {PEER: "peer.secret", READER: "peer.read_secret"}


class LinkSecrets:
    """What a node goes by: ``peer`` are the secrets of the cluster, ``reader`` those that only let the log be read.

    The node proves itself by the first of ``peer``, and believes who proves itself by any of them.
    """

    def __init__(self, peer: Sequence[bytes], reader: Sequence[bytes] = ()) -> None:
        self.own = peer[0]
        real = tuple(secret for secret in peer if secret != CERTIFIED)
        self._accepted = {PEER: tuple(peer), READER: (*reader, *(real or () if reader else peer))}
        self.shared = real
        """Those that only nodes of the cluster know"""
        self.by_certificate = CERTIFIED in peer
        """Whether certificates stand in for them"""

    def accepted(self, purpose: int) -> tuple[bytes, ...]:
        """Those by which it can be proved; none for a purpose that is not known."""
        return self._accepted.get(purpose, ())

    def __repr__(self) -> str:
        return "LinkSecrets(not shown)"


class LinkSession(NamedTuple):
    """What both ends have agreed on when they have proved themselves."""

    purpose: int
    sealer: Sealer
    unsealer: Unsealer


class ListenerProof:
    """The listener's part in one connection; ``opening`` is its challenge."""

    def __init__(self, secrets: LinkSecrets, nonce: bytes, certified: bool = False) -> None:
        self.opening = _MARK + bytes([PROOF_VERSION]) + nonce
        self._secrets = secrets
        self._certified = certified

    def take(self, message: bytes) -> tuple[bytes, LinkSession | None]:
        """The dialler's answer; returns the counter-proof. Raises ValueError for another one."""
        _check_beginning(message, _ANSWER + PROOF)
        answer, proof = message[:_ANSWER], message[_ANSWER:]
        purpose = answer[len(_MARK) + 1]
        accepted = self._secrets.accepted(purpose)
        for secret in accepted:
            root = _Root(secret, self.opening + answer)
            if hmac.compare_digest(root.of("proof of the dialler"), proof) and (secret or self._certified):
                return root.of("proof of the listener"), root.session(purpose, "to the dialler", "to the listener")
        key = _SECRETS_OF.get(purpose, "of no purpose")
        if accepted == (CERTIFIED,):
            raise ValueError(f"it proves a secret ({key}), and this node goes by certificates alone: give it to both")
        if hmac.compare_digest(_Root(CERTIFIED, self.opening + answer).of("proof of the dialler"), proof):
            raise ValueError(
                f"it goes by its certificate alone, and this node by a secret too ({key}): give it to both"
            )
        raise ValueError(f"it does not know the secret of this cluster ({key})")


class DiallerProof:
    """The dialler's part in one connection, for this purpose. It says nothing before the listener does."""

    opening = b""

    def __init__(self, secret: bytes, purpose: int, nonce: bytes) -> None:
        self._secret = secret
        self._purpose = purpose
        self._nonce = nonce
        self._root: _Root | None = None

    def take(self, message: bytes) -> tuple[bytes, LinkSession | None]:
        """The challenge, then the counter-proof; returns the answer, then nothing. Raises ValueError for others."""
        root = self._root
        if root is None:
            _check_beginning(message, _CHALLENGE)
            answer = _MARK + bytes([PROOF_VERSION, self._purpose]) + self._nonce
            self._root = root = _Root(self._secret, message + answer)
            return answer + root.of("proof of the dialler"), None
        if not hmac.compare_digest(root.of("proof of the listener"), message):
            raise ValueError("it does not know the secret of this cluster")
        return b"", root.session(self._purpose, "to the listener", "to the dialler")


class _Root:
    """HKDF: what this secret leads to with this challenge and answer."""

    def __init__(self, secret: bytes, said: bytes) -> None:
        self._key = hmac.digest(hash_of(b"txha link" + said), secret, "sha256")
        self._certified = secret == CERTIFIED

    def of(self, label: str) -> bytes:
        """The one block of this label: 32 bytes."""
        return hmac.digest(self._key, label.encode() + b"\x01", "sha256")

    def session(self, purpose: int, sent: str, received: str) -> LinkSession:
        """With the keys of these labels; without keys where there is no secret."""
        if self._certified:
            return LinkSession(purpose, Framer(), Unframer())
        return LinkSession(purpose, Sealer(self.of(sent)), Unsealer(self.of(received)))


def _check_beginning(message: bytes, size: int) -> None:
    """Raises ValueError for what is no challenge or answer."""
    if message[:1] and message[0] in _WITHOUT_PROOF:
        raise ValueError("it greets without a proof, as versions before 0.1.0 do: upgrade it, and give it the secret")
    if message[: len(_MARK)] != _MARK:
        raise ValueError("it does not prove who it is")
    if message == ONLY_TLS[LENGTH.size :]:
        raise ValueError("it speaks TLS only (peer.tls), and here it is to be read or linked without")
    if message[len(_MARK) : len(_MARK) + 1] != bytes([PROOF_VERSION]):
        raise ValueError("it proves itself as another version of txha does: upgrade the older one")
    if len(message) != size:
        raise ValueError(f"its proof has {len(message)} bytes, not {size}")
