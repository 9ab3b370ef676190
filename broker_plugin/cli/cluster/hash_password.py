"""``txha hash-password``: what stands in a file of users instead of a password."""

from __future__ import annotations

import secrets
import sys

import typer

from broker_plugin.cli.asking import BadArgument

SALT_BYTES = 16


def hash_password() -> None:
    """Print the hash of a password, for `amqp.users` or a file of users.

    The password is asked for at a terminal, else it is the first line of the standard input: never an argument, which
    every user of the machine could read.
    """
    from broker_plugin.amqp.protocol.sasl import hashed

    if sys.stdin.isatty():
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise BadArgument("a password must not be empty")
    typer.echo(hashed(password, secrets.token_hex(SALT_BYTES)))
