"""From the end of a handshake until the connection has a protocol of its own (``broker_plugin.tls.accepting``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker_plugin.guard import GuardedProtocol
from broker_plugin.tls.accepting import MOST_HELD, _Between
from tests.support.guards import StrictGuard
from tests.support.tls_listening import Listening, until


class Secured:
    """Stands for the encrypted end of a connection."""

    def __init__(self) -> None:
        self.aborted = self.closing = False
        self.protocol: Any = None

    def abort(self) -> None:
        self.aborted = self.closing = True

    def is_closing(self) -> bool:
        return self.closing

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def get_protocol(self) -> Any:
        return self.protocol


class Own(GuardedProtocol):
    """Its own protocol; ``ends``: it closes the connection at once."""

    def __init__(self, ends: bool = False) -> None:
        self.guard = StrictGuard()
        self.heard: list[Any] = []
        self._ends = ends

    def connection_made(self, transport: Any) -> None:
        transport.closing = self._ends

    def data_received(self, data: bytes) -> None:
        self.heard.append(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.heard.append("lost")


@pytest.fixture
def between() -> Any:
    return _Between(StrictGuard())


def test_what_has_come_is_told_and_the_end_as_well(between: Any) -> None:
    secured: Any = Secured()
    own = Own()
    between.data_received(b"a")
    between.data_received(b"b")
    between.hand_over(secured, lambda: own)
    assert own.heard == [b"ab"] and not secured.aborted
    between.connection_lost(None)
    assert own.heard == [b"ab", "lost"], "one that was under way to what was there before"


def test_no_more_is_kept_than_has_room(between: Any) -> None:
    secured: Any = Secured()
    made: list[Own] = []
    for _ in range(5):
        between.data_received(bytes(MOST_HELD // 2 + 1))
    assert len(between._held) <= 2 * MOST_HELD, "whatever comes"
    between.hand_over(secured, lambda: made.append(Own()) or made[-1])
    assert secured.aborted and not made


def test_one_that_has_gone_gets_no_protocol(between: Any) -> None:
    secured: Any = Secured()
    made: list[Own] = []
    between.connection_lost(None)
    between.hand_over(secured, lambda: made.append(Own()) or made[-1])
    assert secured.aborted and not made


def test_who_is_closed_at_once_is_told_nothing_of_what_came(between: Any) -> None:
    own = Own(ends=True)
    between.data_received(b"a")
    between.hand_over(Secured(), lambda: own)
    assert own.heard == []


def test_the_deadline_of_a_handshake_ends_with_it(play: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """It would end the connection long after."""

    async def scene(listening: Listening) -> None:
        handles: list[Any] = []
        later = listening.guard.call_later

        def kept(seconds: float, callback: Any, *words: Any) -> Any:
            handles.append(later(seconds, callback, *words))
            return handles[-1]

        monkeypatch.setattr(listening.guard, "call_later", kept)
        reader, writer = await listening.connect(listening.authority.client())
        await until(lambda: len(listening.made) == 1)
        assert handles and all(each.cancelled() for each in handles)
        writer.close()
        assert await reader.read() == b""

    play(scene)
