"""Refused logins: who may come from where, what is told of them, and how they are slowed down."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands, frame
from pamqp.commands import Channel

from broker_plugin.amqp.loop_broker import embedded_broker
from broker_plugin.amqp.protocol import logins as module
from broker_plugin.amqp.protocol.connection import Connection
from broker_plugin.amqp.protocol.logins import FREE, TELL_SECONDS, LoginRefused, Logins, is_loopback
from broker_plugin.amqp.protocol.settings import AmqpSettings
from broker_plugin.amqp.server import AmqpProtocol, AmqpServer
from tests.broker_plugin.amqp.peer import HEADER, Peer
from tests.broker_plugin.amqp.raw_client import DEFAULT_PROPERTIES
from tests.broker_plugin.amqp.test_server import FakeTransport
from tests.broker_plugin.embedded.harness import Harness
from tests.support.guards import strict_guard

ELSEWHERE = "192.0.2.7"
USERS = {"guest": "guest", "alice": "secret"}


class Told(list[tuple[str, str, int, str]]):
    """What was told of refused logins."""

    def __call__(self, user: str, address: str, count: int, why: str) -> None:
        self.append((user, address, count, why))


def start_ok(user: str = "guest", password: str = "guest", **more: Any) -> commands.Connection.StartOk:
    return commands.Connection.StartOk(
        more.pop("properties", DEFAULT_PROPERTIES), "PLAIN", f"\0{user}\0{password}", "en_US"
    )


def client(address: str, logins: Logins | None = None) -> Peer:
    """A client that has been greeted."""
    peer = Peer(Harness())
    settings = AmqpSettings(users=USERS)
    peer.connection = Connection(peer.harness.broker, settings, peer.wire, address=address, logins=logins)
    peer.connection.receive(HEADER)
    peer.connection.take_output()
    return peer


def fail(logins: Logins, times: int = 1, address: str = ELSEWHERE, user: str = "eve") -> list[float]:
    """The delays of so many refusals."""
    return [logins.refused(user, address, "PLAIN", "wrong").delay for _ in range(times)]


class TestWhere:
    """``guest`` logs in from loopback only."""

    @pytest.mark.parametrize("address", ["127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1", ""])
    def test_guest_may_come_from_this_machine(self, address: str) -> None:
        peer = client(address)
        peer.send(0, start_ok())
        assert "Connection.Tune" in peer.frames()[0]

    @pytest.mark.parametrize("address", [ELSEWHERE, "2001:db8::1", "::ffff:10.0.0.1", "fe80::1%eth0", "unknown"])
    def test_and_from_nowhere_else_also_with_the_right_password(self, address: str) -> None:
        told = Told()
        peer = client(address, Logins(USERS, told))
        peer.send(0, start_ok())
        (closed,) = peer.frames()
        assert "Connection.Close reply_code=403" in closed and "For details see the broker logfile" in closed
        assert told == [("guest", address, 1, "guest can only log in from loopback")]

    def test_others_may_come_from_anywhere(self) -> None:
        peer = client(ELSEWHERE)
        peer.send(0, start_ok("alice", "secret"))
        assert "Connection.Tune" in peer.frames()[0]

    async def test_a_client_of_which_the_system_says_no_address_is_not_taken_for_a_local_one(self) -> None:
        told = Told()
        server = AmqpServer(strict_guard(), embedded_broker(strict_guard()), AmqpSettings(), told=told)
        protocol, transport = AmqpProtocol(server), FakeTransport(None)
        protocol.connection_made(transport)
        protocol.data_received(HEADER + frame.marshal(start_ok(), 0))
        assert [each[:2] for each in told] == [("guest", "unknown")]

    @pytest.mark.parametrize("text", ["", "localhost", "127.0.0.1.evil", "0.0.0.0", "::", "fe80::1%lo"])
    def test_what_is_no_loopback_address_is_none(self, text: str) -> None:
        assert not is_loopback(text)


class TestTold:
    """A line names user and address; however many refusals there are, there are few lines."""

    def test_each_address_is_told_at_once_and_then_seldom(self) -> None:
        told = Told()
        logins = Logins(USERS, told)
        fail(logins, 50)
        assert told == [("eve", ELSEWHERE, 1, "wrong")]
        logins.tick(TELL_SECONDS - 0.5)
        assert len(told) == 1
        logins.tick(TELL_SECONDS)
        assert told[1:] == [("eve", ELSEWHERE, 49, "wrong")]
        logins.tick(3 * TELL_SECONDS)
        assert len(told) == 2

    def test_many_addresses_fill_no_log_either(self) -> None:
        told = Told()
        logins = Logins(USERS, told)
        for number in range(500):
            fail(logins, 2, f"198.51.{number // 250}.{number % 250}")
        assert len(told) == module.TOLD
        logins.tick(TELL_SECONDS)
        assert len(told) == 2 * module.TOLD

    def test_what_is_remembered_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "ADDRESSES", 3)
        logins = Logins(USERS)
        fail(logins, FREE, "a")
        for address in "bcd":
            fail(logins, FREE, address)
        assert len(logins._refusals) == 3
        assert fail(logins, 1, "d") == [0.5] and fail(logins, 1, "a") == [0.0]

    def test_a_long_name_is_cut(self) -> None:
        told = Told()
        fail(Logins(USERS, told), user="x" * 4000)
        assert told[0][0] == "x" * module.SHOWN

    @pytest.mark.parametrize("response", ["\0guest\0wrong", "\0nobody\0guest", "nothing", "\0\0"])
    def test_no_password_is_told(self, response: str) -> None:
        told = Told()
        method = commands.Connection.StartOk({}, "PLAIN", response, "en_US")
        verdicts: list[object] = []
        Logins(USERS, told).judge(method, "127.0.0.1", verdicts.append)
        assert [type(each) for each in verdicts] == [LoginRefused]
        assert len(told) == 1 and "wrong" not in told[0][0] and told[0][3] in (
            "the user or the password is wrong",
            "it cannot be read",
        )

    def test_a_wrong_new_secret_is_told(self) -> None:
        told = Told()
        peer = client("127.0.0.1", Logins(USERS, told))
        peer.send(0, start_ok(), commands.Connection.TuneOk(2047, 4096, 0), commands.Connection.Open("/"))
        peer.send(0, commands.Connection.UpdateSecret("wrong", "why"))
        assert told == [("guest", "127.0.0.1", 1, "its new secret is wrong")]


class TestSlowness:
    """After some refusals of an address each one waits longer; a right password never does."""

    def test_delays_grow_and_have_an_end(self) -> None:
        logins = Logins(USERS)
        assert fail(logins, FREE + 6) == [0.0] * FREE + [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
        assert fail(logins, 1, "198.51.100.1") == [0.0]
        assert fail(logins, 2000)[-1] == 5.0

    def test_they_end_after_a_while(self) -> None:
        logins = Logins(USERS)
        fail(logins, FREE + 1)
        logins.tick(module.FORGET_SECONDS)
        assert fail(logins) == [1.0]
        logins._refusals[ELSEWHERE].untold = 0
        logins.tick(2 * module.FORGET_SECONDS + 1)
        assert not logins._refusals and fail(logins) == [0.0]

    def test_they_end_after_a_while_also_where_some_had_not_been_told(self) -> None:
        """The entry is kept for the line that was held back, and its count means nothing any more."""
        logins = Logins(USERS)
        fail(logins, FREE + 3)
        assert logins._refusals[ELSEWHERE].untold
        logins.tick(module.FORGET_SECONDS + 1)
        assert logins._refusals and fail(logins) == [0.0]

    def test_one_host_has_many_addresses_of_version_6(self) -> None:
        logins = Logins(USERS)
        assert [fail(logins, 1, f"2001:db8::{number:x}")[0] for number in range(FREE + 1)] == [0.0] * FREE + [0.5]
        assert fail(logins, 1, "2001:db8:0:1::1") == [0.0]

    def test_the_client_is_told_late_and_nothing_of_it_is_read_meanwhile(self) -> None:
        logins = Logins(USERS)
        fail(logins, FREE)
        peer = client(ELSEWHERE, logins)
        peer.send(0, start_ok("alice", "wrong"), commands.Connection.TuneOk(2047, 4096, 0))
        assert peer.connection.intake.congested and peer.frames() == []
        peer.send(1, Channel.Open())
        peer.connection.tick(0.4)
        assert peer.frames() == [] and not peer.connection.ended
        resumed = peer.wire.resumed
        peer.connection.tick(0.5)
        (closed,) = peer.frames()
        assert "reply_code=403" in closed and peer.wire.resumed > resumed and not peer.connection.intake.congested
        peer.send(0, commands.Connection.CloseOk())
        assert peer.connection.ended

    def test_one_that_does_not_understand_it_is_closed_late(self) -> None:
        logins = Logins(USERS)
        fail(logins, FREE)
        peer = client(ELSEWHERE, logins)
        peer.send(0, start_ok("alice", "wrong", properties={}))
        assert not peer.connection.ended
        peer.connection.tick(0.5)
        assert peer.connection.ended and peer.frames() == []

    def test_one_that_leaves_meanwhile_has_left(self) -> None:
        logins = Logins(USERS)
        fail(logins, FREE)
        peer = client(ELSEWHERE, logins)
        peer.send(0, start_ok("alice", "wrong"))
        peer.connection.end()
        peer.connection.tick(0.5)
        assert peer.connection.ended and peer.frames() == []

    def test_a_right_password_does_not_wait(self) -> None:
        logins = Logins(USERS)
        fail(logins, 20)
        peer = client(ELSEWHERE, logins)
        peer.send(0, start_ok("alice", "secret"))
        assert "Connection.Tune" in peer.frames()[0]
