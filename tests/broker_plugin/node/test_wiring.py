"""How the parts of a node are put together: from a store that is read, and so that each tells the next."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker_plugin.node.wiring import restored, wire
from ha.apply.replica import Replica
from ha.messages.greeting import greeting
from ha.settings import Settings
from tests.ha.backup.test_unknown_events import LATER
from tests.support.far_end import CREDENTIALS
from tests.support.guards import strict_guard
from tests.support.memory_host import MemoryHost
from txobserver.events import TxOpen
from txobserver.frames import encode_frame
from txobserver.ids import Member
from txobserver.ports.store import MemoryBase, StoreDamaged, StoreError

pytestmark = pytest.mark.plain


def store(*frames: Any) -> Any:
    base = MemoryBase()
    return SimpleNamespace(base=base, loaded=base.load(), suffix=lambda: frames, member=Member("a", "1"), first=1)


def test_a_log_of_a_later_version_is_no_damage() -> None:
    """It is not to be thrown away: the version that wrote it goes on with it."""
    with pytest.raises(StoreError, match="start this node with the version that wrote it") as refused:
        restored(store(LATER["kind"]))
    assert not isinstance(refused.value, StoreDamaged)


def test_a_log_that_no_version_writes_is_damaged() -> None:
    with pytest.raises(StoreDamaged, match="let the node rejoin with a new store"):
        restored(store(LATER["kind"].__class__(1, 1, 1, 0, encode_frame(1, 1, [TxOpen(5)], 0).data[:48] + b"\x07\xa5")))


async def test_each_part_tells_the_next() -> None:
    """A client's request makes a turn due at once, and not at the next tick; what is sent goes to the links."""
    nothing: Any = None
    replica = Replica(MemoryBase(), *MemoryBase().load())
    hello = greeting("c", "a", "h", 1, "id")
    parts = wire(
        strict_guard(), store(), replica, MemoryHost(), Settings(), hello, CREDENTIALS, [], nothing, lambda reason: None
    )
    assert parts.core.wake == parts.shell.due and parts.shell.core is parts.core
    assert parts.shell.io.links is parts.links and parts.links.hello == hello
