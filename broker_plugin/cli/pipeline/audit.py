"""``txha audit``: its options, and its exit status. The audit itself is ``recovery.pipeline.audit``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from broker_plugin.cli.asking import BadArgument, Json
from broker_plugin.cli.terminal import PlainConsole
from recovery.pipeline.errors import PipelineError, reason
from recovery.pipeline.session import check_installed, spark_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.pipeline.audit.report import AuditReport


def audit(
    directories: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Nodes, clusters, archives, or Parquet files with rows.")
    ],
    history: Annotated[
        Path | None, typer.Option("--history", help="The clients' own history, as `txha stress` writes it.")
    ] = None,
    decisions: Annotated[
        list[Path] | None, typer.Option("--decisions", help="A coordinators' decision log. May be repeated.")
    ] = None,
    as_json: Json = False,
    parquet: Annotated[
        Path | None, typer.Option("--parquet", help="Write findings, evidence and transactions below this directory.")
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write a page with plots.")] = None,
    master: Annotated[str | None, typer.Option("--master", help="Of Spark, as for spark-submit.")] = None,
) -> None:
    """Say from the nodes' logs what became of every transaction, and which promises were broken.

    Exit status: 0 no promise was seen broken, 1 one was, 2 for what you can mend.
    """
    try:
        with _progress() as say:
            report = _run(directories, history, decisions or [], parquet, html, master, say)
    except PipelineError as error:
        raise BadArgument(str(error)) from None
    if as_json:
        typer.echo(json.dumps(report.as_dict(), indent=2))
    else:
        from broker_plugin.cli.pipeline.audit_tables import show

        show(report)
    raise SystemExit(0 if report.clean else 1)


def _run(
    directories: list[Path],
    history: Path | None,
    decisions: list[Path],
    parquet: Path | None,
    html: Path | None,
    master: str | None,
    say: Callable[[str], None],
) -> AuditReport:
    """Raises PipelineError, also for what Spark says of a log or of a place that cannot be written."""
    check_installed()
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from recovery.pipeline.audit.audit import audit as run_audit
    from recovery.pipeline.audit.inputs import check_there, read_history, read_rows, read_words

    check_there(directories)
    words = [word for path in decisions for word in read_words(path)]
    say("starting Spark")
    running = SparkSession.getActiveSession()
    session = spark_session("txha audit", master, quiet=True)
    try:
        if html is not None:
            html.parent.mkdir(parents=True, exist_ok=True)
        told = None if history is None else read_history(session, history)
        rows = read_rows(session, directories)
        report = run_audit(rows.table, told, words, parquet, rows.costly, say)
        if html is not None:
            from recovery.pipeline.audit.page import write_page

            write_page(html, report)
        return report
    except PySparkException as error:
        raise PipelineError(reason(error)) from None
    except OSError as error:
        raise PipelineError(f"{error.filename} cannot be written: {error.strerror}") from None
    finally:
        if running is None:
            session.stop()


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Says on a terminal what goes on, on stderr; elsewhere nothing."""

    console = PlainConsole(stderr=True)
    if not console.is_terminal:
        yield lambda text: None
        return
    with console.status("") as status:
        yield lambda text: status.update(text + " …")
