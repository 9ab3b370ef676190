"""``txha dtx recover``: meet every branch in doubt, at brokers and databases, with the decisions, and settle it."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker_plugin.cli.addresses import BROKERS_HELP, DATABASE_HELP, named, read_brokers, read_databases
from broker_plugin.cli.asking import BadArgument, Json
from broker_plugin.cli.terminal import say

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
    gone: Annotated[
        list[str] | None,
        typer.Option("--gone", help="A resource that the log names and that is no more, by its name. May be repeated."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Branches of other programs count, too: 0 only if nothing at all is in doubt.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Settle every branch in doubt as was decided; what has no decision is rolled back.

    Exit status 0: nothing is left in doubt, and all that the log and the brokers name was asked; 1: something is, or
    cannot be reached, or was not asked; 2: nothing was settled, as of a log that is an older copy; 3: a branch was
    decided otherwise.
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
    if path is None and not broker:
        raise BadArgument("a table decides on branches of brokers: name the brokers, with --broker")
    if path is None and gone:
        raise BadArgument("--gone is of a resource that a log names: name the log, with --log")
    brokers, databases = read_brokers(broker or []), read_databases(database or [])
    if path is not None:
        _drop(path, gone or [])
    report = _run(path, databases, brokers, grace, forget)
    if as_json:
        typer.echo(json.dumps(_as_dict(report, everything), indent=2))
    else:
        _show(report, everything)
    for place, why in report.older.items():
        say(f"txha: {place}: {why}", beside=True)
    raise SystemExit(_status(report, everything))


def _status(report: Report, everything: bool) -> int:
    if report.older:
        return 2
    if report.contradicted:
        return 3
    return 0 if report.settled and report.is_complete(everything) else 1


def _drop(path: Path, gone: list[str]) -> None:
    """Resources that are no more. Raises BadArgument, before any is asked."""
    from recovery.coordinator.decision_log import DecisionLog
    from recovery.coordinator.decisions import DecisionRefused, DecisionUnknown

    if not gone:
        return
    log = DecisionLog(path)
    try:
        known = log.resources()
        if unknown := [each for each in gone if each not in known]:
            there = ", ".join(known) or "none"
            raise BadArgument(f"--gone: the log names no resource {unknown[0]!r}; it names {there}")
        for each in gone:
            log.drop_resource(each)
    except (DecisionRefused, DecisionUnknown) as error:
        raise BadArgument(f"--gone: {error}") from None
    finally:
        log.close()


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


def _as_dict(report: Report, everything: bool) -> dict[str, Any]:
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
        "asked": report.asked,
        "not_asked": report.not_asked,
        "others": [
            {"resource": resource, "branch": str(xid), "decisions": whose}
            for (resource, xid), whose in (report.others | (report.foreign if everything else {})).items()
        ],
        "older": report.older,
    }


def _show(report: Report, everything: bool) -> None:
    from broker_plugin.cli.tables import recovered_table

    found = _as_dict(report, everything)
    recovered_table(found["branches"])
    for address, name in found["asked"].items():
        say(f"asked {address}, which is {name}")
    complain(found)
    _complain_of_what_was_not_asked(found)


def complain(found: dict[str, Any]) -> None:
    """Say who could not be reached, and which commits wait for whom."""
    for address, why in found["unreachable"].items():
        say(f"txha: {address} cannot be reached: {why}", beside=True)
    for each in found["waiting"]:
        say(f"txha: {each['transaction']} is committed, and waits for {each['resource']}", beside=True)


def _complain_of_what_was_not_asked(found: dict[str, Any]) -> None:
    """Say which resources and decisions were not asked, and have to do with what was."""
    for name in found["not_asked"]:
        say(
            f"txha: {name} takes part in transactions of the log, and was not asked: name it with --broker or "
            "--database, or say that it is no more with --gone",
            beside=True,
        )
    others = Counter((each["resource"], each["decisions"]) for each in found["others"])
    for (resource, whose), count in others.items():
        hangs = f"hang on the log or table {whose}: run this with that" if whose else "are of other programs"
        say(f"txha: {count} branches that are in doubt at {resource} {hangs}", beside=True)
