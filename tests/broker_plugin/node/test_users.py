"""Who may connect, from a file of its own: it replaces the others, and what is wrong with it tells no password."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from broker_plugin.amqp.protocol.passwords import new_hash
from broker_plugin.node.config import Amqp, ConfigError, parse_config
from broker_plugin.node.users import check_config_file, check_given, read_users

SALT = bytes(range(16))


def users(tmp_path: Path, text: str, mode: int = 0o600) -> dict[str, str]:
    path = tmp_path / "users.toml"
    path.write_text(text)
    path.chmod(mode)
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
    error = refused.value
    assert error.__suppress_context__ or error.__context__ is None, "nor does a trace show it"


def test_a_file_of_users_that_is_nested_deep(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is not TOML with lines"):
        users(tmp_path, "app = " + "[" * 5000)


def test_a_user_without_a_name_or_password_is_refused(tmp_path: Path) -> None:
    """``TXHA_AMQP__USERS__BOB=$UNSET`` let any client in as bob."""
    with pytest.raises(ConfigError, match=r"amqp.users_file: .* must hold users"):
        users(tmp_path, '"" = "s3cret"\n')
    for given in ({"bob": ""}, {"": "s3cret"}):
        with pytest.raises(ValidationError, match="neither may be empty"):
            Amqp(port=1, users=given)


def test_a_password_of_the_file_may_stand_in_a_file_of_its_own(tmp_path: Path) -> None:
    """As in a node's own file: ``@FILE`` was taken for a password, which every user of the machine could read."""
    (tmp_path / "app.password").write_text("right\n")
    (tmp_path / "app.password").chmod(0o600)
    assert users(tmp_path, 'app = "@app.password"\nother = "@@x"\n') == {"app": "right", "other": "@x"}
    assert users(tmp_path, 'app = "@app.password"\n', 0o644) == {"app": "right"}
    with pytest.raises(ConfigError, match=r"amqp.users_file: .*gone cannot be read"):
        users(tmp_path, 'app = "@gone"\n', 0o644)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o620])
def test_a_password_in_clear_stands_in_no_file_of_others(mode: int, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"amqp.users_file: .*chmod go= .*, or write `txha hash-password`") as refused:
        users(tmp_path, 'app = "s3cret"\n', mode)
    assert "s3cret" not in str(refused.value)
    kept = new_hash("right", SALT)
    assert users(tmp_path, f'app = "{kept}"\n', mode) == {"app": kept}


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o644])
@pytest.mark.parametrize("given", ["s3cret", "@@s3cret", "@file", new_hash("other", SALT)])
def test_neither_does_one_in_a_node_s_own_file(mode: int, given: str, tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text(f"name = 'n'\n[amqp.users]\nguest = 'guest'\napp = '{given}'\n")
    path.chmod(mode)
    if "s3cret" in given and mode & 0o077:
        with pytest.raises(ConfigError, match=r"amqp.users: .*chmod go= ") as refused:
            check_config_file(path)
        assert "s3cret" not in str(refused.value)
    else:
        check_config_file(path)


def test_a_file_without_users_may_be_read_by_all(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    for text in ("name = 'n'\n", "[amqp]\nport = 5\n", "[amqp.users]\nguest = 'guest'\n"):
        path.write_text(text)
        path.chmod(0o644)
        check_config_file(path)


@pytest.mark.parametrize(
    "settings",
    [
        {"amqp.users.app": "s3cret"},
        {"amqp.users": '{"app": "s3cret"}'},
        {"amqp.users.app": "@@s3cret"},
        {"min_ready": "1", "amqp.users.a b": "s3cret"},
    ],
    ids=str,
)
def test_no_password_stands_on_a_command_line(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"--set amqp.users.NAME=@FILE") as refused:
        check_given(settings)
    assert "s3cret" not in str(refused.value)


def test_other_settings_may_stand_there() -> None:
    check_given(
        {"amqp.users.a": "@file", "amqp.users.b": new_hash("x", SALT), "amqp.users_file": "f", "min_ready": "1"}
    )


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"amqp.users_file: cannot read .*: No such file"):
        read_users(Amqp(port=1, users_file=tmp_path / "none"))


def test_a_relative_name_is_looked_for_beside_the_file_that_says_it(tmp_path: Path) -> None:
    """It was looked for in the current directory, wherever a supervisor starts a node."""
    begin = 'name = "a"\ncluster = "c"\ndir = "d"\ncoordination = "./r"\n[peer]\nport = 1\n'
    text = f'{begin}[amqp]\nusers_file = "u.toml"\n'
    (tmp_path / "u.toml").write_text(f'app = "{new_hash("right", SALT)}"\n')
    beside = parse_config(text, tmp_path / "node.toml", {}, {}).amqp
    assert beside.users_file == tmp_path / "u.toml" and list(read_users(beside)) == ["app"]
    for flags, variables in ({"amqp.users_file": "v.toml"}, {}), ({}, {"TXHA_AMQP__USERS_FILE": "v.toml"}):
        assert parse_config(text, tmp_path / "node.toml", flags, variables).amqp.users_file == Path.cwd() / "v.toml"
    whole = text.replace("u.toml", "/run/secrets/users")
    assert parse_config(whole, tmp_path / "node.toml", {}, {}).amqp.users_file == Path("/run/secrets/users")
