"""``txha recover``: what is to become of a cluster that has crashed, from its stores; and doing it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from broker_plugin.cli.addresses import BROKERS_HELP, DATABASE_HELP, read_brokers, read_databases
from broker_plugin.cli.asking import BadArgument, Json
from ha.membership.record import RecordStore

GRACE = 60.0
"""Seconds, as for `txha dtx recover`"""

AcceptMissing = Annotated[
    list[str] | None,
    typer.Option("--accept-missing", help="Go on without what only this node's store held. May be repeated."),
]
AcceptDataLoss = Annotated[
    bool,
    typer.Option(
        "--accept-data-loss",
        help="Go on though it is not known which nodes the cluster has, or only the store of no member is left.",
    ),
]
Deep = Annotated[
    bool, typer.Option("--deep", help="Read all of every log, also what a node does not read when it starts.")
]
Chosen = Annotated[
    str, typer.Option("--choose", metavar="NODE", help="Of stores that exclude each other, this node's counts.")
]


def recover(
    directories: Annotated[
        list[Path],
        typer.Argument(metavar="DIR...", help="The cluster's directory, or those of its nodes.", resolve_path=True),
    ],
    apply: Annotated[
        bool, typer.Option("--apply/--plan", help="Carry the plan out. Without it, nothing is changed.")
    ] = False,
    settle: Annotated[
        bool, typer.Option("--settle", help="The nodes run again: settle the branches as the applied plan says.")
    ] = False,
    decisions: Annotated[
        list[Path] | None,
        typer.Option("--decisions", help="A coordinators' decision log. May be repeated.", resolve_path=True),
    ] = None,
    database: Annotated[list[str] | None, typer.Option("--database", help=DATABASE_HELP)] = None,
    coordination: Annotated[
        str | None,
        typer.Option("--coordination", help="The record's file or address, where it cannot be found by itself."),
    ] = None,
    broker: Annotated[
        list[str] | None,
        typer.Option("--broker", help=BROKERS_HELP),
    ] = None,
    grace: Annotated[
        float | None,
        typer.Option(help="--settle leaves undecided transactions alone that began less than so long ago (60)."),
    ] = None,
    accept_missing: AcceptMissing = None,
    accept_data_loss: AcceptDataLoss = False,
    chosen: Chosen = "",
    deep: Deep = False,
    as_json: Json = False,
) -> None:
    """Plan what to do with a crashed cluster: whom to promote, what is lost, what branches in doubt should become.

    Exit status 0: nothing acknowledged is lost, and no operator has to find anything out; with --settle: every branch
    has ended as was planned; 1: otherwise.
    """
    from broker_plugin.cli.recovery.crashed import Given

    given = Given(
        directories, _store(coordination), decisions or [], read_databases(database or []), read_brokers(broker or [])
    )
    seconds = _grace(grace, settle)
    if settle:
        if deep:
            raise BadArgument("--deep is for a plan: --settle reads no log")
        if apply or accept_data_loss or accept_missing or chosen:
            raise BadArgument("--settle goes on with a plan that was applied: it comes behind --apply, not with it")
        from broker_plugin.cli.recovery.settling import run as run_settling

        raise SystemExit(run_settling(given, seconds, as_json))
    from broker_plugin.cli.recovery.recovering import Accepted, run

    if not apply and (accept_missing or accept_data_loss):
        raise BadArgument("--accept-missing and --accept-data-loss say with what a plan may be applied: add --apply")
    accepted = Accepted(frozenset(accept_missing or ()), accept_data_loss, chosen)
    raise SystemExit(run(given, apply, accepted, as_json, deep))


def _store(address: str | None) -> RecordStore | None:
    """Raises BadArgument."""
    from broker_plugin.coordination.address import store_at

    if address is None:
        return None
    try:
        return store_at(address if "://" in address else str(Path(address).resolve()))
    except ValueError as error:
        raise BadArgument(f"--coordination: {error}") from error


def _grace(given: float | None, settle: bool) -> float:
    """Raises BadArgument."""
    if given is None:
        return GRACE
    if not settle:
        raise BadArgument("--grace is for --settle: without it nothing is settled")
    if not 0 <= given < math.inf:
        raise BadArgument("--grace must be a finite number of seconds, and not negative")
    return given
