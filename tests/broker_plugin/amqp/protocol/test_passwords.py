"""What is kept of a password: what is made, what RabbitMQ and txha before 0.1.0 made, and what only looks like it."""

from __future__ import annotations

import hashlib
from base64 import b64encode

import pytest

from broker_plugin.amqp.protocol.passwords import is_current, is_hash, is_slow, matches, new_hash

SALT = bytes(range(16))
MADE = new_hash("right", SALT)


def of_rabbitmq(algorithm: str, password: str, salt: bytes = b"\x90\x8d\xc6\x0a") -> str:
    digest = hashlib.new(algorithm, salt + password.encode()).digest()
    return f"rabbit_password_hashing_{algorithm}${b64encode(salt + digest).decode()}"


OLDER = f"$sha256${SALT.hex()}${hashlib.sha256(SALT + b'right').hexdigest()}"
HASHES = [MADE, OLDER, of_rabbitmq("sha256", "right"), of_rabbitmq("sha512", "right")]


@pytest.mark.parametrize("kept", HASHES, ids=["scrypt", "before 0.1.0", "sha256", "sha512"])
def test_the_password_is_known_by_its_hash_and_no_other_is(kept: str) -> None:
    assert is_hash(kept) and "right" not in kept and matches(kept, "right")
    for wrong in ("wrong", "", "right ", kept):
        assert not matches(kept, wrong)


def test_the_hash_of_rabbitmq_s_documentation() -> None:
    """ "Computing a password hash": the password test12, the salt 908DC60A."""
    assert matches("rabbit_password_hashing_sha256$kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR", "test12")


def test_what_is_made_is_strong_and_depends_on_the_salt() -> None:
    assert is_current(MADE) and new_hash("right", SALT[::-1]) != MADE
    digest = hashlib.scrypt(b"right", salt=SALT, n=1 << 14, r=8, p=1, dklen=32)
    assert MADE.endswith("$" + b64encode(digest).decode().rstrip("="))
    assert not any(map(is_current, HASHES[1:])) and not is_current(MADE.replace("ln=14", "ln=13"))


@pytest.mark.parametrize(
    "text",
    [
        "$sha256$",
        f"$sha256${SALT.hex()}0$" + 64 * "0",
        MADE.replace("ln=14", "ln=18"),
        MADE.replace("r=8", "r=99"),
        MADE.replace("p=1", "p=0"),
        MADE + "=",
        of_rabbitmq("sha256", "x").replace("sha256", "sha512"),
        of_rabbitmq("sha256", "x").replace("sha256", "md5"),
        "rabbit_password_hashing_sha256$kI3G",
    ],
)
def test_what_only_looks_like_a_hash_is_a_password(text: str) -> None:
    """Also one whose cost would hold a node."""
    assert not is_hash(text) and matches(text, text) and not matches(text, "other")


def test_no_user_takes_as_long_as_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real = hashlib.scrypt
    monkeypatch.setattr(hashlib, "scrypt", lambda *args, **more: asked.append(more["n"]) or real(*args, **more))
    assert not matches(None, "right") and not matches(MADE, "wrong")
    assert asked == [1 << 14] * 2 and is_slow(None) and is_slow(MADE) and not is_slow(OLDER) and not is_slow("clear")
