"""Who may connect, from a file of its own: it replaces the others, and what is wrong with it tells no password."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_plugin.amqp.protocol.sasl import Credentials, allowed, hashed
from broker_plugin.node.config import Amqp, ConfigError
from broker_plugin.node.users import read_users

SALT = "00112233445566778899aabbccddeeff"


def users(tmp_path: Path, text: str) -> dict[str, str]:
    path = tmp_path / "users.toml"
    path.write_text(text)
    return read_users(Amqp(port=1, users={"guest": "guest"}, users_file=path))


def test_without_a_file_the_configuration_says_who_may_connect() -> None:
    assert read_users(Amqp(port=1, users={"a": "b"})) == {"a": "b"}


def test_the_file_replaces_them(tmp_path: Path) -> None:
    assert users(tmp_path, 'app = "right"\n') == {"app": "right"}


@pytest.mark.parametrize(
    "text", ["", "app = s3cret", 'app = ["s3cret"]', "[app]\npassword = 's3cret'", "app = 53", 'app = ""']
)
def test_a_file_that_holds_no_users_is_refused_and_not_quoted(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"amqp.users_file: .*users.toml") as refused:
        users(tmp_path, text)
    assert "s3cret" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"amqp.users_file: cannot read .*: No such file"):
        read_users(Amqp(port=1, users_file=tmp_path / "none"))


def test_a_password_is_known_by_its_hash() -> None:
    kept = {"app": hashed("right", SALT)}
    assert "right" not in kept["app"]
    assert allowed(kept, Credentials("app", "right"))
    for wrong in ("wrong", "", kept["app"], SALT):
        assert not allowed(kept, Credentials("app", wrong))
    assert not allowed(kept, Credentials("other", "right")) and not allowed(kept, Credentials("other", ""))


def test_the_hash_depends_on_the_salt() -> None:
    assert hashed("right", SALT) != hashed("right", SALT[::-1])


@pytest.mark.parametrize("text", ["$sha256$", "$sha256$0$1", f"$sha256${SALT}0$" + 64 * "0"])
def test_what_only_looks_like_a_hash_is_a_password(text: str) -> None:
    assert allowed({"app": text}, Credentials("app", text))
    assert not allowed({"app": text}, Credentials("app", "other"))
