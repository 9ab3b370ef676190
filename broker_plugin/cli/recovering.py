"""The work of ``txha recover``: survey, plan, tell, and carry out."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import typer

from broker_plugin.cli.asking import BadArgument
from broker_plugin.cli.crashed import Crashed, crashed_cluster
from broker_plugin.cli.dtx_recover import shown
from broker_plugin.cli.recovery_report import as_dict, show
from broker_plugin.node.sqlite_coordination import SqliteCoordination
from ha.coordination import CoordinationError
from recovery.planner.apply import Journal, Places, carry_out, finished, nobody_runs, unfinished
from recovery.planner.branches import Verdict, said_before
from recovery.planner.facts import Evidence, RecordState
from recovery.planner.plan import Plan
from recovery.planner.site import RecordFound, look, plan_for
from txobserver.store import StoreError
from txobserver.xid import Xid


def run(
    directories: Sequence[Path],
    coordination: Path | None,
    decisions: list[Path],
    databases: list[str],
    apply: bool,
    accept_data_loss: bool,
    as_json: bool,
) -> int:
    """Returns the exit status. Raises BadArgument, StoreError."""
    crashed = crashed_cluster(directories, coordination)
    places = Places(crashed.directories, crashed.record, partial(_open_record, crashed.cluster))
    with nobody_runs(crashed.locked, apply):
        journal = unfinished(places)
        state: dict[str, object] = {"unfinished": journal is not None, "applied": None}
        if journal is None:
            earlier = {xid: each for done in finished(places) for xid, each in said_before(done.report).items()}
            plan = _plan(crashed, decisions, databases, earlier)
            journal = Journal(plan.actions, as_dict(plan, crashed, decisions, databases))
            if apply and plan.loses and not accept_data_loss:
                state["refused"] = "something acknowledged may be lost, and --accept-data-loss was not given"
        if apply and "refused" not in state:
            done = str(carry_out(journal, places)) if journal.actions else ""
            state = {"unfinished": False, "applied": done}
    report = {**journal.report, **state}
    if as_json:
        typer.echo(json.dumps(report, indent=2))
    else:
        show(report)
    return 1 if report["for_people"] else 0


def _plan(crashed: Crashed, decisions: list[Path], databases: list[str], earlier: Mapping[str, Verdict]) -> Plan:
    if (decisions or databases) and find_spec("psycopg") is None:
        raise BadArgument("--decisions and --database need psycopg: pip install 'txha[dtx]'")
    for path in decisions:
        if not path.is_file():
            raise BadArgument(f"there is no decision log {path}")

    def ask(branches: Iterable[Xid]) -> Evidence:
        if not decisions and not databases:
            return Evidence()
        from recovery.planner.evidence import gather

        return gather(decisions, [(shown(dsn), dsn) for dsn in databases], branches)

    found = read_record(crashed.record, crashed.cluster)
    site, surveyed = look(crashed.cluster, crashed.directories, found, crashed.nodes)
    return plan_for(site, surveyed, ask, earlier)


def read_record(path: Path, cluster: str) -> RecordFound:
    """The coordination record, read from a copy of its file: what a crash left in it is not touched."""
    if not path.exists():
        return None, RecordState.GONE, ""
    with tempfile.TemporaryDirectory(prefix="txha-recover-") as directory:
        copy = Path(directory) / path.name
        try:
            for suffix in ("", "-journal"):
                if (beside := path.with_name(path.name + suffix)).exists():
                    shutil.copyfile(beside, copy.with_name(copy.name + suffix))
        except OSError as error:
            raise StoreError(f"{error.filename or path} cannot be read: {error.strerror}") from error
        store = SqliteCoordination(copy, cluster)
        try:
            record = store.read()
        except CoordinationError as error:
            return None, RecordState.DAMAGED, str(error).replace(str(copy), str(path))
        finally:
            store.close()
    return record, RecordState.GONE if record is None else RecordState.INTACT, ""


def _open_record(cluster: str, path: Path) -> SqliteCoordination:
    return SqliteCoordination(path, cluster)
