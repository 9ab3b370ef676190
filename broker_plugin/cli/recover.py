"""``txha recover``: what is to become of a cluster that has crashed, from its stores; and doing it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from broker_plugin.cli.asking import Json


def recover(
    directories: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="The cluster's directory, or those of its nodes.")
    ],
    apply: Annotated[
        bool, typer.Option("--apply/--plan", help="Carry the plan out. Without it, nothing is changed.")
    ] = False,
    decisions: Annotated[
        list[Path] | None, typer.Option("--decisions", help="A coordinators' decision log. May be repeated.")
    ] = None,
    database: Annotated[
        list[str] | None, typer.Option("--database", help="A PostgreSQL database, for psycopg. May be repeated.")
    ] = None,
    coordination: Annotated[
        Path | None, typer.Option("--coordination", help="The coordination file, where it cannot be found by itself.")
    ] = None,
    accept_data_loss: Annotated[
        bool,
        typer.Option("--accept-data-loss", help="Apply a plan even if something acknowledged is lost, or may be."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Plan what to do with a crashed cluster: whom to promote, what is lost, what branches in doubt should become.

    Exit status 0: nothing acknowledged is lost, and nobody has to find anything out; 1: otherwise.
    """
    from broker_plugin.cli.recovering import run

    inputs = decisions or [], database or []
    raise SystemExit(run(directories, coordination, *inputs, apply, accept_data_loss, as_json))
