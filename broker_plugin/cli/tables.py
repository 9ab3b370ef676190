"""What people look at: tables of nodes, transactions and branches."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from broker_plugin.cli.terminal import PlainConsole, say
from ha.membership.members import shown
from txobserver.printable import printable

_COLOURS = {"active": "bold green", "ready": "green", "down": "bold red", "recovering": "yellow"}


def status_table(nodes: list[dict[str, Any]]) -> None:
    """One row a node."""
    table = Table(title="txha cluster", box=SIMPLE_HEAD)  # eight columns, and a terminal may have 80 characters
    for column in ("node", "state", "gen.", "ready", "position", "open", "prepared"):
        table.add_column(column, no_wrap=True)
    table.add_column("lag (events)", overflow="fold")
    for node in nodes:
        colour = _COLOURS.get(node["state"], "yellow")
        lag = ", ".join(f"{name} {b['lag_events']}" for name, b in sorted(node.get("backups", {}).items()))
        table.add_row(
            node["name"],
            Text(printable(node["state"]), colour),
            str(node["generation"]),
            "yes" if node["ready"] else "no",
            node.get("position", ""),
            str(node["open_transactions"]),
            str(node["prepared_transactions"]),
            lag,
        )
    cores = sorted({node["core"] for node in nodes if "core" in node})
    table.caption = f"core: {', '.join(cores)}" if cores else None
    console = PlainConsole()
    console.print(table)
    if line := versions_line(nodes):
        console.print(line, soft_wrap=True)
    for node in nodes:
        for key in ("shortage", "waits_for_operator", "record_error", "door_error"):
            if node.get(key):
                console.print(f"{node['name']}: {node[key]}", style="bold red", soft_wrap=True)
        if line := calls_line(node):
            console.print(f"{node['name']}: {line}", style="bold red", soft_wrap=True)
        for line in room_lines(node):
            console.print(f"{node['name']}: {line}", soft_wrap=True)
        if node.get("alarms"):
            said = f"publishers are blocked: {', '.join(node['alarms'])}"
            console.print(f"{node['name']}: {said}", style="bold red", soft_wrap=True)
        if node.get("unsupported") and node["state"] == "active":
            _unsupported(console, node["unsupported"])
        if node.get("loss_accepted") and node["state"] == "active":
            said = f"the loss of data was accepted for generation {node['loss_accepted']}"
            console.print(f"{node['name']}: {said}", style="yellow", soft_wrap=True)


def users_table(users: list[dict[str, Any]]) -> None:
    """One row a user."""
    _texts(("user", "tags"), ((user["name"], ", ".join(user["tags"])) for user in users))


_MEMBER_IS = ("reached", "primary", "ready", "counts")


def members_table(node: str, found: dict[str, Any]) -> None:
    """One row a member; then what is so of all of them. ``node``: which one says so."""
    said = (
        (row["name"], shown(row["host"], row["port"]), *(_yes(row[key]) for key in _MEMBER_IS))
        for row in found["members"]
    )
    _texts(("member", "address", *_MEMBER_IS), said)
    if found["in_record"]:
        where = f"change {found['change']} of the members in the record"
    else:
        where = f"by the file of {node}: the record does not say who is a member"
    say(f"{where}; min_ready is {found['min_ready']}")
    if found.get("record_error"):  # an earlier version does not say it
        say(f"this is what {node} last knew, and may be old: {found['record_error']}")
    if unreached := [row["name"] for row in found["members"] if not row["reached"]]:
        say(f"{node} does not reach {', '.join(unreached)}: is it down, or at another address?")
    for store in found["removed_stores"]:
        say(f"refused until it is discarded: the store {store}")


def _yes(said: bool) -> str:
    return "yes" if said else "no"


def vhosts_table(rows: list[dict[str, Any]]) -> None:
    """One row a virtual host."""
    said = ((row["name"], row["description"], ", ".join(row["tags"]), _state(row)) for row in rows)
    _texts(("virtual host", "description", "tags", "state"), said)


def _state(vhost: dict[str, Any]) -> str:
    return "being deleted" if vhost["going"] else "there"


def permissions_table(rows: list[dict[str, Any]]) -> None:
    """One row a user and virtual host."""
    keys = ("name", "vhost", "configure", "write", "read")
    _texts(("user", *keys[1:]), (tuple(row[key] for key in keys) for row in rows))


def topic_permissions_table(rows: list[dict[str, Any]]) -> None:
    """One row a user and exchange."""
    keys = ("name", "vhost", "scope", "write", "read")
    _texts(("user", "vhost", "exchange", "write", "read"), (tuple(row[key] for key in keys) for row in rows))


def policies_table(rows: list[dict[str, Any]]) -> None:
    """One row a policy."""
    keys = ("name", "vhost", "pattern", "apply_to")
    said = ((*(row[key] for key in keys), str(row["priority"]), json.dumps(row["definition"])) for row in rows)
    _texts(("policy", "vhost", "pattern", "apply to", "priority", "definition"), said)


def left_out_table(rows: list[dict[str, str]]) -> None:
    """One row an entry of a file of definitions that cannot be honoured."""
    _texts(("cannot be honoured", "why"), ((row["entry"], row["why"]) for row in rows))


def limits_table(rows: list[dict[str, Any]]) -> None:
    """One row a limit."""
    said = ((row["kind"].replace("_limit", ""), row["name"], row["scope"], str(row["most"])) for row in rows)
    _texts(("of", "name", "limit", "most"), said)


def _texts(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table of texts, some of which a client or another operator has written."""
    table = Table(box=SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(each)) for each in row))
    PlainConsole().print(table)


UNSUPPORTED_SHOWN = 20
"""Queues whose arguments have no effect here: so many are shown below the table, and all with --json."""


def _unsupported(console: Console, queues: dict[str, list[str]]) -> None:
    for name in sorted(queues)[:UNSUPPORTED_SHOWN]:
        said = f"queue '{name}' was declared with {', '.join(queues[name])}, which has no effect here"
        console.print(said, style="yellow", soft_wrap=True)
    if len(queues) > UNSUPPORTED_SHOWN:
        console.print(f"and {len(queues) - UNSUPPORTED_SHOWN} more queues; --json tells all", style="yellow")


def versions_line(nodes: Sequence[dict[str, Any]]) -> str:
    """Which node runs which release, in the middle of an upgrade; empty where all that answer run the same."""
    told = {node["name"]: printable(str(node.get("version", "0.1.0"))) for node in nodes if node["state"] != "down"}
    if len(set(told.values())) < 2:
        return ""
    return f"versions: {', '.join(f'{printable(name)} {version}' for name, version in sorted(told.items()))}"


def calls_line(node: dict[str, Any]) -> str:
    """What is wrong with cluster calls at this node; empty where it has run all. An earlier version does not say it."""
    calls = node.get("calls") or {}
    if calls.get("failing"):
        return f"cluster call {calls['failing']} fails here: {calls['reason']}; see `txha calls status`"
    if calls.get("begun") and calls.get("reason"):
        return f"a cluster call that was begun here cannot be undone: {calls['reason']}"
    return f"{calls['behind']} cluster calls behind; see `txha calls status`" if calls.get("behind") else ""


def room_lines(node: dict[str, Any]) -> list[str]:
    """What clients of the active primary make it hold, and what they may, in words. Of another node nothing."""
    if node["state"] != "active" or "open_work" not in node:
        return []
    memory, work, disk = node["memory"], node["open_work"], node["disk"]
    free = "not known" if disk["free"] < 0 else _mib(disk["free"])
    return [
        f"memory of clients {_mib(memory['held'])}, blocked above {_mib(memory['high_bytes'])}; "
        f"free on disk {free}, blocked below {_mib(disk['least'])}",
        f"open in transactions {_mib(work['bytes'])} of {_mib(work['most_open_bytes'])}; one has at most "
        f"{_mib(work['most_bytes'])} and {work['most_events']} events, a connection {_mib(work['most_client_bytes'])}",
    ]


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.0f} MiB"


def transactions_table(node: str, rows: list[dict[str, Any]]) -> None:
    """One row a transaction."""
    table = Table(title=f"transactions that have not ended, at {node}")
    for column in ("transaction", "state", "events", "queues", "participants"):
        table.add_column(column)
    for row in rows:
        queues, participants = ", ".join(row["queues"]), ", ".join(row["participants"])
        table.add_row(row["id"], row["state"], str(row["events"]), queues, participants)
    _print(table)


def branches_table(rows: list[dict[str, Any]]) -> None:
    """One row a branch. Its name is never cut, whatever the terminal's width, since people copy it."""
    table = Table(title="branches that are prepared, or decided by an operator", box=SIMPLE_HEAD)
    longest = max((len(row["xid"]) for row in rows), default=0)
    table.add_column("branch", no_wrap=True, min_width=longest)
    for column in ("state", "age (s)", "gen.", "puts into", "takes from"):
        table.add_column(column, overflow="fold")
    for row in rows:
        puts, takes = (
            ", ".join(f"{queue} {count}" for queue, count in row.get(kind, {}).items())
            for kind in ("enqueues", "dequeues")
        )
        age = f"{row['age']:.0f}" if "age" in row else ""
        table.add_row(row["xid"], row["state"], age, str(row.get("generation", "")), puts, takes)
    _print(table, longest + 80)


def recovered_table(rows: list[dict[str, Any]]) -> None:
    """One row a branch that a recovery run has met."""
    table = Table(title="branches that were in doubt", box=SIMPLE_HEAD)
    for column in ("branch", "resource", "decision", "is", "why"):
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(row["branch"], row["resource"], row["decision"], row["state"], row["why"])
    _print(table)


def left_by_spark_table(rows: list[dict[str, Any]]) -> None:
    """One row a branch that a sink of Spark had left prepared."""
    table = Table(title="branches that drivers of Spark have left", box=SIMPLE_HEAD)
    for column in ("query", "batch", "branch", "state"):
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(str, row.values()))
    _print(table)


def _print(table: Table, width: int = 0) -> None:
    PlainConsole(max(PlainConsole().width, width)).print(table)
