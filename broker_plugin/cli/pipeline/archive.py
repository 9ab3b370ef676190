"""``txha archive``: keep what the logs say beyond their own retention, in Parquet."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from broker_plugin.cli.asking import BadArgument
from broker_plugin.cli.terminal import say

EVERY = 10.0
"""Seconds between batches."""

SecretFile = Annotated[
    Path | None,
    typer.Option("--secret-file", help="With --nodes: the file of the secret for readers, or of the cluster's."),
]
Certificate = Annotated[
    Path | None,
    typer.Option("--certificate", help="With --nodes that speak TLS: the file of the reader's certificate."),
]
Key = Annotated[Path | None, typer.Option("--key", help="The file of its key.")]
NodesAuthority = Annotated[
    Path | None, typer.Option("--authority", help="The file of the authority of the nodes' certificates.")
]


def archive(
    to: Annotated[Path, typer.Option("--to", help="Directory of the archive; it is made if it is not there.")],
    directories: Annotated[
        list[Path] | None, typer.Argument(help="Directories of nodes, or of clusters of them.", metavar="DIR...")
    ] = None,
    nodes: Annotated[str | None, typer.Option(help="Peer ports of running nodes, host:port,…")] = None,
    secret_file: SecretFile = None,
    certificate: Certificate = None,
    key: Key = None,
    authority: NodesAuthority = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on for ever, instead of ending with what is there.")] = (
        False
    ),
    every: Annotated[
        float | None, typer.Option(help="With --follow: seconds between batches, else 10.", min=0, show_default=False)
    ] = None,
    max_events: Annotated[int, typer.Option(help="Events in one batch.", min=1)] = 5_000_000,
    keep_days: Annotated[int | None, typer.Option(help="Give up older days.", min=0)] = None,
    grace: Annotated[
        float, typer.Option(help="Seconds for which readers may go on with files that have been replaced.", min=0)
    ] = 3600.0,
    accept_gaps: Annotated[
        bool, typer.Option("--accept-gaps", help="Go on, and note it, where events are gone before they were archived.")
    ] = False,
) -> None:
    """Archive the logs' events that have passed the commit point, each once; then compact, and give up old days."""
    if not directories and nodes is None:
        raise BadArgument("name directories to archive, or running nodes with --nodes")
    if every is not None and not follow:
        raise BadArgument("--every is for --follow: without it there is one batch")
    options = {"failOnDataLoss": str(not accept_gaps).lower(), **_tls_options(certificate, key, authority, nodes)}
    from recovery.pipeline.archive.job import ArchiveJob
    from recovery.pipeline.archive.lake import Lake
    from recovery.pipeline.archive.upkeep import upkeep
    from recovery.pipeline.session import spark_session

    if directories:
        options["paths"] = ",".join(str(each.absolute()) for each in directories)
    if nodes is not None:
        options["nodes"] = nodes
    if secret_file is not None:
        options["secretFile"] = str(secret_file.absolute())
    lake = Lake(to.absolute())
    with lake.writing():
        spark = spark_session("txha archive", quiet=True)
        try:
            while True:
                began = time.monotonic()
                ArchiveJob(lake.directory, options, max_events).run(spark)
                manifest = upkeep(lake, keep_days, datetime.now(UTC), grace)
                rows = sum(entry.rows for entry in manifest.files)
                ends = ", ".join(f"{node} {end}" for node, end in sorted(manifest.ends.items()))
                say(f"{rows} rows in {len(manifest.files)} files, up to {ends or 'nothing yet'}")
                if not follow:
                    return
                time.sleep(max(0.0, began + (EVERY if every is None else every) - time.monotonic()))
        finally:
            spark.stop()


def _tls_options(
    certificate: Path | None, key: Path | None, authority: Path | None, nodes: str | None
) -> dict[str, str]:
    """As the source in Spark takes them; none where the reader speaks in clear. Raises BadArgument."""
    given = {"certificateFile": certificate, "keyFile": key, "authorityFile": authority}
    found = {name: str(path.absolute()) for name, path in given.items() if path is not None}
    if found and (len(found) < len(given) or nodes is None):
        raise BadArgument("--certificate, --key and --authority belong together, and are for --nodes")
    return found
