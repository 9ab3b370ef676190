"""What a proven peer says and a node does not take."""

from __future__ import annotations

from typing import Any

import pytest

from ha.messages.stream import Commit
from tests.broker_plugin.node.test_links import (
    OURS,
    TAKEN,
    THEIRS,
    Dialling,
    Slow,
    come,
    greet,
    listener,
    nothing,
)
from tests.support.far_end import FarEnd


async def test_what_a_peer_says_on_a_connection_that_it_has_not_dialled_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would come beside what the peer sends on its own connection, in whatever order."""
    ours = Dialling(monkeypatch, TAKEN)
    dialled = await ours.until_the_last()
    dialled.protocol.data_received(greet(dialled).say(Commit(1, 1, 1)))
    came, far = come(ours.links)
    came.protocol.data_received(far.say(THEIRS, Commit(1, 1, 2)))
    assert ours.got == [("b", Commit(1, 1, 2))]
    await ours.links.stop()


def test_what_came_together_with_a_message_that_closed_the_connection_is_not_taken() -> None:
    """The node may have stopped its links for that message."""
    got: list[Any] = []

    def close(peer: str, message: Any) -> None:
        got.append(message)
        protocol.close()

    protocol = listener(OURS, nothing, close, nothing)
    transport: Any = Slow(protocol)
    protocol.connection_made(transport)
    far = FarEnd().meet(protocol, transport)
    protocol.data_received(far.say(THEIRS, Commit(1, 1, 1), Commit(1, 1, 2)))
    assert transport.aborted and got == [Commit(1, 1, 1)]
