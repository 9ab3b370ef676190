"""Who may connect to a node, read from a file of its own, so that a configuration holds no password."""

from __future__ import annotations

import tomllib

from broker_plugin.node.config import Amqp, ConfigError


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
    except ValueError:  # its message quotes the line
        raise ConfigError(f'amqp.users_file: {path} is not TOML with lines name = "password"') from None
    if not found or not all(isinstance(value, str) and value for value in found.values()):
        raise ConfigError(f'amqp.users_file: {path} must hold users, each as name = "password", and nothing else')
    return found
