"""What must not cost more when there is more of something: counted in lines of Python carried out, not in time."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.operations import lines_of
from txobserver.configuration import BindingSpec, Configuration, binding_step, queue_step
from txobserver.events import Configure, Message
from txobserver.ids import Position
from txobserver.ports.store import Checkpoint, MemoryBase, Meta
from txobserver.state.contents import Contents

MESSAGE = Message("", "q", b"", b"m")


class Indexed(MemoryBase):
    """A base whose pages cost nothing that counts here, as LMDB's."""

    def page(self, queue: int, after: int, limit: int) -> list[Any]:
        return []


def filled(messages: int) -> Contents:
    """A queue of so many messages, half of them in a checkpoint on its way, half behind it."""
    contents = Contents(Indexed(), Meta())
    contents.queues.add(1)
    for offset in range(messages):
        if offset == messages // 2:
            contents.freeze()
        contents.queues.insert(1, offset, offset, MESSAGE)
    return contents


@pytest.mark.plain
def test_a_page_costs_what_it_returns() -> None:
    small, large = filled(200), filled(20_000)
    for middle in (0.25, 0.75):
        costs = [
            lines_of(lambda c=contents, n=count: c.messages.page(1, int(n * middle), 10))  # type: ignore[misc]  # noqa: B023
            for contents, count in ((small, 200), (large, 20_000))
        ]
        assert costs[0] == costs[1]


@pytest.mark.plain
def test_a_purged_or_settled_beginning_does_not_slow_the_rest() -> None:
    costs = []
    for gone in (100, 10_000):
        contents = filled(gone + 1000)
        for offset in range(gone):
            contents.queues.remove(1, offset, offset)
        costs.append(lines_of(lambda c=contents, a=gone: c.messages.page(1, a, 10)))  # type: ignore[misc]
    assert costs[1] <= costs[0]


def configured(bindings: int) -> Configuration:
    configuration = Configuration()
    configuration.apply(numbered(configuration, queue_step("q", False, {})))
    for number in range(bindings):
        configuration.apply(bind(configuration, number))
    return configuration


def numbered(configuration: Configuration, step: Configure) -> Configure:
    return Configure(configuration.last_id + 1, step.operation, step.name, step.arguments)


def bind(configuration: Configuration, number: int) -> Configure:
    return numbered(configuration, binding_step(BindingSpec("amq.topic", "q", True, f"key.{number}", {})))


@pytest.mark.plain
def test_one_binding_more_costs_the_same_however_many_there_are() -> None:
    costs = []
    for count in (10, 5000):
        configuration = configured(count)
        costs.append(lines_of(lambda c=configuration: c.apply(bind(c, len(c.bindings)))))  # type: ignore[misc]
        assert len(configuration.bindings) == count + 1
    assert costs[0] == costs[1]


def test_a_place_that_is_used_again_is_shown_once() -> None:
    """A resync may put a message over another one, and out of order."""
    base = MemoryBase()
    contents = Contents(base, Meta())
    contents.queues.add(1)
    for offset in (5, 3, 9):
        contents.queues.insert(1, offset, offset, MESSAGE)
    changes, dropped = contents.freeze()
    contents.queues.remove(1, 3, 3)
    contents.queues.insert(1, 3, 30, MESSAGE)
    contents.queues.insert(1, 4, 4, MESSAGE)
    contents.queues.remove(1, 9, 9)
    shown = [(3, 30), (4, 4), (5, 5)]
    assert [(offset, entry.rid) for offset, entry in contents.messages.page(1, -1, 10)] == shown
    base.write(Checkpoint(contents.meta([Position(1, 1)]), changes, dropped, [], []))
    contents.thaw()
    assert [(offset, entry.rid) for offset, entry in contents.messages.page(1, -1, 10)] == shown
    assert [offset for offset, _ in contents.messages.page(1, 3, 1)] == [4]
