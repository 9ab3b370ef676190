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


def test_a_fast_forward_never_goes_back() -> None:
    assert kept(*CALLS, control(FAST_FORWARD, 3), control(FAST_FORWARD, 2)).forwarded["a/1"].tnx_id == 3


def test_a_skip_of_what_is_remembered_no_more_is_not_kept() -> None:
    assert kept(*CALLS, control(SKIP, 9)).skips == {}


def test_what_is_said_of_calls_that_go_goes_with_them() -> None:
    """Skips, and forwards up to before the first call that is left; one up to that call stays."""
    of_a, of_b = control(SKIP, 1), control(SKIP, 3, "b/1")
    forwards = control(FAST_FORWARD, 1), control(FAST_FORWARD, 4, "b/1")
    fresh = call_step("level", CallRecord(b"v" * 16, 1, "w", b"", "a", 7, ["a/1"], 2))
    again = call_step("level", CallRecord(b"u" * 16, 1, "x", b"", "a", 7, ["a/1"], 2))
    last = call_step("level", CallRecord(b"t" * 16, 1, "y", b"", "a", 7, ["a/1"], 2))
    calls = kept(*CALLS, of_a, of_b, *forwards, fresh, again, last)
    assert [each.tnx_id for each in calls.kept] == [4, 9, 10, 11][-len(calls.kept) :]
    assert calls.kept[0].tnx_id == 4 and calls.skips == {} and list(calls.forwarded) == ["b/1"]
