"""Brokers and databases as they are named on a command line: checked before any is asked, shown without passwords."""

from __future__ import annotations

import re
from collections.abc import Sequence

from broker_plugin.cli.asking import BadArgument

_PASSWORD = re.compile(r"(\b(?:ssl)?password\s*=\s*)('(?:\\.|[^'\\])*'|(?:\\.|[^\s&])+)", re.DOTALL)


def shown(address: str) -> str:
    """An address as it may be shown: without a password."""
    from recovery.dtx.hosts import urls_in, without_password

    return _PASSWORD.sub(r"\1…", ",".join(map(without_password, urls_in(address))))


def named(addresses: Sequence[str]) -> dict[str, str]:
    """Every address by a name under which it may be shown, and which no other one has."""
    found: dict[str, str] = {}
    for address in dict.fromkeys(addresses):
        name = shown(address)
        same = sum(shown(each) == name for each in found.values())
        found[f"{name} ({same + 1})" if same else name] = address
    return found


def check_brokers(listed: Sequence[str]) -> None:
    """Each may be several urls with commas. Raises BadArgument."""
    from recovery.dtx.errors import ProgrammingError
    from recovery.dtx.hosts import checked_hosts, urls_in

    for each in listed:
        try:
            checked_hosts(urls_in(each))
        except ProgrammingError as error:
            raise BadArgument(f"--broker: {error}") from None


def check_databases(dsns: Sequence[str]) -> None:
    """Raises BadArgument, which tells nothing of the DSN."""
    from recovery.coordinator.dsn import check_dsn

    for number, dsn in enumerate(dsns, 1):
        try:
            if not dsn.strip():
                raise ValueError("it is empty: name the database, by service=… at least")
            check_dsn(dsn)
        except ValueError as error:
            raise BadArgument(f"--database, number {number}: {error}") from None
