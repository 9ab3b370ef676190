"""What ``txha certificates`` prints of certificates: never a key."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import typer
from cryptography import x509
from cryptography.x509.oid import NameOID
from rich.box import SIMPLE_HEAD
from rich.table import Table

from broker_plugin.cli.certificates.files import AUTHORITY, CERTIFICATE, KEY
from broker_plugin.cli.certificates.issuing import hosts_of, organization, owner
from broker_plugin.cli.terminal import PlainConsole, say
from broker_plugin.tls.files import is_authority


def described(certificate: x509.Certificate, now: datetime) -> dict[str, Any]:
    """What is in a certificate, for JSON. ``kind`` is empty for one that says nothing of it, as those of others."""
    common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    kind, cluster, name, amiss = "", organization(certificate), str(common[0].value) if common else "", None
    try:
        found = owner(certificate)
    except ValueError as error:
        found, amiss = None, str(error)
    if found is not None:
        kind, cluster, name = found
    elif is_authority(certificate):
        kind = "authority"
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return {
        "kind": kind,
        "name": name,
        "cluster": cluster,
        "hosts": hosts_of(certificate),
        "from": begins.isoformat(),
        "until": ends.isoformat(),
        "valid": begins <= now < ends,
        "days_left": (ends - now).days,
        "serial": f"{certificate.serial_number:x}",
        "amiss": amiss,
    }


def certificates_table(rows: Sequence[dict[str, Any]]) -> None:
    """One row a certificate."""
    table = Table(box=SIMPLE_HEAD)
    for column in ("kind", "name", "cluster", "valid until (UTC)", "days", "hosts"):
        table.add_column(column, overflow="fold")
    for row in rows:
        left = str(row["days_left"]) if row["valid"] else "expired" if row["days_left"] < 0 else "not yet"
        kind = row["kind"] or ("malformed" if row["amiss"] else "other")
        table.add_row(kind, row["name"], row["cluster"], row["until"][:16], left, ", ".join(row["hosts"]))
    console = PlainConsole()
    console.print(table)
    for row in rows:
        if row["amiss"]:
            console.print(f"{row['name']}: {row['amiss']}", style="bold red", soft_wrap=True)


def tell_made(certificate: x509.Certificate, out: Path, now: datetime, as_json: bool, table: bool) -> None:
    """What has been made, where, and (``table``) what to write into a node's file."""
    files = {"certificate": out / CERTIFICATE, "key": out / KEY, "authority": out / AUTHORITY}
    paths = {what: str(path.absolute()) for what, path in files.items()}
    found = described(certificate, now)
    if as_json:
        typer.echo(json.dumps({**found, **paths}, indent=2))
        return
    until = found["until"][:10]
    say(
        f"{found['kind']} {found['name']} of {found['cluster']}: {out / CERTIFICATE} is valid until {until}",
        beside=True,
    )
    if table:
        say("[tls]")
        for what, path in paths.items():
            say(f"{what} = {json.dumps(path, ensure_ascii=False)}")
