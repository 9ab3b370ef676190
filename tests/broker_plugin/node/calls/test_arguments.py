"""Arguments as an operator writes them: made into what the action declares, or refused in one sentence."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from broker_plugin.node.calls.arguments import BadCall, asked_call
from txobserver.actions import LONGEST_NAME, SHIPPED, RaiseFlag, RunHook, SetListener, SetLogLevel


@pytest.mark.parametrize(
    ("operation", "given", "name", "arguments"),
    [
        ("log_level", {"level": ["debug"]}, "", SetLogLevel("debug")),
        ("listener", {"name": ["x"], "open": ["true"]}, "x", SetListener(True)),
        ("listener", {"name": ["x"], "open": ["0"]}, "x", SetListener(False)),
        ("hook", {"name": ["x"], "arg": ["1", "", "true"]}, "x", RunHook(["1", "", "true"])),
        ("hook", {"name": ["x"]}, "x", RunHook(None)),
        ("flag", {"name": ["calls"]}, "calls", RaiseFlag()),
    ],
)
def test_they_are_made_into_what_is_declared(operation: str, given: Any, name: str, arguments: Any) -> None:
    asked = asked_call(SHIPPED, operation, given)
    assert (asked.operation, asked.version, asked.name) == (operation, 1, name)
    assert msgspec.msgpack.decode(asked.arguments, type=type(arguments)) == arguments
    assert SHIPPED.refusal(*asked[:2], asked.arguments, asked.name) is None


@pytest.mark.parametrize(
    ("operation", "given", "said"),
    [
        ("format", {}, "no action 'format'; there are certificates, flag, hook, listener, log_level"),
        ("log_level", {"level": ["loud"]}, r"'log_level' takes level \(debug or info or warning or error\): Invalid"),
        ("log_level", {}, "missing required field `level`"),
        ("log_level", {"level": ["info", "debug"]}, "'level' is given 2 times"),
        ("log_level", {"level": ["info"], "name": ["x"]}, "'log_level' takes no name"),
        ("log_level", {"levle": ["info"]}, "takes no argument 'levle'; it takes level"),
        ("listener", {"open": ["true"]}, "'listener' needs a name: name=NAME"),
        ("listener", {"name": ["x"], "open": ["maybe"]}, r"'listener' takes open \(true or false\): "),
        ("hook", {"name": ["x"], "args": ["y"]}, r"no argument 'args'; it takes arg \(as often as you like\)"),
        ("flag", {"name": ["other"]}, "no flag 'other' is known here; known: calls"),
        ("hook", {"name": ["x" * (LONGEST_NAME + 1)]}, f"a name of {LONGEST_NAME + 1} bytes"),
        ("hook", {"name": ["x"], "arg": ["y" * 20_000]}, "a call has 16384 at most"),
    ],
)
def test_what_cannot_be_is_refused(operation: str, given: Any, said: str) -> None:
    with pytest.raises(BadCall, match=said):
        asked_call(SHIPPED, operation, given)
