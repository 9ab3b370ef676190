"""How commands get a password: from a terminal or the standard input, never as an argument, which others can read."""

from __future__ import annotations

import secrets
import sys

import typer

from broker_plugin.cli.asking import BadArgument


def given_password(confirm: bool) -> str:
    """The password that a person types, or the first line of the standard input. Raises BadArgument."""
    if sys.stdin.isatty():
        password: str = typer.prompt("Password", hide_input=True, confirmation_prompt=confirm, err=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise BadArgument("a password must not be empty")
    return password


def drawn_hash(password: str) -> str:
    """What is kept of a password, with a salt that is drawn for it."""
    from broker_plugin.amqp.protocol.passwords import SALT_BYTES, new_hash

    return new_hash(password, secrets.token_bytes(SALT_BYTES))
