"""EXTERNAL: offered to a client whose certificate stands for a user, who logs in without a password."""

from __future__ import annotations

from pamqp import commands

from broker_plugin.amqp.protocol.connection import Connection
from broker_plugin.amqp.protocol.logins import Logins
from broker_plugin.amqp.protocol.settings import AmqpSettings
from tests.broker_plugin.amqp.peer import HEADER, Peer
from tests.broker_plugin.amqp.raw_client import DEFAULT_PROPERTIES
from tests.broker_plugin.amqp.test_logins import ELSEWHERE, USERS, Told, start_ok
from tests.broker_plugin.embedded.harness import Harness


def certified(user: str | None, address: str = ELSEWHERE, told: Told | None = None) -> tuple[Peer, str]:
    """A client whose certificate stands for this user, and how it is greeted."""
    peer = Peer(Harness())
    logins = Logins(dict(USERS), told if told is not None else Told())
    peer.connection = Connection(
        peer.harness.broker, AmqpSettings(users=USERS), peer.wire, address=address, logins=logins
    )
    peer.connection.certified = user
    peer.connection.receive(HEADER)
    (greeting,) = peer.frames()
    return peer, greeting


def external(said: str = "") -> commands.Connection.StartOk:
    return commands.Connection.StartOk(DEFAULT_PROPERTIES, "EXTERNAL", said, "en_US")


def test_it_is_offered_to_one_with_a_certificate_which_logs_in_by_it() -> None:
    peer, greeting = certified("alice")
    assert "AMQPLAIN PLAIN EXTERNAL" in greeting
    peer.send(0, external())
    assert "Connection.Tune" in peer.frames()[0]
    assert peer.connection.user == "alice"


def test_what_is_responded_is_not_read() -> None:
    peer, _ = certified("alice")
    peer.send(0, external("\0guest\0guest"))
    assert "Connection.Tune" in peer.frames()[0]
    assert peer.connection.user == "alice"


def test_one_without_a_certificate_is_not_offered_it_and_cannot_use_it() -> None:
    peer, greeting = certified(None)
    assert "EXTERNAL" not in greeting
    peer.send(0, external("alice"))
    assert "unknown authentication mechanism 'EXTERNAL'" in peer.frames()[0]


def test_one_with_a_certificate_may_log_in_by_a_password_as_another_user() -> None:
    peer, _ = certified("mallory")
    peer.send(0, start_ok("alice", "secret"))
    assert "Connection.Tune" in peer.frames()[0]
    assert peer.connection.user == "alice"


def test_a_user_that_there_is_not_is_refused_and_told() -> None:
    told = Told()
    peer, _ = certified("mallory", told=told)
    peer.send(0, external())
    (closed,) = peer.frames()
    assert "Connection.Close reply_code=403" in closed and "using authentication mechanism EXTERNAL" in closed
    assert told == [("mallory", ELSEWHERE, 1, "its certificate (EXTERNAL) stands for no user that there is")]


def test_guest_comes_from_loopback_only_also_with_a_certificate() -> None:
    told = Told()
    peer, _ = certified("guest", told=told)
    peer.send(0, external())
    assert "Connection.Close reply_code=403" in peer.frames()[0]
    assert told == [("guest", ELSEWHERE, 1, "guest can only log in from loopback")]
    peer, _ = certified("guest", "127.0.0.1")
    peer.send(0, external())
    assert "Connection.Tune" in peer.frames()[0]
