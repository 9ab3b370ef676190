"""A process numbers its attachments from a random number on."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker_plugin.node import main as main_module
from broker_plugin.node import wiring
from broker_plugin.node.config import parse_config
from broker_plugin.node.main import Node
from ha.wire import Commit, decode, encode

STARTS = 8


class Wired(Exception):
    """The parts are put together now."""


async def first_session(directory: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """What a node's core is given when the node starts."""
    found: list[int] = []

    def wire(*parts: Any, **more: Any) -> None:
        found.append(wiring.wire(*parts, **more).core._sessions)
        raise Wired

    monkeypatch.setattr(main_module, "wire", wire)
    text = f'name = "a"\ncluster = "c"\ndir = "{directory / "a"}"\ncoordination = "{directory / "r"}"\n'
    node: Any = Node(parse_config(f"{text}[peer]\nport = 7\n", directory / "node.toml", environment={}))
    node._coordination = SimpleNamespace(give_up=lambda: None)
    node.guard.watch()
    node._open_store()
    with pytest.raises(Wired):
        await node._start()
    node.store.close()
    return found[0]


async def test_no_process_continues_the_numbers_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message of an attachment that a former process had is never taken for one of its successor's."""
    numbers = sorted([await first_session(tmp_path, monkeypatch) for _ in range(STARTS)])
    apart = min(b - a for a, b in pairwise(numbers))
    assert apart > 1 << 32, "more than any process has attachments"
    latest = Commit(1, numbers[-1] + (1 << 60), 0)
    assert decode(encode(latest)) == latest, "and there is room for those it will have"
