"""Virtual hosts, and how the name of a queue or an exchange says in which one it is.

What is declared stands in one table for all virtual hosts, under its *full name*: in the default one that is the name
itself, elsewhere the virtual host stands before it, between two zeros. A name in the default one that begins with a
zero itself is written in that way, too, so no name of one virtual host is a full name in another.
"""

from __future__ import annotations

from typing import Final

DEFAULT_VHOST: Final = "/"
"""Always there, unless it is deleted."""
SEPARATOR: Final = "\0"
"""Stands in the name of no virtual host."""


def full_name(vhost: str, name: str) -> str:
    """How a name in a virtual host stands in the table of all."""
    if vhost == DEFAULT_VHOST and not name.startswith(SEPARATOR):
        return name
    return f"{SEPARATOR}{vhost}{SEPARATOR}{name}"


def parts_of(full: str) -> tuple[str, str]:
    """The virtual host, and the name there."""
    if not full.startswith(SEPARATOR):
        return DEFAULT_VHOST, full
    _, vhost, name = full.split(SEPARATOR, 2)
    return vhost, name


def vhost_of(full: str) -> str:
    """The virtual host alone."""
    return parts_of(full)[0]


def local_name(full: str) -> str:
    """The name as clients in its virtual host say it."""
    return parts_of(full)[1] if full.startswith(SEPARATOR) else full


def beside(full: str, name: str) -> str:
    """The full name of what has this name in the same virtual host."""
    return full_name(vhost_of(full), name)


def shown_name(full: str) -> str:
    """A name as people read it: with its virtual host where that is not the default one."""
    vhost, name = parts_of(full)
    return name if vhost == DEFAULT_VHOST else f"{name} in vhost {vhost}"
