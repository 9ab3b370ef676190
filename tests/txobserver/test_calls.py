"""How many calls a member is to run yet, as its status says: as many as it then runs, one by one."""

from __future__ import annotations

import msgspec
import pytest

from txobserver.calls import (
    FAST_FORWARD,
    NO_MARK,
    RESET,
    SKIP,
    CallControl,
    CallMark,
    CallRecord,
    KeptCalls,
    call_step,
    control_step,
)
from txobserver.events import Configure
from txobserver.ids import Position


def kept(*steps: Configure) -> KeptCalls:
    calls = KeptCalls()
    for number, step in enumerate(steps, 1):
        calls.apply(msgspec.structs.replace(step, config_id=number), Position(1, number))
    return calls


def call(name: str) -> Configure:
    return call_step("level", CallRecord(name.encode() * 16, 1, name, b"", "a", 7, ["a/1"], 100))


def control(operation: str, tnx_id: int, member: str = "a/1") -> Configure:
    return control_step(operation, CallControl(b"c" * 16, member, tnx_id))


CALLS = [call(name) for name in "wxyz"]


@pytest.mark.parametrize(
    ("controls", "cursor", "behind"),
    [
        ([], 0, 4),
        ([], 2, 2),
        ([], 4, 0),
        ([control(SKIP, 2)], 0, 3),
        ([control(SKIP, 2)], 2, 2),
        ([control(SKIP, 2, "b/1")], 0, 4),
        ([control(FAST_FORWARD, 3)], 0, 1),
        ([control(FAST_FORWARD, 3, "b/1")], 0, 4),
        ([control(RESET, 0, "")], 0, 0),
        ([control(RESET, 0, ""), call("v")], 0, 1),
    ],
)
def test_as_many_as_it_runs(controls: list[Configure], cursor: int, behind: int) -> None:
    calls = kept(*CALLS, *controls)
    mark, runs = CallMark(cursor, NO_MARK.position), 0
    while (following := calls.next_for("a/1", mark.tnx_id)) is not None:
        mark, runs = following.mark, runs + 1
    assert calls.behind("a/1", cursor) == runs == behind


def test_the_names_of_what_there_was_a_call_about() -> None:
    calls = kept(*CALLS, call("x"))
    assert calls.names_of("level") == ["w", "x", "y", "z"] and calls.names_of("flag") == []
