"""What an active primary says of the handover by which it became it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from broker_plugin.node.handed_over import handover
from ha.messages.election import ClientsClosed
from ha.node import HandedOver


def core(generation: int = 4, state: str = "active", active_at: float | None = 10.4) -> Any:
    told = HandedOver("a", ClientsClosed(3, 34, 1, 0.1, False), 10.0, active_at)
    return SimpleNamespace(generation=generation, state=state, handed_over=told)


def test_who_and_how_many_and_how_long() -> None:
    assert handover(core()) == {"from": "a", "clients": 34, "undecided": 1, "drained": 0.1, "pause": 0.5}


def test_nothing_of_what_was_no_handover_to_this_node() -> None:
    assert handover(core(generation=5)) is None, "another node has led since"
    assert handover(core(state="ready")) is None
    assert handover(core(active_at=None)) is None
    assert handover(SimpleNamespace(generation=4, state="active", handed_over=None)) is None  # type: ignore[arg-type]
