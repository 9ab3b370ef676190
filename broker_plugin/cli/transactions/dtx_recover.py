"""``txha dtx recover``: meet every branch in doubt, at brokers and databases, with the decisions, and settle it."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker_plugin.cli.addresses import BROKERS_HELP, DATABASE_HELP, named, read_brokers, read_databases
from broker_plugin.cli.asking import BadArgument, Json

if TYPE_CHECKING:
    from recovery.coordinator.recover import Report
    from recovery.coordinator.resources import Resource

NEEDED = ("pika", "psycopg")


def dtx_recover(
    log: Annotated[
        list[Path] | None,
        typer.Option("--log", help="The coordinators' decision log, one. Without it: tables in the databases."),
    ] = None,
    database: Annotated[list[str] | None, typer.Option("--database", help=DATABASE_HELP)] = None,
    broker: Annotated[
        list[str] | None,
        typer.Option("--broker", help=BROKERS_HELP),
    ] = None,
    grace: Annotated[
        float, typer.Option(help="Leave undecided transactions alone that began less than so many seconds ago.")
    ] = 60.0,
    forget: Annotated[
        bool, typer.Option("--forget", help="What was decided against the log need not be reported again.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Settle every branch in doubt as was decided; what has no decision is rolled back.

    Exit status 0: nothing is left in doubt; 1: something is, or cannot be reached; 3: a branch was decided otherwise.
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise BadArgument(f"dtx recover needs {' and '.join(missing)}: pip install 'txha[dtx]'")
    if log and len(log) > 1:
        raise BadArgument("--log names one decision log: run it once for each")
    path = log[0] if log else None
    if path is not None and not path.is_file():
        raise BadArgument(f"there is no decision log {path}")
    if not 0 <= grace < math.inf:
        raise BadArgument("--grace must be a finite number of seconds, and not negative")
    if not database and not broker:
        raise BadArgument("no resource is asked: name every resource that takes part, with --broker and --database")
    if path is None and not database:
        raise BadArgument("nothing says what was decided: name the log, with --log, or tables, with --database")
    brokers, databases = read_brokers(broker or []), read_databases(database or [])
    report = _run(path, databases, brokers, grace, forget)
    if as_json:
        typer.echo(json.dumps(_as_dict(report), indent=2))
    else:
        _show(report)
    raise SystemExit(3 if report.contradicted else 0 if report.settled else 1)


def _run(log: Path | None, databases: list[str], brokers: list[str], grace: float, forget: bool) -> Report:
    from recovery.coordinator.broker_resource import Broker
    from recovery.coordinator.decision_log import DecisionLog
    from recovery.coordinator.decisions import Decisions
    from recovery.coordinator.postgresql import Postgresql
    from recovery.coordinator.recover import recover_with_each
    from recovery.coordinator.table import TableDecisions
    from recovery.dtx.hosts import urls_in

    resources: dict[str, Resource] = {name: Broker(*urls_in(urls)) for name, urls in named(brokers).items()}
    sources: dict[str, Callable[[], Decisions]]
    if log is not None:
        resources.update({name: Postgresql(dsn) for name, dsn in named(databases).items()})
        sources = {str(log): partial(DecisionLog, log)}
    else:
        sources = {name: partial(TableDecisions, dsn) for name, dsn in named(databases).items()}
    try:
        return recover_with_each(sources, resources, grace, forget)
    finally:
        for resource in resources.values():
            resource.close()


def _as_dict(report: Report) -> dict[str, Any]:
    return {
        "settled": report.settled,
        "branches": [
            {
                "transaction": row.transaction,
                "resource": row.resource,
                "branch": row.branch,
                "decision": row.decision,
                "state": row.fate.word,
                "contradicted": row.contradicted,
                "why": row.why,
            }
            for row in report.rows
        ],
        "waiting": [{"transaction": transaction, "resource": resource} for transaction, resource in report.waiting],
        "unreachable": report.unreachable,
    }


def _show(report: Report) -> None:
    from broker_plugin.cli.tables import recovered_table

    found = _as_dict(report)
    recovered_table(found["branches"])
    complain(found)


def complain(found: dict[str, Any]) -> None:
    """Say who could not be reached, and which commits wait for whom."""
    for address, why in found["unreachable"].items():
        print(f"txha: {address} cannot be reached: {why}", file=sys.stderr)
    for each in found["waiting"]:
        print(f"txha: {each['transaction']} is committed, and waits for {each['resource']}", file=sys.stderr)
