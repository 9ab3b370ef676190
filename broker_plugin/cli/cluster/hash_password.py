"""``txha hash-password``: what stands in a file of users instead of a password."""

from __future__ import annotations

import typer

from broker_plugin.cli.passwords import drawn_hash, given_password


def hash_password() -> None:
    """Print the hash of a password, for `amqp.users`, a file of users or `txha users add --hash`.

    The password is asked for at a terminal, else it is the first line of the standard input: never an argument, which
    every user of the machine could read.
    """
    typer.echo(drawn_hash(given_password(confirm=True)))
