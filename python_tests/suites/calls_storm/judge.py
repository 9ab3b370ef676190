"""Whether the storm has left what it must (P13): one order on all nodes, in force, and nothing of the rest."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b

from python_tests.suites.calls_storm.site import CLOSED, LISTENERS, OPEN, RAISED, Ran, Row, StormSite
from python_tests.suites.calls_storm.storm import Made

RECORDED = {"done", "lagging"}


def digest(rows: Sequence[Row]) -> str:
    """Of the order of all calls: (tnx_id, operation), and what they were about."""
    lines = [f"{row['tnx_id']} {row['operation']} {row['name']} {row['arguments']} {row['id']}" for row in rows]
    return blake2b("\n".join(lines).encode(), digest_size=8).hexdigest()


def breaches(site: StormSite, made: Sequence[Made]) -> list[str]:
    """Every promise that does not hold, in a sentence each."""
    rows = {node: site.ask(node, "list") for node in site.nodes}
    first = rows[site.nodes[0]]
    found = []
    if len({digest(each) for each in rows.values()}) > 1:
        found.append(f"the nodes hold different calls: {', '.join(digest(each) for each in rows.values())}")
    numbers = [row["tnx_id"] for row in first]
    if numbers != list(range(begin := min(numbers, default=1), begin + len(numbers))):
        found.append(f"there is a gap in the numbers: {numbers}")
    found += against_answers(made, {row["id"]: row for row in first})
    wanted = last_of_each(first)
    for node in site.nodes:
        in_force = site.in_force(node)
        found += [
            f"{node} has {in_force[name]!r} in force as {name}, and call {wanted.get(name)} was the last"
            for name in in_force
            if in_force[name] != wanted.get(name, _without_a_call(name, in_force[name]))
        ]
        found += in_order(node, site.ran(node), {row["id"]: row["tnx_id"] for row in first})
    return found


def against_answers(made: Sequence[Made], recorded: dict[str, Row]) -> list[str]:
    """What callers were told, against what is recorded."""
    found = []
    for each in made:
        result, there = each.answer["result"], recorded.get(each.answer["id"])
        if result in RECORDED and (there is None or there["tnx_id"] != each.answer["tnx_id"]):
            found.append(f"call {each.answer['id']} was answered {result}, and is not recorded so")
        if result == "not made" and there is not None:
            found.append(f"call {there['tnx_id']} was answered as not made ({each.answer['reason']}), and is recorded")
    strangers = recorded.keys() - {each.answer["id"] for each in made}
    return found + [f"call {recorded[each]['tnx_id']} was made by no caller" for each in sorted(strangers)]


def last_of_each(rows: Sequence[Row]) -> dict[str, str]:
    """What is to be in force, by name."""
    found = {}
    for row in rows:
        given = json.loads(row["arguments"])
        if row["operation"] == "flag":
            found[row["name"]] = RAISED
        elif row["operation"] == "listener":
            found[row["name"]] = OPEN if given["open"] else CLOSED
        else:
            found[row["name"] or "log_level"] = given["arg"][0] if "arg" in given else given["level"]
    return found


def _without_a_call(name: str, there: str) -> str:
    """What is in force where no call has said anything: the level is that of the node's own file."""
    if name == "log_level":
        return there
    return CLOSED if name in LISTENERS else ""


def in_order(node: str, ran: Sequence[Ran], numbers: dict[str, int]) -> list[str]:
    """The hooks of recorded calls ran by rising numbers; one that is not recorded was undone behind it."""
    found, last, begun = [], 0, ""
    for each in ran:
        number = numbers.get(each.call)
        if number is None and not each.undo:
            begun = each.call
        elif each.undo:
            if number is not None:
                found.append(f"{node} has undone call {number}, which is recorded")
            begun = ""
        elif number is not None:
            if begun:
                found.append(f"{node} ran call {number} before {begun}, which it had begun, was undone")
            if number < last:
                found.append(f"{node} ran call {number} behind call {last}")
            last = max(last, number)
    return found + ([f"{node} has never undone {begun}, which is recorded nowhere"] if begun else [])
