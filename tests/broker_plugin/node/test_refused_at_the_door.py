"""A client whose user may not come from where it does is refused by the node that it has reached."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from pamqp import commands, frame

from broker_plugin.amqp.protocol.logins import FREE, Logins
from broker_plugin.node.descriptors import Room
from broker_plugin.node.passing import PrimarySide
from broker_plugin.node.proxy import LAST_WORD_SECONDS, FrontDoor
from tests.broker_plugin.amqp.peer import HEADER
from tests.support.arrivals import arrivals
from tests.support.guards import StrictGuard

UNDERSTANDS = {"capabilities": {"authentication_failure_close": True}}


class Later(StrictGuard):
    """Remembers what is to be done later."""

    def __init__(self) -> None:
        super().__init__()
        self.later: list[tuple[float, Callable[[], object]]] = []

    def call_later(self, seconds: float, call: Callable[[], object]) -> Any:
        self.later.append((seconds, call))
        return asyncio.TimerHandle(0, lambda: None, (), _NO_LOOP)


class _NoLoop:
    @staticmethod
    def get_debug() -> bool:
        return False

    @staticmethod
    def _timer_handle_cancelled(handle: object) -> None: ...


_NO_LOOP: Any = _NoLoop()


class Wire:
    """A transport of a client from elsewhere, or towards the primary."""

    def __init__(self) -> None:
        self.written = b""
        self.state = "read"

    def get_extra_info(self, name: str) -> Any:
        return ("192.0.2.7", 50000) if name == "peername" else None

    def write(self, data: bytes) -> None:
        self.written += data

    def pause_reading(self) -> None:
        self.state = "paused"

    def resume_reading(self) -> None:
        self.state = "read"

    def close(self) -> None:
        self.state = "closed"

    def abort(self) -> None:
        self.state = "aborted"


class Told(list[tuple[str, str, int, str]]):
    def __call__(self, user: str, address: str, count: int, why: str) -> None:
        self.append((user, address, count, why))


def passing(logins: Logins) -> tuple[FrontDoor, Wire, Wire, Later]:
    """A door between a client from elsewhere, which has been greeted, and a primary."""
    guard = Later()
    client, primary = Wire(), Wire()
    door: Any = FrontDoor(guard, lambda: None, set(), Room(1 << 20, "clients"), logins, arrivals())
    door.connection_made(client)
    side: Any = PrimarySide.__new__(PrimarySide)
    side.guard, side._door, side._transport, side._reached, side._closed = guard, door, primary, True, False
    side._introduction, side._dialling, side._wrong = None, Wire(), False
    side._dialling.cancel = lambda: None
    door._other = side
    door.data_received(HEADER)
    side.data_received(b"greeting")
    guard.later.clear()
    return door, client, primary, guard


def login(user: str, properties: Any = UNDERSTANDS) -> bytes:
    return frame.marshal(commands.Connection.StartOk(properties, "PLAIN", f"\0{user}\0guest", "en_US"), 0)


def test_guest_from_elsewhere_is_refused_and_the_primary_not_told() -> None:
    told = Told()
    door, client, primary, guard = passing(Logins({}, told))
    door.data_received(login("guest"))
    assert (primary.written, primary.state, client.state) == (HEADER, "aborted", "paused")
    assert told == [("guest", "192.0.2.7", 1, "guest can only log in from loopback")]
    ((delay, tell),) = guard.later
    assert delay == 0 and client.written == b"greeting"
    tell()
    _, _, closed = frame.unmarshal(client.written.removeprefix(b"greeting"))
    assert isinstance(closed, commands.Connection.Close) and closed.reply_code == 403 and client.state == "read"
    door.data_received(frame.marshal(commands.Connection.CloseOk(), 0))
    assert client.state == "closed"


def test_one_that_does_not_answer_is_dropped() -> None:
    door, client, _, guard = passing(Logins({}))
    door.data_received(login("guest"))
    guard.later[0][1]()
    seconds, drop = guard.later[1]
    drop()
    assert seconds == LAST_WORD_SECONDS and client.state == "aborted"


def test_one_that_does_not_understand_it_is_closed() -> None:
    door, client, _, guard = passing(Logins({}))
    door.data_received(login("guest", {}))
    guard.later[0][1]()
    assert client.state == "closed" and client.written == b"greeting"


def test_it_is_slowed_down_too() -> None:
    logins = Logins({})
    for _ in range(FREE):
        logins.refused("eve", "192.0.2.7", "PLAIN", "wrong")
    door, client, _, guard = passing(logins)
    door.data_received(login("guest"))
    assert guard.later[0][0] == 0.5
    door.connection_lost(None)
    guard.later[0][1]()
    assert client.written == b"greeting"


def test_others_are_passed_on() -> None:
    door, _, primary, guard = passing(Logins({}))
    door.data_received(login("alice"))
    assert primary.written == HEADER + login("alice") and not guard.later


def test_a_refused_client_is_not_passed_to_another_primary() -> None:
    door, _, _, _ = passing(Logins({}))
    door.data_received(login("guest"))
    decided: list[str] = []
    door._decide = lambda: decided.append("asked")  # type: ignore[assignment,return-value,func-returns-value]
    door.reconsider()
    assert not decided
