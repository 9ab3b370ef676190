"""``txha certificates init | node | reader | client | list | show``."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker_plugin.cli.asking import BadArgument, Json, paths_told
from broker_plugin.cli.certificates.given import days_given, directory_given, hosts_given, name_given
from broker_plugin.cli.terminal import say
from recovery.certificate_names import CLIENT, NODE, READER, CertificateName

if TYPE_CHECKING:
    from broker_plugin.cli.certificates.issuing import Authority

app = typer.Typer(
    help="Make certificates with an authority of your own, if you have none.",
    no_args_is_help=True,
)

AUTHORITY_DAYS = 3650
"""That an authority is valid: it is installed everywhere, and its nodes' certificates end before it"""
HOLDER_DAYS = 825
"""That a certificate is valid: the longest that some clients take"""
AuthorityDir = Annotated[
    Path,
    typer.Option(
        "--dir",
        help="Directory of the authority. Keep it off the nodes' hosts.",
        parser=directory_given,
        metavar="<path>",
    ),
]
Out = Annotated[
    Path,
    typer.Option(
        "--out",
        help="Where to: certificate.pem, key.pem and authority.pem.",
        parser=directory_given,
        metavar="<path>",
    ),
]
Days = Annotated[int, typer.Option("--days", help="How long it is valid, at most as long as the authority.")]
Of = Annotated[str | None, typer.Option("--cluster", help="Refuse unless the authority is this cluster's.")]
Renew = Annotated[
    bool,
    typer.Option("--renew", help="Replace the certificate that is there by a new one for the same key."),
]


@app.command("init")
@paths_told()
def certificates_init(
    dir: AuthorityDir,
    cluster: Annotated[str | None, typer.Option("--cluster", help="The cluster, as in its nodes' files.")] = None,
    days: Annotated[int, typer.Option("--days", help="How long it is valid.")] = AUTHORITY_DAYS,
    renew: Renew = False,
    as_json: Json = False,
) -> None:
    """Make the authority of a cluster: a key that only its owner may use, and a certificate.

    With --renew it gets a new certificate for its key: what it has signed stays valid.
    """
    from broker_plugin.cli.certificates import files, issuing
    from broker_plugin.cli.certificates.shown import described

    now = datetime.now(UTC)
    days_given(days)
    if renew:
        former = files.read_authority(dir, now, expired=True)
        _same_cluster(former, cluster, dir)
        authority = issuing.make_authority(former.cluster, former.key, days, now)
        files.replace(dir / files.AUTHORITY, issuing.certificate_text(authority.certificate), 0o644)
    elif cluster is None:
        raise BadArgument("--cluster says whose authority it is: give the name that is in the nodes' files")
    else:
        authority = issuing.make_authority(name_given(cluster, "the cluster"), issuing.new_key(), days, now)
        files.write_authority(dir, authority)
    found = described(authority.certificate, now)
    if as_json:
        typer.echo(json.dumps({**found, "authority": str((dir / files.AUTHORITY).absolute())}, indent=2))
    else:
        say(f"the authority of {authority.cluster} is in {dir}, valid until {found['until'][:10]}; keep its key there")


@app.command("node")
@paths_told()
def certificates_node(
    name: Annotated[str, typer.Argument(help="The node's name, as in its file.")],
    dir: AuthorityDir,
    out: Out,
    host: Annotated[
        list[str] | None,
        typer.Option("--host", help="Names and addresses by which it is reached, with commas. May be repeated."),
    ] = None,
    days: Days = HOLDER_DAYS,
    cluster: Of = None,
    renew: Renew = False,
    as_json: Json = False,
) -> None:
    """Make the key and the certificate of a node, and print the table for the node's file.

    A client verifies that the host that it connects to is one of --host. --renew keeps the former ones unless others
    are given.
    """
    hosts = hosts_given(host or []) if host or not renew else None
    _make(NODE, name, hosts, dir, out, days, cluster, renew, as_json)


@app.command("reader")
@paths_told()
def certificates_reader(
    name: Annotated[str, typer.Argument(help="What the log of a node calls the reader.")],
    dir: AuthorityDir,
    out: Out,
    days: Days = HOLDER_DAYS,
    cluster: Of = None,
    renew: Renew = False,
    as_json: Json = False,
) -> None:
    """Make the key and the certificate of a reader of nodes' logs. No node and no user has it."""
    _make(READER, name, [], dir, out, days, cluster, renew, as_json)


@app.command("client")
@paths_told()
def certificates_client(
    user: Annotated[str, typer.Argument(help="The user as whom the client logs in by EXTERNAL.")],
    dir: AuthorityDir,
    out: Out,
    days: Days = HOLDER_DAYS,
    cluster: Of = None,
    renew: Renew = False,
    as_json: Json = False,
) -> None:
    """Make the key and the certificate of a client. It says who the user is; it never passes as a node's."""
    _make(CLIENT, user, [], dir, out, days, cluster, renew, as_json)


@app.command("list")
@paths_told()
def certificates_list(dir: AuthorityDir, as_json: Json = False) -> None:
    """List what the authority has signed, by when it ends. A certificate that was renewed is listed as well."""
    from broker_plugin.cli.certificates import files

    authority = files.read_authority(dir, datetime.now(UTC), expired=True)
    paths = sorted(path for path in (dir / files.ISSUED).glob("*.pem") if not path.is_dir())
    found = [authority.certificate, *(files.read_one(path) for path in paths)]
    _show(sorted(found, key=lambda each: each.not_valid_after_utc), as_json)


@app.command("show")
@paths_told()
def certificates_show(
    file: Annotated[list[Path], typer.Argument(metavar="FILE", help="Certificates in PEM; one file may hold many.")],
    as_json: Json = False,
) -> None:
    """Show whose certificates are in files, and when they end. Exit status 1 if one is not valid now."""
    from broker_plugin.cli.certificates import files, issuing

    found = []
    for path in file:
        inside = issuing.read_certificates(files.read_file(path))
        if not inside:
            raise BadArgument(f"{path} holds no certificate in PEM that can be read")
        found += inside
    if not all(row["valid"] for row in _show(found, as_json)):
        raise typer.Exit(1)


def _make(
    kind: str,
    given: str,
    hosts: list[str] | None,
    dir: Path,
    out: Path,
    days: int,
    cluster: str | None,
    renew: bool,
    as_json: bool,
) -> None:
    """Raises BadArgument, with nothing written. ``hosts`` None: those of the certificate that is renewed."""
    from broker_plugin.cli.certificates import files, issuing
    from broker_plugin.cli.certificates.shown import tell_made

    now = datetime.now(UTC)
    name = name_given(given, f"the {'user' if kind == CLIENT else kind}")
    days_given(days)
    authority = files.read_authority(dir, now)
    _same_cluster(authority, cluster, dir)
    if out.resolve() == dir.resolve():
        raise BadArgument("--out is the directory of the authority: its key has to stay alone, give another directory")
    whose = CertificateName(kind, authority.cluster, name)
    if renew:
        former = files.read_one(out / files.CERTIFICATE)
        key = files.read_private_key(out / files.KEY)
        _renewable(out, former, key, whose, authority)
        if hosts is None:
            hosts = issuing.hosts_of(former)
        certificate = issuing.issue(authority, whose, hosts, key, days, now)
        files.renew_holder(dir, out, certificate, authority)
    else:
        key = issuing.new_key()
        certificate = issuing.issue(authority, whose, hosts or [], key, days, now)
        files.write_holder(dir, out, certificate, key, authority)
    tell_made(certificate, out, now, as_json, table=kind == NODE)


def _renewable(out: Path, former: Any, key: Any, whose: CertificateName, authority: Authority) -> None:
    """Raises BadArgument where the certificate in ``out`` is not to take another's place by this."""
    from broker_plugin.cli.certificates import files, issuing

    try:
        found = issuing.owner(former)
    except ValueError as error:
        raise BadArgument(f"{out / files.CERTIFICATE}: {error}") from None
    if found != whose:
        said = "no node, reader or client" if found is None else f"{found.kind} {found.name} of {found.cluster}"
        wanted = f"{whose.kind} {whose.name} of {whose.cluster}"
        raise BadArgument(f"{out / files.CERTIFICATE} is of {said}, not of {wanted}: give its own directory")
    if not issuing.belong_together(former, key):
        raise BadArgument(f"{out / files.KEY} is not the key of {out / files.CERTIFICATE}")
    known = issuing.read_certificates(files.read_file(out / files.AUTHORITY))
    if not any(issuing.belong_together(each, authority.key) for each in known):
        raise BadArgument(f"{out / files.AUTHORITY} is another authority than that in --dir: add the latter to it")


def _same_cluster(authority: Authority, cluster: str | None, dir: Path) -> None:
    if cluster is not None and cluster != authority.cluster:
        raise BadArgument(f"the authority in {dir} is that of cluster {authority.cluster}, not of {cluster}")


def _show(found: list[Any], as_json: bool) -> list[dict[str, Any]]:
    from broker_plugin.cli.certificates.shown import certificates_table, described

    now = datetime.now(UTC)
    rows = [described(each, now) for each in found]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        certificates_table(rows)
    return rows
