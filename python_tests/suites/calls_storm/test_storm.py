"""A small storm of calls, fixed; and what its judge would find."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from python_tests.suites.calls_storm.campaign import campaign
from python_tests.suites.calls_storm.judge import breaches, digest
from python_tests.suites.calls_storm.site import CLOSED, FLAG, NAMES, OPEN, RAISED, Ran
from python_tests.suites.calls_storm.storm import Made

Change = Callable[["Left"], object]


@pytest.mark.slice
def test_a_small_storm(tmp_path: Path) -> None:
    result = campaign(tmp_path, 90, 3, 200, 20, True, print)
    assert result.breaches == [] and result.recorded and sum(result.killed.values()) > 0


class Left:
    """What a storm of three calls has left, of which the second was not made."""

    def __init__(self) -> None:
        self.nodes = ["node-1", "node-2"]
        self.rows = {node: [row(1, "a" * 32, "h0", "v0"), row(2, "c" * 32, "h0", "v2")] for node in self.nodes}
        self.hooks = {
            "node-1": [Ran("a" * 32, False, "h0", "v0"), Ran("c" * 32, False, "h0", "v2")],
            "node-2": [
                *(Ran("a" * 32, False, "h0", "v0"), Ran("b" * 32, False, "h0", "v1"), Ran("b" * 32, True, "h0", "v0")),
                *(Ran("c" * 32, False, "h0", "v2"), Ran("c" * 32, False, "h0", "v2")),
            ],
        }
        others = {"log_level": "warning", "side": CLOSED, "far": CLOSED, FLAG: ""}
        self.forced = {node: {**dict.fromkeys(NAMES, ""), "h0": "v2", **others} for node in self.nodes}
        self.made = [
            made("a", {"result": "done", "tnx_id": 1}),
            made("b", {"result": "not made", "reason": "no"}),
            made("c", {"result": "no answer"}),
        ]

    def ask(self, node: str, command: str) -> Any:
        assert command == "list"
        return self.rows[node]

    def ran(self, node: str) -> list[Ran]:
        return self.hooks[node]

    def in_force(self, node: str) -> dict[str, str]:
        return self.forced[node]

    def found(self) -> list[str]:
        site: Any = self
        return breaches(site, self.made)


def row(tnx_id: int, identifier: str, name: str, argument: str) -> dict[str, Any]:
    return {
        "tnx_id": tnx_id,
        "operation": "hook",
        "name": name,
        "arguments": f'{{"arg":["{argument}"]}}',
        "id": identifier,
    }


def made(letter: str, answer: dict[str, Any]) -> Made:
    return Made("node-2", "hook", "h0", "v", 1, {**answer, "id": letter * 32}, 0.1)


def test_what_is_as_it_must_be() -> None:
    assert Left().found() == []


LISTENER = row(3, "d" * 32, "far", "") | {"operation": "listener", "arguments": '{"open":true}'}
FLAGGED = row(3, "e" * 32, FLAG, "") | {"operation": "flag", "arguments": "{}"}


def test_what_calls_have_left_in_force() -> None:
    left = Left()
    for node in left.nodes:
        left.rows[node] += [LISTENER, FLAGGED | {"tnx_id": 4}]
        left.forced[node] |= {"far": OPEN, FLAG: RAISED}
    left.made += [Made("node-1", "x", "y", "", 1, {"result": "no answer", "id": letter * 32}, 0.1) for letter in "de"]
    assert left.found() == []


CHANGES: list[tuple[str, Change]] = [
    ("different calls", lambda left: left.rows["node-2"].pop()),
    ("different calls", lambda left: left.rows["node-2"].__setitem__(1, row(2, "c" * 32, "h1", "v2"))),
    ("a gap", lambda left: [each.__setitem__(1, row(3, "c" * 32, "h0", "v2")) for each in left.rows.values()]),
    ("is not recorded so", lambda left: left.made.__setitem__(0, made("a", {"result": "done", "tnx_id": 2}))),
    ("is not recorded so", lambda left: left.made.__setitem__(1, made("b", {"result": "lagging", "tnx_id": 3}))),
    ("as not made", lambda left: left.made.__setitem__(2, made("c", {"result": "not made", "reason": "no"}))),
    ("by no caller", lambda left: left.made.pop()),
    ("in force", lambda left: left.forced["node-1"].__setitem__("h0", "v0")),
    ("in force", lambda left: left.forced["node-1"].__setitem__("h5", "v1")),
    ("in force as side", lambda left: left.forced["node-1"].__setitem__("side", OPEN)),
    ("in force as far", lambda left: [each.append(LISTENER) for each in left.rows.values()]),
    ("in force as calls", lambda left: left.forced["node-2"].__setitem__(FLAG, RAISED)),
    ("in force as calls", lambda left: [each.append(FLAGGED) for each in left.rows.values()]),
    ("never undone", lambda left: left.hooks["node-1"].append(Ran("b" * 32, False, "h0", "v1"))),
    ("before b", lambda left: left.hooks["node-2"].pop(2)),
    ("behind call 2", lambda left: left.hooks["node-1"].reverse()),
    ("undone call 2", lambda left: left.hooks["node-1"].append(Ran("c" * 32, True, "h0", "v2"))),
]


@pytest.mark.parametrize(("said", "change"), CHANGES, ids=[f"{n}-{said}" for n, (said, _) in enumerate(CHANGES)])
def test_each_breach_is_found(said: str, change: Change) -> None:
    left = Left()
    change(left)
    assert any(said in each for each in left.found()), left.found()


def test_the_digest_is_of_the_order() -> None:
    rows = Left().rows["node-1"]
    assert digest(rows) == digest(list(rows)) != digest(rows[::-1])
