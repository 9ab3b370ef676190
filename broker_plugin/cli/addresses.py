"""Brokers and databases as they are named on a command line: checked before any is asked, shown without passwords.

Every user of a machine sees its processes with their command lines, so an address may stand in a file: ``@FILE``. A
password on the command line is refused; that of guest, which is known to all, may stand there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from broker_plugin.cli.asking import BadArgument
from recovery.secret_file import SecretFileError, read_secret

_PASSWORD = re.compile(r"(\b(?:ssl)?password\s*=\s*)('(?:\\.|[^'\\])*'|(?:\\.|[^\s&])+)", re.DOTALL)


BROKER_HELP = "Url of a node; several of one cluster with commas. Or @FILE, in which that stands."
BROKERS_HELP = f"{BROKER_HELP} May be repeated."
DATABASE_HELP = "A PostgreSQL database, for psycopg. Or @FILE, in which that stands. May be repeated."
_NO_SECRET = "://guest:guest@"
"""The user of a broker that was not set up."""


def read_brokers(given: Sequence[str]) -> list[str]:
    """What was given to ``--broker``, checked; of ``@FILE`` what stands there. Raises BadArgument.

    So is a password on the command line.
    """
    from recovery.dtx.hosts import READS

    found = _addresses("--broker", given)
    for address, as_given in zip(found, given, strict=True):
        try:
            check_brokers([address])
        except BadArgument:
            if not as_given.startswith("@"):
                raise
            # Nothing of what stands there is told: it may be the password alone.
            raise BadArgument(f"--broker: {as_given[1:]} holds what is no url of a broker: one reads {READS}") from None
    _refuse_passwords("--broker", [each.replace(_NO_SECRET, "://") for each in given])
    return found


def read_databases(given: Sequence[str]) -> list[str]:
    """The same of ``--database``. Raises BadArgument."""
    found = _addresses("--database", given)
    check_databases(found)
    _refuse_passwords("--database", given)
    return found


def _addresses(option: str, given: Sequence[str]) -> list[str]:
    return [_read(option, Path(each[1:])) if each.startswith("@") else each for each in given]


def _refuse_passwords(option: str, given: Sequence[str]) -> None:
    if any(_tells_a_password(each) for each in given if not each.startswith("@")):
        raise BadArgument(
            f"every user of this machine can read the password in {option}: write the address into a file that only "
            f"you can read, and give {option} @FILE"
        )


def _tells_a_password(address: str) -> bool:
    from recovery.dtx.hosts import urls_in, without_password

    return _PASSWORD.search(address) is not None or any(without_password(each) != each for each in urls_in(address))


def _read(option: str, path: Path) -> str:
    try:
        return read_secret(path, "one address, in one line, as it would stand on the command line")
    except SecretFileError as error:
        raise BadArgument(f"{option}: {error}") from None


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
