"""Who may connect to a node, read from a file of its own, so that a configuration holds no password.

A password in clear stands in no file that others than its owner may use, and on no command line, which every user of
the machine can read. Its hash may.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from broker_plugin.amqp.protocol.passwords import is_hash
from broker_plugin.node.config import Amqp, ConfigError
from broker_plugin.node.sources import absolute_file, password_of
from recovery.secret_file import MARK, SecretFileError, refuse_others

USERS = "amqp.users"
_KNOWN_TO_ALL = ("guest", "guest")
"""The user of a node that was not set up, who can log in from loopback only"""


def read_users(amqp: Amqp) -> dict[str, str]:
    """Names and passwords (or their hashes): of ``amqp.users_file`` if there is one, else ``amqp.users``.

    Raises ConfigError, which tells nothing of what stands in the file.
    """
    path = amqp.users_file
    if path is None:
        return amqp.passwords()
    try:
        found = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"amqp.users_file: cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError):  # its message quotes the line
        raise ConfigError(f'amqp.users_file: {path} is not TOML with lines name = "password"') from None
    if not found or not all(isinstance(value, str) and value and user for user, value in found.items()):
        raise ConfigError(f'amqp.users_file: {path} must hold users, each as name = "password", and nothing else')
    _check_mode(path, "amqp.users_file", found)
    try:
        return {user: password_of(absolute_file(value, path.parent.absolute())) for user, value in found.items()}
    except ValueError as error:
        raise ConfigError(f"amqp.users_file: {error}") from None


def check_config_file(path: Path) -> None:
    """Refuse the file of a node that holds a password and that others may use. It has been read, so it is sound.

    Raises ConfigError.
    """
    users = tomllib.loads(path.read_text()).get("amqp", {}).get("users", {})
    _check_mode(path, USERS, users)


def check_given(settings: Mapping[str, str]) -> None:
    """Refuse passwords among what was given on the command line. Raises ConfigError."""
    for key, value in settings.items():
        within = key.removeprefix(USERS)
        if within != key and within[:1] in ("", ".") and _is_clear(value):
            raise ConfigError(
                f"every user of this machine can read the password in --set {key}: write it into a file that only you "
                f"can read, and give --set {USERS}.NAME={MARK}FILE"
            )


def _check_mode(path: Path, what: str, users: Mapping[str, Any]) -> None:
    if any((user, value) != _KNOWN_TO_ALL and _is_clear(value) for user, value in users.items()):
        try:
            refuse_others(path, path.stat().st_mode)
        except (SecretFileError, OSError) as error:
            raise ConfigError(f"{what}: {error}, or write `txha hash-password` of each password") from None


def _is_clear(value: Any) -> bool:
    """Whether a value is a password, and neither a hash nor the name of a file."""
    text = str(value)
    names_a_file = text.startswith(MARK) and not text.startswith(MARK * 2)
    return not names_a_file and not is_hash(text)
