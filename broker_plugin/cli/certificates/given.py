"""What a person gives for a certificate: names, hosts, days. Each wrong one is refused with one sentence."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path

from broker_plugin.cli.asking import BadArgument
from txobserver.printable import plain

LONGEST_COMMON_NAME = 64
"""Characters of a name in the subject of a certificate (RFC 5280, ub-common-name and ub-organization-name)"""
LONGEST_HOST = 253
"""Characters of a host's name"""
MOST_HOSTS = 100
"""Names and addresses in one certificate"""
MOST_DAYS = 36_500
"""That a certificate may be valid"""
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")


def name_given(name: str, what: str) -> str:
    """The name of a cluster, a node, a reader or a user, as it can stand in a certificate. Raises BadArgument."""
    if not name:
        raise BadArgument(f"the name of {what} is empty: give one of 1 to {LONGEST_COMMON_NAME} characters")
    if len(name) > LONGEST_COMMON_NAME:
        raise BadArgument(
            f"the name of {what} has {len(name)} characters, and a certificate holds {LONGEST_COMMON_NAME}: "
            "give a shorter one"
        )
    try:
        name.encode()
    except UnicodeEncodeError:
        raise BadArgument(f"the name of {what} is not UTF-8") from None
    if not plain(name):
        raise BadArgument(f"the name of {what} has characters that do not print, or blanks at its ends: {name!r}")
    return name


def directory_given(text: str) -> Path:
    """A directory by its name. Raises BadArgument."""
    if not text:
        raise BadArgument("a directory is given by an empty name: write . for the current one")
    return Path(text)


def days_given(days: int) -> int:
    """How long a certificate is valid. Raises BadArgument."""
    if not 1 <= days <= MOST_DAYS:
        raise BadArgument(f"--days is 1 to {MOST_DAYS}, not {days}")
    return days


def hosts_given(given: list[str]) -> list[str]:
    """Names and addresses, of texts in which they are parted by commas, each once. Raises BadArgument."""
    hosts: list[str] = []
    for host in (each.strip() for text in given for each in text.split(",")):
        found = _host(host)
        if found not in hosts:
            hosts.append(found)
    if not hosts:
        raise BadArgument("--host says by which names and addresses others reach the node: give at least one")
    if len(hosts) > MOST_HOSTS:
        raise BadArgument(f"--host names {len(hosts)} hosts; a certificate of txha has at most {MOST_HOSTS}")
    return hosts


def as_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a host is given by, None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _host(host: str) -> str:
    """In the form in which it stands in a certificate."""
    if not host:
        raise BadArgument("--host has an empty name in it: give names and addresses with one comma between two")
    address = as_address(host)
    if address is not None and "%" not in host:
        return str(address)
    labels = host.split(".")
    if len(host) > LONGEST_HOST or not all(map(_LABEL.fullmatch, labels)) or labels[-1].isdigit():
        raise BadArgument(
            f"--host {host!r} is neither an address nor the name of a host: give it without a port, brackets or "
            "wildcards, and a name with letters beyond ASCII in its form xn--"
        )
    return host.lower()
