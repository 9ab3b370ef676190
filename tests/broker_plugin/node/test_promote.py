"""What ``txha promote`` gets from a node, and how a node ends (``broker_plugin.node.main``)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from broker_plugin.admin.server import CommandRefused
from broker_plugin.node import main
from broker_plugin.node.main import NodeProcess
from broker_plugin.node.wiring import FAREWELL
from txobserver.ids import Member


def node(answer: str | None = None, stopping: bool = False) -> Any:
    """One whose core answers so to every promotion."""
    ours: Any = NodeProcess.__new__(NodeProcess)
    ours.asked, ours.later, ours._failure, ours._ended = [], [], None, asyncio.Event()
    ours._in_order = False
    ours.core = SimpleNamespace(promote=lambda *words: ours.asked.append(words) or answer)
    ours.shell = SimpleNamespace(report=lambda call: None if stopping else call())
    ours.records, ours.operators = SimpleNamespace(complaint=""), None
    ours.guard = SimpleNamespace(call_later=lambda *words: ours.later.append(words))
    return ours


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        ({}, (False, 0)),
        ({"accept_data_loss": True, "version": 7}, (True, 7)),
        ({"accept_data_loss": False, "version": "8"}, (False, 8)),
    ],
)
async def test_a_promotion_is_asked_for_with_the_version_that_was_shown(
    arguments: dict[str, Any], asked: tuple[bool, int]
) -> None:
    ours = node()
    assert await ours._promote(arguments) == {} and ours.asked == [asked]


@pytest.mark.parametrize("version", ["x", [1], {}, float("inf"), None])
async def test_a_version_that_is_no_number_is_refused_and_ends_no_node(version: Any) -> None:
    with pytest.raises(CommandRefused, match="whole number"):
        await node()._promote({"version": version})


async def test_why_it_is_refused_is_told() -> None:
    with pytest.raises(CommandRefused, match=r"^it lacks something$"):
        await node("it lacks something")._promote({})
    with pytest.raises(CommandRefused, match=r"^the node is stopping$"):
        await node(stopping=True)._promote({})


async def test_what_the_record_complains_of_is_told_before() -> None:
    """It is the cause: with etcd silent, the sentence began with --accept-data-loss, which does not help."""
    ours = node("the coordination record has not been read yet")
    ours.records.complaint = "it is damaged: stop all nodes"
    with pytest.raises(
        CommandRefused, match=r"^it is damaged: stop all nodes; the coordination record has not been read yet$"
    ):
        await ours._promote({})


async def test_a_core_that_cannot_go_on_has_time_for_its_last_messages() -> None:
    ours = node()
    ours._fail("first")
    ours._fail("second")
    assert ours._failure == "first" and not ours._ended.is_set()
    assert ours.later[0] == (FAREWELL, ours._ended.set)


async def test_a_broken_node_ends_at_once() -> None:
    for before, said in ((None, "broken"), ("earlier", "earlier")):
        ours = node()
        ours._failure = before
        ours._broken("broken")
        assert ours._failure == said and ours._ended.is_set() and ours.later == []


@pytest.mark.parametrize("question", ["status", "transactions"])
async def test_who_asks_is_answered_by_a_node_that_has_looked_at_its_clock(
    question: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was stopped for longer than its lease is no primary any more."""
    ours, steps = node(), []
    ours.store, ours._readiness = SimpleNamespace(member=Member("a", "i")), None
    ours.records = SimpleNamespace(complaint="")
    ours.calls = SimpleNamespace(certificates=SimpleNamespace(shown=dict))
    ours.shell.look_at_clock = lambda: steps.append("clock")
    ours.clients = SimpleNamespace(shown=dict)
    monkeypatch.setattr(main, question, lambda *words: steps.append(question) or {"an": "answer"})
    said = await getattr(ours, f"_{question}")({})
    assert said.pop("door_error", None) is None and not said.pop("certificate", None)
    assert said == {"an": "answer"} and steps == ["clock", question]


@pytest.mark.parametrize("failure", [None, "its disk is full"])
async def test_a_node_that_stops_gives_its_lease_up_unless_it_has_failed(
    failure: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, steps = node(), []

    async def release(parts: Any) -> None:
        steps.append(parts)

    monkeypatch.setattr(main, "release", release)
    ours.shell.stop = lambda: steps.append("stopped")
    ours.parts, ours._failure = "released", failure
    await ours._leave()
    assert steps == (["stopped"] if failure else ["released", "stopped"])
