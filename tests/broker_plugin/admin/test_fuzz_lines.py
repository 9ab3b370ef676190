"""Lines that no operator's command sends: any bytes, requests of any values, cut and bent, with the token and without.

Whatever comes, one line of JSON answers it, no handler is called without the token, and nothing fails.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_plugin.admin.server import AdminServer
from tests.support.examples import examples
from tests.support.guards import strict_guard

pytestmark = pytest.mark.fuzz

TEXTS = st.text(st.characters(exclude_categories=[]), max_size=20)
"""Any characters: halves of surrogate pairs and NULs too"""
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
COMMANDS = st.sampled_from(["echo", "status", "", "echo\0"]) | TEXTS
DEPTHS = st.integers(0, 200_000)
NESTED = st.builds(lambda depth, half: b"[" * depth + b"]" * (0 if half else depth), DEPTHS, st.booleans())


class Asked:
    """A server whose handler gives back what it is asked; ``called``: with what."""

    def __init__(self) -> None:
        self.guard = strict_guard()
        self.called: list[Any] = []
        self.server = AdminServer(self.guard, Path("nowhere"), {"echo": self._echo})
        self.token = self.server._token

    async def _echo(self, arguments: dict[str, Any]) -> Any:
        self.called.append(arguments)
        return arguments

    def answer(self, line: bytes) -> dict[str, Any]:
        """What goes out, read again."""
        answer = asyncio.run(self.server._answer(line))
        read: dict[str, Any] = json.loads(json.dumps(answer).encode())
        assert read["ok"] is True or (read["ok"] is False and isinstance(read["error"], str))
        assert not self.guard.errors
        return read


@examples(60)
@given(st.binary(max_size=100) | NESTED)
def test_any_bytes_are_refused(line: bytes) -> None:
    asked = Asked()
    assert asked.answer(line) == {"ok": False, "error": "not a request: it wants token, command and arguments"}
    assert not asked.called


@examples(60)
@given(VALUES, COMMANDS | VALUES, VALUES)
def test_a_request_without_the_token_reaches_no_handler(token: Any, command: Any, arguments: Any) -> None:
    asked = Asked()
    line = json.dumps({"token": token, "command": command, "arguments": arguments}).encode()
    assert not asked.answer(line)["ok"] and not asked.called


@examples(60)
@given(COMMANDS, st.dictionaries(TEXTS, VALUES, max_size=3), VALUES)
def test_a_request_with_the_token_and_any_values(command: str, arguments: dict[str, Any], more: Any) -> None:
    """It is answered by the handler of its command, if there is one and it is a request at all."""
    asked = Asked()
    request: dict[str, Any] = {"token": asked.token, "command": command, "arguments": arguments}
    answer = asked.answer(json.dumps(request).encode())
    assert answer["ok"] is (len(asked.called) == 1) and len(asked.called) <= (command == "echo")
    assert not asked.answer(json.dumps({**request, "more": more}).encode())["ok"]


@examples(60)
@given(st.integers(0, 4000), st.integers(0, 200), st.binary(max_size=20))
def test_a_request_that_is_bent(bit: int, lost: int, more: bytes) -> None:
    """Bits flipped, pieces lost and put in: a handler is called only where the token has come through whole."""
    asked = Asked()
    line = bytearray(json.dumps({"token": asked.token, "command": "echo", "arguments": {"a": [1, "b"]}}).encode())
    line[bit // 8 % len(line)] ^= 1 << bit % 8
    at = bit % len(line)
    line[at : at + lost] = more
    answer = asked.answer(bytes(line))
    assert answer["ok"] is bool(asked.called) and (not asked.called or asked.token.encode() in line)
