"""What is kept instead of a password, and whether a password is the one.

    $scrypt$ln=14,r=8,p=1$<salt>$<digest>              base64 without padding; what is made today (RFC 7914)
    $sha256$<salt>$<digest>                            hexadecimal; what `txha hash-password` before 0.1.0 printed
    rabbit_password_hashing_sha256$<salt and digest>   base64 of 4 octets of salt and the digest over salt and password
    rabbit_password_hashing_sha512$<salt and digest>   the same; RabbitMQ says them in its definitions

The others are verified, and a node makes them anew at the first login. ``scrypt`` is slow on purpose, so it is never
asked for on a node's loop (``broker_plugin.amqp.password_pool``). Pure: salts are drawn by the caller.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from typing import Final, NamedTuple

SALT_BYTES: Final = 16
"""Of a salt, drawn for each password"""
LOG2_N: Final = 14
BLOCK: Final = 8
LANES: Final = 1
"""The cost of what is made: 16 MiB, and about 50 ms"""
DIGEST_BYTES: Final = 32
MOST_LOG2_N: Final = 17
MOST_BLOCK: Final = 16
MOST_LANES: Final = 8
"""What a hash may ask for: no operator's file makes a login take a node's memory"""
MOST_MEMORY: Final = 512 << 20
"""Bytes that scrypt may take for these"""

_SCRYPT = re.compile(r"\$scrypt\$ln=(\d{1,2}),r=(\d{1,2}),p=(\d{1,2})\$([A-Za-z0-9+/]{16,86})\$([A-Za-z0-9+/]{22,86})")
_SHA256 = re.compile(r"\$sha256\$((?:[0-9a-f]{2}){16,})\$([0-9a-f]{64})")
_RABBITMQ = re.compile(r"rabbit_password_hashing_(sha256|sha512)\$([A-Za-z0-9+/]{20,}={0,2})")
RABBITMQ_SALT: Final = 4
RABBITMQ_SHA256: Final = "rabbit_password_hashing_sha256"
RABBITMQ_HASHES: Final = (RABBITMQ_SHA256, "rabbit_password_hashing_sha512")
"""What RabbitMQ calls the kinds of its hashes that are verified here; the first is meant where it says none"""


class _Scrypt(NamedTuple):
    """The parts of a hash by scrypt."""

    log2_n: int
    block: int
    lanes: int
    salt: bytes
    digest: bytes


def new_hash(password: str, salt: bytes) -> str:
    """The text that is kept of a password. ``salt``: SALT_BYTES that were drawn for it. Takes about 50 ms."""
    digest = _scrypt(password, _Scrypt(LOG2_N, BLOCK, LANES, salt, bytes(DIGEST_BYTES)))
    return f"$scrypt$ln={LOG2_N},r={BLOCK},p={LANES}${_text(salt)}${_text(digest)}"


def is_hash(kept: str) -> bool:
    """Whether this text is a hash that can be verified, and not a password in clear."""
    return _parsed(kept) is not None or _SHA256.fullmatch(kept) is not None or _rabbitmq(kept) is not None


def is_current(kept: str) -> bool:
    """Whether a hash is as strong as what is made today; else it is made anew when its password is known."""
    parts = _parsed(kept)
    return parts is not None and (parts.log2_n, parts.block, parts.lanes) >= (LOG2_N, BLOCK, LANES)


def is_slow(kept: str | None) -> bool:
    """Whether to verify it takes long. None, of a user that there is not: as long as for one that there is."""
    return kept is None or _parsed(kept) is not None


def matches(kept: str | None, password: str) -> bool:
    """Whether this is the password. ``kept``: its hash, or a password in clear; None: there is no such user.

    What takes how long does not tell how much of it was right. Of no user it takes as long as of one.
    """
    if kept is None:
        _scrypt(password, _Scrypt(LOG2_N, BLOCK, LANES, bytes(SALT_BYTES), bytes(DIGEST_BYTES)))
        return False
    if (parts := _parsed(kept)) is not None:
        return hmac.compare_digest(_scrypt(password, parts), parts.digest)
    if (older := _SHA256.fullmatch(kept)) is not None:
        digest = hashlib.sha256(bytes.fromhex(older[1]) + _octets(password)).hexdigest()
        return hmac.compare_digest(digest, older[2])
    if (found := _rabbitmq(kept)) is not None:
        algorithm, salted = found
        digest_ = hashlib.new(algorithm, salted[:RABBITMQ_SALT] + _octets(password)).digest()
        return hmac.compare_digest(digest_, salted[RABBITMQ_SALT:])
    return hmac.compare_digest(_octets(password), _octets(kept))


def _parsed(kept: str) -> _Scrypt | None:
    """The parts of a hash by scrypt whose cost is within bounds; None for anything else."""
    found = _SCRYPT.fullmatch(kept)
    if found is None:
        return None
    log2_n, block, lanes = int(found[1]), int(found[2]), int(found[3])
    within = 1 <= log2_n <= MOST_LOG2_N and 1 <= block <= MOST_BLOCK and 1 <= lanes <= MOST_LANES
    try:
        return _Scrypt(log2_n, block, lanes, _bytes(found[4]), _bytes(found[5])) if within else None
    except ValueError:
        return None


def _rabbitmq(kept: str) -> tuple[str, bytes] | None:
    """The algorithm, and salt with digest, of a hash of RabbitMQ's."""
    found = _RABBITMQ.fullmatch(kept)
    if found is None:
        return None
    try:
        salted = b64decode(found[2], validate=True)
    except ValueError:
        return None
    return (found[1], salted) if len(salted) == RABBITMQ_SALT + hashlib.new(found[1]).digest_size else None


def _scrypt(password: str, parts: _Scrypt) -> bytes:
    return hashlib.scrypt(
        _octets(password),
        salt=parts.salt,
        n=1 << parts.log2_n,
        r=parts.block,
        p=parts.lanes,
        maxmem=MOST_MEMORY,
        dklen=len(parts.digest),
    )


def _octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _text(data: bytes) -> str:
    return b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return b64decode(text + "=" * (-len(text) % 4), validate=True)
