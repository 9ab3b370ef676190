"""The work of ``txha recover --settle``: what an applied plan says of branches is carried out while the nodes run."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from broker_plugin.cli.addresses import check_brokers, check_databases, shown
from broker_plugin.cli.asking import BadArgument
from broker_plugin.cli.layout import read_cluster
from broker_plugin.cli.recovery.crashed import Crashed, Given, crashed_cluster
from broker_plugin.cli.recovery.recovering import places_of
from broker_plugin.cli.recovery.recovery_report import show_settled
from broker_plugin.cli.transactions.dtx_recover import NEEDED
from recovery.coordinator.decisions import Decisions
from recovery.coordinator.names import broker_name, may_be
from recovery.coordinator.recover import Report, recover_with_each
from recovery.coordinator.resources import Resource, ResourceLost, ResourceRefused
from recovery.planner.apply import ClusterPaths, Journal, last, note, unfinished
from recovery.planner.settle import BranchEnd, settle
from recovery.planner.verdicts import BROKER, TO_BECOME, By, Verdict, verdicts_of
from txobserver.outcomes import BranchOutcome
from txobserver.xid import Global

if TYPE_CHECKING:
    from recovery.coordinator.broker_resource import Broker


@dataclass
class _Site:
    """Whom the recovery runs ask, by address, and the decisions that they carry out, by place."""

    brokers: dict[str, Resource] = field(default_factory=dict)
    databases: dict[str, Resource] = field(default_factory=dict)
    logs: dict[str, Callable[[], Decisions]] = field(default_factory=dict)
    tables: dict[str, Callable[[], Decisions]] = field(default_factory=dict)

    def recover(self, grace: float, leave: Collection[Global]) -> Report:
        """A run with each log and each table that the plan follows. A table decides on brokers only."""
        report = recover_with_each(self.logs, {**self.databases, **self.brokers}, grace, leave=leave)
        report.add(recover_with_each(self.tables, self.brokers, grace, leave=leave))
        return report


def run(given: Given, grace: float, as_json: bool) -> int:
    """Returns the exit status. Raises BadArgument, StoreError."""
    crashed = crashed_cluster(given)
    path, journal = _applied(places_of(crashed))
    given.check()
    plan = verdicts_of(journal.report)
    _check_all_given(plan, given)
    rows: list[dict[str, Any]] = journal.report["branches"]

    def noted(ends: Sequence[BranchEnd]) -> None:
        for row, end in zip(rows, ends, strict=True):
            row["state"] = end.fate.word
        note(path, journal)

    known = [BranchOutcome.of_word(row.get("state", BranchOutcome.UNKNOWN.word)) for row in rows]
    with _site(plan, crashed, journal.report.get("cluster_id", ""), given) as (ours, site):
        try:
            ends, report = settle(plan, known, {**site.databases, BROKER: ours}, partial(site.recover, grace), noted)
        except (ResourceLost, ResourceRefused) as error:
            raise BadArgument(f"the broker is lost: {error}; what is done is done, run it again") from None
    found = _as_dict(path, ends, report)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        show_settled(found)
    return 0 if found["settled"] else 1


def _applied(places: ClusterPaths) -> tuple[Path, Journal]:
    if unfinished(places) is not None:
        raise BadArgument("a plan is in the middle of being carried out: stop the nodes, and finish it with --apply")
    found = last(places)
    if found is None:
        raise BadArgument(
            f"{places.record.notes} holds no plan that was applied: stop the nodes, and make one with --apply"
        )
    if not found[1].counts:
        raise BadArgument(
            f"the plan in {found[0]} was overtaken, and whether its record was ever written is not known: stop the "
            "nodes, and make a new one with --apply"
        )
    return found


def _check_all_given(plan: Sequence[Verdict], given: Given) -> None:
    """Whether each resource that the plan follows or settles is named."""
    there = {BROKER, "", *map(str, given.decisions), *map(shown, given.databases)}
    for verdict in plan:
        for place in (verdict.source, verdict.resource):
            if place not in there:
                raise BadArgument(f"the plan speaks of {place}: name it with --decisions or --database, as it is there")


@contextmanager
def _site(plan: Sequence[Verdict], crashed: Crashed, cluster_id: str, given: Given) -> Iterator[tuple[Broker, _Site]]:
    """Our broker, and all resources; connections end behind it. Raises BadArgument if no node of the cluster
    answers."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise BadArgument(f"recover --settle needs {' and '.join(missing)}: pip install 'txha[dtx]'")
    from recovery.coordinator.broker_resource import Broker
    from recovery.coordinator.decision_log import DecisionLog
    from recovery.coordinator.postgresql import Postgresql
    from recovery.coordinator.table import TableDecisions
    from recovery.dtx.hosts import urls_in

    check_brokers(given.brokers)
    check_databases(given.databases)
    addresses = given.brokers or _urls(crashed)
    sources = {verdict.source for verdict in plan if verdict.by is By.RECOVERY}
    brokers = {shown(urls): Broker(*urls_in(urls)) for urls in addresses}
    databases: dict[str, Resource] = {shown(dsn): Postgresql(dsn) for dsn in given.databases}
    site = _Site(
        brokers=dict(brokers),
        databases=databases,
        logs={str(path): partial(DecisionLog, path) for path in given.decisions if str(path) in sources},
        tables={shown(dsn): partial(TableDecisions, dsn) for dsn in given.databases if shown(dsn) in sources},
    )
    with ExitStack() as stack:
        for resource in (*brokers.values(), *databases.values()):
            stack.callback(resource.close)
        yield _ours(brokers, broker_name(crashed.cluster, cluster_id)), site


def _urls(crashed: Crashed) -> list[str]:
    """The nodes of a local cluster, as it is started without settings for them.

    Raises BadArgument, ClusterError: on the ports that a copy names listen the nodes of the cluster that it is of.
    """
    if not crashed.ports or crashed.directory is None:
        raise BadArgument("say where the nodes listen for clients: --broker URL")
    read_cluster(crashed.directory)
    return [",".join(f"amqp://guest:guest@127.0.0.1:{port}/" for port in crashed.ports)]


def _ours(brokers: dict[str, Broker], name: str) -> Broker:
    """That of the cluster that the plan was made for, which may have got its identity since, or not tell it."""
    names = {}
    for address, broker in brokers.items():
        try:
            if may_be(name, broker.name) or may_be(broker.name, name):
                return broker
            names[address] = f"is {broker.name}"
        except (ResourceLost, ResourceRefused) as error:
            names[address] = f"does not answer: {error}"
    said = "; ".join(f"{address} {what}" for address, what in names.items())
    raise BadArgument(f"no node of {name} is at hand: {said}")


def _as_dict(path: Path, ends: Sequence[BranchEnd], report: Report) -> dict[str, Any]:
    planned = {str(end.verdict.xid) for end in ends}
    missing = report.unreachable or report.older or report.waiting or report.contradicted or report.not_known
    done = all(end.settled for end in ends) and not missing
    return {
        "plan": str(path),
        "settled": done,
        "branches": [
            {
                "xid": str(end.verdict.xid),
                "resource": end.verdict.resource,
                "outcome": TO_BECOME[end.verdict.outcome],
                "by": end.verdict.by.value,
                "state": end.state,
                "settled": end.settled,
                "contrary": end.contrary,
                "why": end.why,
            }
            for end in ends
        ],
        "others": [
            {"xid": row.branch, "resource": row.resource, "state": row.fate.word, "why": row.why}
            for row in report.rows
            if row.branch not in planned
        ],
        "waiting": [{"transaction": transaction, "resource": resource} for transaction, resource in report.waiting],
        "unreachable": report.unreachable | report.older,
    }
