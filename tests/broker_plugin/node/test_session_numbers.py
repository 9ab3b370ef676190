"""A process numbers its attachments from a random number on."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from broker_plugin.node import main as main_module
from broker_plugin.node import wiring
from ha.messages.stream import Commit
from ha.messages.wire import decode, encode
from tests.broker_plugin.node.starting import Reached, started_until_reached

STARTS = 8


async def first_session(directory: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """What a node's core is given when the node starts."""
    found: list[int] = []

    def wire(*parts: Any, **more: Any) -> None:
        found.append(wiring.wire(*parts, **more).core.sessions)
        raise Reached

    monkeypatch.setattr(main_module, "wire", wire)
    await started_until_reached(directory)
    return found[0]


async def test_no_process_continues_the_numbers_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message of an attachment that a former process had is never taken for one of its successor's."""
    numbers = sorted([await first_session(tmp_path, monkeypatch) for _ in range(STARTS)])
    apart = min(b - a for a, b in pairwise(numbers))
    assert apart > 1 << 32, "more than any process has attachments"
    latest = Commit(1, numbers[-1] + (1 << 60), 0)
    assert decode(encode(latest)) == latest, "and there is room for those it will have"
