"""A plan for a crashed cluster, as JSON and as tables."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from broker_plugin.cli.addresses import shown
from broker_plugin.cli.layout import CONFIG_FILE
from broker_plugin.cli.recovery.crashed import Crashed, Given
from broker_plugin.cli.terminal import PlainConsole, say
from broker_plugin.cli.transactions.dtx_recover import complain
from recovery.planner.facts import Loss, Unnamed
from recovery.planner.plan import Action, Alternative, RecoveryPlan, SetAside, TakeOut, WriteRecord
from recovery.planner.verdicts import TO_BECOME, By

SHOWN = 20
"""So many lost things a table shows; JSON has all that are named."""
NAMED = 10_000
"""So many are named at most; the rest is counted."""

PLANNED = {"at": "resource", "should become": "outcome", "by": "by"}
"""Headings and keys of what a plan says of a branch."""


def as_dict(plan: RecoveryPlan, crashed: Crashed, given: Given) -> dict[str, Any]:
    """Everything of a plan, ready for JSON."""
    choice, site = plan.choice, plan.site
    ready = {member.node for member in site.record.ready} if site.record else set()
    return {
        "cluster": site.cluster,
        "cluster_id": site.cluster_id,
        "promote": choice.chosen.node if choice.chosen else None,
        "by_itself": choice.by_itself,
        "nothing_acknowledged_is_lost": choice.sure,
        "missing": list(choice.missing),
        "choose_between": [_choosable(each) for each in plan.alternatives],
        "for_people": plan.for_people,
        "reasons": list(choice.reasons),
        "doubts": list(plan.doubts),
        "record": msgspec.to_builtins(site.record),
        "record_trusted": choice.trusted,
        "stores": [
            {
                "node": store.node,
                "condition": store.condition.value,
                "position": str(store.tail),
                "checkpoint": str(store.applied),
                "ready": store.node in ready if site.record else None,
                "member": str(store.member) if store.member is not None else None,
                "rebuilt": store.rebuilt,
                "not_read": store.unread,
                "why": store.why,
            }
            for store in site.stores
        ],
        "queues": {
            name: {"messages": count, "digest": f"{digest:016x}"}
            for name, (count, digest) in plan.contents.queues.items()
        },
        "open_transactions": plan.contents.open_transactions,
        "lost": _losses(plan.lost),
        "lost_in_all": len(plan.lost),
        "discarded": _losses(plan.discarded),
        "discarded_in_all": len(plan.discarded),
        "unnamed": [_unnamed(gap) for gap in plan.unnamed],
        "branches": [
            {
                "xid": str(verdict.xid),
                "resource": verdict.resource,
                "outcome": TO_BECOME[verdict.outcome],
                "by": verdict.by.value,
                "reason": verdict.reason,
                "source": verdict.source,
            }
            for verdict in plan.branches
        ],
        "actions": [_sentence(action, crashed) for action in plan.actions],
        "directories": {name: str(path) for name, path in sorted(crashed.directories.items())},
        "next": _next(plan, crashed, given),
    }


def _choosable(each: Alternative) -> dict[str, Any]:
    return {
        "node": each.node,
        "position": str(each.position),
        "loses": each.loses,
        "acknowledged": each.acknowledged,
        "unnamed": each.unnamed,
    }


def _losses(losses: Iterable[Loss]) -> list[dict[str, Any]]:
    found = [
        {
            "kind": loss.kind,
            "name": loss.name,
            "position": str(loss.position),
            "nodes": list(loss.nodes),
            "what": loss.what,
            "told": loss.told.value,
        }
        for loss in losses
    ]
    return found[:NAMED]


def _unnamed(gap: Unnamed) -> dict[str, Any]:
    return {"node": gap.node, "first": gap.first, "last": gap.last, "why": gap.why}


def _sentence(action: Action, crashed: Crashed) -> str:
    if isinstance(action, SetAside):
        return f"set the store of {action.node} aside, in {crashed.directories[action.node]}: {action.why}"
    if isinstance(action, TakeOut):
        return f"write {crashed.record}: {' and '.join(action.nodes)} out of the ready set, nothing else"
    if isinstance(action, WriteRecord):
        record = action.record
        return f"write {crashed.record}: generation {record.generation}, ready set {record.preferred} alone"
    return f"set {crashed.record} aside: {action.why}"


def _next(plan: RecoveryPlan, crashed: Crashed, given: Given) -> list[dict[str, str]]:
    """The commands that come behind ``--apply``, in order."""
    if plan.choice.chosen is None:
        return _rebuild(plan, crashed, given) if plan.rebuild_from is not None else []
    steps = _start(crashed)
    if any(verdict.by in (By.HAND, By.RECOVERY) for verdict in plan.branches):
        brokers = [shown(urls) for urls in given.brokers] or ([] if crashed.ports else ["URL"])
        options = [
            ("--coordination", [given.coordination] if given.coordination else []),
            ("--decisions", given.decisions),
            ("--database", map(shown, given.databases)),
            ("--broker", brokers),
        ]
        words = [str(path) for path in given.directories]
        words += [str(word) for option, values in options for value in values for word in (option, value)]
        steps.append(_step("txha recover --settle", *words, why="settles the branches, as it says above by whom"))
    return steps


def _rebuild(plan: RecoveryPlan, crashed: Crashed, given: Given) -> list[dict[str, str]]:
    """A store is made anew from the log that it had."""
    store = plan.rebuild_from
    assert store is not None
    there = crashed.directories[store.node]
    aside = there.with_name(f"{there.name}.ruined")
    options = ["--node", store.node, "--cluster", plan.site.cluster]
    if plan.site.cluster_id:
        options += ["--cluster-id", plan.site.cluster_id]
    again = ["--coordination", str(given.coordination)] if given.coordination else []
    return [
        _step("mv", str(there), str(aside), why=f"keeps what {store.node} has"),
        _step("txha rebuild", "--log", str(aside), "--into", str(there), *options, why="makes its store from its log"),
        _step("cp", str(aside / CONFIG_FILE), str(there), why="brings its configuration back"),
        _step("txha recover", *map(str, given.directories), *again, why="plans with that store"),
    ]


def _start(crashed: Crashed) -> list[dict[str, str]]:
    if crashed.directory is not None and crashed.ports:
        command = f"--nodes {len(crashed.directories)} --base-port {min(crashed.ports)}"
        words = shlex.quote(str(crashed.directory))
        return [
            {
                "command": f"txha cluster --dir {words} {command}",
                "why": "starts all nodes, with their settings if given",
            }
        ]
    return [
        _step("txha node --config", str(path / CONFIG_FILE), why=f"starts {name}")
        for name, path in sorted(crashed.directories.items())
    ]


def _step(command: str, *words: str, why: str) -> dict[str, str]:
    return {"command": " ".join([command, *map(shlex.quote, words)]), "why": why}


# -- tables


def show(report: dict[str, Any]) -> None:
    """For a terminal."""
    console = PlainConsole()
    _stores(console, report)
    if report["unfinished"]:
        console.print("A plan is in the middle of being carried out; `--apply` finishes it. It was this one:")
    if report.get("overtaken"):
        kept = f"; it is kept in {report['given_up']}" if "given_up" in report else ""
        console.print(f"A plan was cut short, and is not gone on with: {report['overtaken']}{kept}.", soft_wrap=True)
    chosen = report["promote"]
    console.print(f"Promote {chosen}." if chosen else "No node can be promoted.")
    for reason in report["reasons"]:
        console.print(f"  {reason}")
    for store in report["stores"]:
        if store.get("not_read"):
            first, last = store["not_read"]
            console.print(
                f"  events {first} to {last} of {store['node']}'s log were not read: its checkpoint stands behind "
                "them; --deep reads all",
                soft_wrap=True,
            )
    _lost(console, report)
    _branches(console, "branches in doubt", report["branches"], PLANNED)
    actions = report["actions"]
    if report["branches"] and not actions and report["applied"] != "":
        actions = ["write this plan down, for --settle"]
    for heading, lines in (
        ("Done:" if report["applied"] else "To be done (--apply):", actions),
        ("Then:", [f"{step['command']}    # {step['why']}" for step in report["next"]]),
    ):
        if lines:
            console.print(heading)
        for line in lines:
            console.print(f"  {line}", soft_wrap=True)
    for sentence in (*report["doubts"], *filter(None, [report.get("refused")])):
        say(f"txha: {sentence}", beside=True)


def _stores(console: Console, report: dict[str, Any]) -> None:
    table = Table(title=f"stores of {report['cluster']}", box=SIMPLE_HEAD)
    for column in ("node", "store", "position", "checkpoint", "ready"):
        table.add_column(column, no_wrap=True)
    table.add_column("why", overflow="fold")
    words = {True: "yes", False: "no", None: "?"}
    for store in report["stores"]:
        cells = (store["node"], store["condition"], store["position"], store["checkpoint"], words[store["ready"]])
        table.add_row(*cells, store["why"])
    console.print(table)


def _lost(console: Console, report: dict[str, Any]) -> None:
    if report["promote"] is None:
        return
    if report["nothing_acknowledged_is_lost"]:
        console.print("Nothing that was acknowledged is lost.")
    else:
        console.print("Something that was acknowledged may be lost:")
        for node in report["missing"]:
            console.print(f"  what only {node} held: bring its store back, or accept that with --accept-missing {node}")
    for each in report.get("choose_between", ()):
        console.print(f"  {_alternative(each)}", soft_wrap=True)
    _table(console, "would be lost", report["lost"], report["lost_in_all"])
    _table(console, "never told, or given up before", report["discarded"], report["discarded_in_all"])
    if report["discarded"] and not report["record_trusted"]:
        console.print("  (never told, unless an operator accepted its loss before: without the record this is unknown)")
    for gap in report["unnamed"] if not report["nothing_acknowledged_is_lost"] else ():
        last = gap["last"] if gap["last"] is not None else "an unknown end"
        console.print(f"  events {gap['first']} to {last} of {gap['node']} cannot be named: {gap['why']}")


def _alternative(each: dict[str, Any]) -> str:
    """What is lost if this store counts."""
    loses = ", ".join(f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in each["loses"].items()) or "nothing"
    more = f", and {each['unnamed']} gaps that cannot be named" if each["unnamed"] else ""
    what = f"loses {loses} ({each['acknowledged']} certainly acknowledged){more}"
    return f"--choose {each['node']}, whose store is at {each['position']}: {what}"


def _table(console: Console, title: str, rows: list[dict[str, Any]], count: int) -> None:
    if not rows:
        return
    table = Table(title=title, box=SIMPLE_HEAD)
    for column in ("position", "what", "name", "", "told", "only at"):
        table.add_column(column, overflow="fold")
    for row in rows[:SHOWN]:
        cells = (row["position"], row["kind"], row["name"], row["what"], row["told"])
        table.add_row(*cells, ", ".join(row["nodes"]))
    if count > SHOWN:
        table.caption = f"and {count - SHOWN} more; see --json"
    console.print(table)


def _branches(
    console: Console, title: str, rows: list[dict[str, Any]], columns: Mapping[str, str], why: str = "reason"
) -> None:
    """``columns``: heading and key of what stands between the branch and the reason."""
    if not rows:
        return
    table = Table(title=title, box=SIMPLE_HEAD)
    longest = max(len(row["xid"]) for row in rows)
    table.add_column("branch", no_wrap=True, min_width=longest)
    for column in (*columns, "because"):
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(row["xid"], *(row[key] for key in columns.values()), row[why])
    PlainConsole(max(console.width, longest + 80)).print(table)


def show_settled(found: dict[str, Any]) -> None:
    """What became of the branches of a plan, for a terminal."""
    console = PlainConsole()
    _branches(console, "branches of the plan", found["branches"], {**PLANNED, "is": "state"}, "why")
    _branches(console, "others that were met", found["others"], {"at": "resource", "is": "state"}, "why")
    complain(found)
    left = sum(not row["settled"] for row in found["branches"])
    if found["settled"]:
        console.print(f"Every branch has ended as {found['plan']} says.", soft_wrap=True)
    elif left:
        console.print(f"{left} of {len(found['branches'])} have not ended as {found['plan']} says.", soft_wrap=True)
