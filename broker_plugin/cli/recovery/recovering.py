"""The work of ``txha recover``: survey, plan, tell, and carry out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import msgspec
import typer

from broker_plugin.cli.addresses import shown
from broker_plugin.cli.asking import BadArgument
from broker_plugin.cli.recovery.crashed import Crashed, Given, crashed_cluster
from broker_plugin.cli.recovery.recovery_report import as_dict, show
from broker_plugin.node.timing import default_lease
from ha.membership.record import CoordinationError, RecordStore, Snapshot
from recovery.planner.apply import (
    ClusterPaths,
    Journal,
    PlanProgress,
    carry_out,
    check_directories,
    finished,
    give_up,
    last,
    no_node_runs,
    unfinished,
)
from recovery.planner.choice import Choice
from recovery.planner.facts import Evidence, Site
from recovery.planner.lease import WATCH_SECONDS, LeaseWatch
from recovery.planner.overtaken import overtaken, progress_of
from recovery.planner.plan import RecoveryPlan
from recovery.planner.site import look, plan_for
from recovery.planner.survey import Surveyed
from recovery.planner.verdicts import Verdict, said_before, verdicts_of
from txobserver.ports.store import StoreError
from txobserver.xid import Xid


@dataclass(frozen=True)
class Accepted:
    """The losses that an operator accepts: what only the stores of ``nodes`` held; ``unnamed``: and who else may be,
    or the members where the store is that of none.

    ``chosen``: of stores that exclude each other, this node's counts; what only the others hold is lost.
    """

    nodes: frozenset[str] = frozenset()
    unnamed: bool = False
    chosen: str = ""

    def check(self, choice: Choice) -> None:
        """Raises BadArgument if the plan does not have the store chosen that was named."""
        if self.chosen and not choice.between:
            raise BadArgument(f"--choose {self.chosen}: no two stores exclude each other; there is nothing to choose")
        if self.chosen and not choice.picked:
            raise BadArgument(f"--choose {self.chosen}: the choice is between {' and '.join(choice.between)}")

    def refuses(self, choice: Choice) -> str | None:
        """Why the plan must not be carried out, in a sentence. Raises BadArgument for what has no effect."""
        if needless := sorted(self.nodes - set(choice.missing)):
            raise BadArgument(f"--accept-missing {needless[0]}: the plan asks for no such consent, leave it out")
        if self.unnamed and not choice.asks:
            raise BadArgument(
                "--accept-data-loss is for a cluster whose nodes are not all known, or of whose members no store is "
                "left; see --accept-missing"
            )
        if choice.asks and not self.unnamed:
            return choice.asks
        if missing := [node for node in choice.missing if node not in self.nodes]:
            words = " ".join(f"--accept-missing {node}" for node in missing)
            return (
                f"what only {', '.join(missing)} held may have been acknowledged: bring the missing stores back, "
                f"or accept the loss with {words}"
            )
        if choice.between and not choice.picked:
            words = " or ".join(f"--choose {node}" for node in choice.between)
            return (
                f"the stores of {' and '.join(choice.between)} exclude each other, and each may hold what was "
                f"acknowledged: say which one counts with {words}"
            )
        return None


def run(given: Given, apply: bool, accepted: Accepted, as_json: bool, deep: bool = False) -> int:
    """Returns the exit status; ``deep``: all of the logs is read. Raises BadArgument, StoreError."""
    crashed = crashed_cluster(given)
    crashed.check_record()
    places = places_of(crashed)
    with no_node_runs(crashed.locked, apply):
        lease = LeaseWatch(crashed.record, partial(read_record, crashed.record, crashed.cluster))
        left = unfinished(places)
        site, surveyed = look(crashed.cluster, crashed.directories, lease.found, crashed.nodes, accepted.chosen, deep)
        why = overtaken(left, site) if left is not None else ""
        state: dict[str, object] = {"unfinished": left is not None and not why, "applied": None}
        if left is not None and not why:
            journal = left
            _check_unchanged(left, places, accepted)
        else:
            plans = finished(places)
            if left is not None:
                left = msgspec.structs.replace(left, progress=progress_of(left, site))
                plans += [left] if left.progress is not PlanProgress.PLANNED else []
            plan = _plan(site, surveyed, given, _said(plans))
            accepted.check(plan.choice)
            journal = Journal(plan.actions, as_dict(plan, crashed, given))
            if apply and (refused := accepted.refuses(plan.choice)):
                state["refused"] = refused
        if why:
            state["overtaken"] = why
        watched = max(WATCH_SECONDS, default_lease(crashed.record), crashed.lease_ttl)
        lease.check(watched if apply and "refused" not in state else 0.0)
        if apply and "refused" not in state:
            if left is not None and why:
                state["given_up"] = str(give_up(left, places, why))
            done = str(carry_out(journal, places)) if journal.actions or _settles(journal, places) else ""
            state |= {"unfinished": False, "applied": done}
    report = {**journal.report, **state}
    if as_json:
        typer.echo(json.dumps(report, indent=2))
    else:
        show(report)
    return 1 if report["for_people"] else 0


def places_of(crashed: Crashed) -> ClusterPaths:
    """Where the plans for this cluster are kept, and what they change."""
    return ClusterPaths(crashed.directories, crashed.cluster, crashed.record)


def _settles(journal: Journal, places: ClusterPaths) -> bool:
    """Whether this plan has something to say on branches that the last one has not said."""
    before = last(places)
    found = verdicts_of(journal.report)
    return bool(found) and (before is None or not before[1].counts or verdicts_of(before[1].report) != found)


def _check_unchanged(journal: Journal, places: ClusterPaths, accepted: Accepted) -> None:
    """Whether the plan in the middle is the one that is meant. Raises BadArgument, StoreError."""
    if accepted.chosen not in ("", journal.report["promote"]):
        raise BadArgument(
            f"--choose {accepted.chosen}: a plan is in the middle of being carried out, with "
            f"{journal.report['promote']}: finish it with --apply first"
        )
    check_directories(journal, places)


def _said(plans: Iterable[Journal]) -> dict[str, Verdict]:
    """What plans that took effect said of branches, the oldest first."""
    return {xid: each for done in plans for xid, each in said_before(done.report).items()}


def _plan(site: Site, surveyed: list[Surveyed], given: Given, earlier: Mapping[str, Verdict]) -> RecoveryPlan:
    given.check()

    def ask(branches: Iterable[Xid]) -> Evidence:
        if not given.decisions and not given.databases:
            return Evidence()
        from recovery.planner.evidence import gather

        return gather(given.decisions, [(shown(dsn), dsn) for dsn in given.databases], branches)

    return plan_for(site, surveyed, ask, earlier)


def read_record(record: RecordStore, cluster: str) -> Snapshot:
    """The coordination record; what a crash left in its store is not touched.

    Raises StoreError if it cannot be read, or is another cluster's: that may be a wrong --coordination, and whatever
    state it is in, it is not damage to be set aside.
    """
    store = record.open(cluster)
    try:
        return store.snapshot()
    except CoordinationError as error:
        raise StoreError(str(error)) from error
    finally:
        store.close()
