"""Logins whose password is verified elsewhere, and users that are deleted while they log in or are connected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pamqp import commands
from pamqp.commands import Basic, Channel, Queue

from broker_plugin.amqp.protocol.connection import Connection
from broker_plugin.amqp.protocol.logins import Logins
from broker_plugin.amqp.protocol.sasl import Credentials
from broker_plugin.amqp.protocol.settings import AmqpSettings
from broker_plugin.embedded.channels import expulsions
from broker_plugin.node.cluster_users import ClusterUsers
from tests.broker_plugin.amqp.peer import HEADER, Peer
from tests.broker_plugin.amqp.raw_client import DEFAULT_PROPERTIES
from tests.broker_plugin.embedded.harness import Harness
from txobserver.access import (
    Access,
    User,
    add_user_step,
    delete_user_step,
    found_users_step,
    set_password_step,
)
from txobserver.configuration import Configured
from txobserver.events import Configure
from txobserver.refusal import Refusal
from txobserver.rules import PERMISSION, Permission, Rule, set_rule_step


class Later:
    """PasswordChecks that give their verdict when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[str | None, Callable[[bool], None], Callable[[], bool]]] = []

    def check(
        self, kept: str | None, credentials: Credentials, address: str, then: Any, wanted: Callable[[], bool]
    ) -> None:
        self.waiting.append((kept, lambda right=None: then(kept == credentials.password), wanted))  # type: ignore[misc]

    def verdict(self) -> None:
        self.waiting.pop(0)[1](True)


class Client(Peer):
    """A client of user ``app`` that has sent its login; ``users`` may change."""

    def __init__(self, harness: Harness | None = None, password: str = "right", address: str = "") -> None:
        super().__init__(harness)
        self.users = {"app": "right"}
        self.later = Later()
        logins = Logins(self.users, checks=self.later)
        settings = AmqpSettings()
        self.connection = Connection(self.harness.broker, settings, self.wire, address=address, logins=logins)
        self.connection.receive(HEADER)
        self.connection.take_output()
        self.send(0, commands.Connection.StartOk(DEFAULT_PROPERTIES, "PLAIN", f"\0app\0{password}", "en_US"))

    def opened(self) -> Client:
        self.later.verdict()
        self.send(0, commands.Connection.TuneOk(2047, 4096, 0), commands.Connection.Open("/"))
        self.send(1, Channel.Open())
        self.frames()
        return self


def test_nothing_more_is_read_before_the_verdict() -> None:
    client = Client()
    client.send(0, commands.Connection.TuneOk(2047, 4096, 0), commands.Connection.Open("/"))
    assert client.frames() == [] and client.connection.intake.congested
    before = client.wire.resumed
    client.later.verdict()
    found = client.frames()
    assert "Connection.Tune" in found[0] and "Connection.OpenOk" in found[1]
    assert client.wire.resumed > before and not client.connection.intake.congested
    assert client.connection.user == "app"


def test_a_wrong_password_is_refused_as_ever() -> None:
    client = Client(password="wrong")
    client.later.verdict()
    (closed,) = client.frames()
    assert "Connection.Close reply_code=403" in closed and client.connection.user == ""


def test_a_client_that_is_gone_is_told_nothing() -> None:
    client = Client()
    (_, _, wanted) = client.later.waiting[0]
    assert wanted()
    client.connection.vanish()
    assert not wanted()
    client.later.verdict()
    assert client.frames() == [] and client.connection.user == ""


@pytest.mark.parametrize("password", ["right", "changed"])
def test_password_changed_while_it_is_verified(password: str) -> None:
    """The verdict on the former one is none."""
    client = Client(password=password)
    client.users["app"] = "changed"
    client.later.verdict()
    if password == "right":
        assert client.frames() == [] and len(client.later.waiting) == 1, "it is verified again"
        client.later.verdict()
    (said,) = client.frames()
    assert "Connection.Close reply_code=403" in said


def test_user_deleted_while_its_password_is_verified() -> None:
    client = Client()
    del client.users["app"]
    client.later.verdict()
    client.later.verdict()
    assert "Connection.Close reply_code=403" in client.frames()[0]


def test_user_deleted_before_the_connection_is_open() -> None:
    client = Client()
    client.later.verdict()
    client.frames()
    del client.users["app"]
    client.send(0, commands.Connection.TuneOk(2047, 4096, 0), commands.Connection.Open("/"))
    (closed,) = client.frames()
    assert "reply_code=320" in closed and "CONNECTION_FORCED - user 'app' is deleted" in closed


def test_user_added_anew_before_the_connection_opens() -> None:
    """An enemy found it: who knew the old password had the rights of the new user of that name."""
    harness = Harness()

    def do(step: Configure) -> None:
        said: list[Configured | None] = []
        harness.ledger.configure(step, said.append)
        harness.settle()
        assert said == [None]

    def access() -> Access:
        return harness.ledger.contents.access

    do(found_users_step([User("root", "root")], ""))
    do(add_user_step("app", "old"))
    logins = Logins(ClusterUsers(access, {}))
    for added_anew, opened in ((False, "OpenOk"), (True, "320")):
        peer = Peer(harness)
        peer.connection = Connection(harness.broker, AmqpSettings(), peer.wire, address="", logins=logins)
        peer.connection.receive(HEADER)
        peer.connection.take_output()
        peer.send(0, commands.Connection.StartOk(DEFAULT_PROPERTIES, "PLAIN", "\0app\0old", "en_US"))
        do(set_password_step("app", "new"))  # of the same user: it is let in, as with RabbitMQ
        if added_anew:
            do(delete_user_step("app"))
            do(add_user_step("app", "new"))
        do(set_rule_step(Rule(PERMISSION, "/", "app", "", Permission(".*", ".*", ".*"))))
        do(set_password_step("app", "old"))
        peer.frames()
        peer.send(0, commands.Connection.TuneOk(2047, 4096, 0), commands.Connection.Open("/"))
        assert opened in " ".join(peer.frames())


def test_a_late_verdict_on_a_new_secret() -> None:
    client = Client().opened()
    for secret, said in (("right", "Connection.UpdateSecretOk"), ("wrong", "reply_code=530")):
        client.send(0, commands.Connection.UpdateSecret(secret, "because"))
        assert client.frames() == []
        client.later.verdict()
        assert said in client.frames()[0]


def delete(harness: Harness, user: str, done: Configured = Configured()) -> None:  # noqa: B008
    harness.broker.on_configured(delete_user_step(user), done)
    harness.settle()


def test_the_connections_of_a_deleted_user_are_closed_and_give_back_what_they_hold() -> None:
    harness = Harness()
    client, guest = Client(harness).opened(), Peer(harness).open()
    client.send(1, Queue.Declare(0, "q", durable=True))
    client.settle()
    client.send(1, Queue.Declare(0, "mine", exclusive=True))
    client.settle()
    client.frames()
    delete(harness, "app", Configured(refusal=Refusal.GONE))
    assert client.frames() == [], "it was not carried out"
    delete(harness, "other")
    assert client.frames() == []
    delete(harness, "app")
    (closed,) = client.frames()
    assert "Connection.Close reply_code=320" in closed and "user 'app' is deleted" in closed
    assert "mine" not in harness.broker.topology.queues and "q" in harness.broker.topology.queues
    client.send(1, Basic.Publish(0, "", "q"))
    client.send(0, commands.Connection.CloseOk())
    assert client.connection.ended and client.frames() == []
    guest.send(1, Queue.Declare(0, "q", passive=True))
    guest.settle()
    assert "Queue.DeclareOk" in guest.frames()[0]


@pytest.mark.plain
def test_many_connections_of_a_user_end_in_many_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expulsions, "EXPELLED", 3)
    harness = Harness()
    clients = [Client(harness).opened() for _ in range(10)]
    ended: list[int] = []
    real = harness.broker.end_of_turn
    count = lambda: sum(each.connection.channels.session not in harness.broker._sessions for each in clients)  # noqa: E731
    monkeypatch.setattr(harness.broker, "end_of_turn", lambda: (real(), ended.append(count()))[0])
    harness.broker.on_configured(delete_user_step("app"), Configured())
    while harness.broker.turn._work:
        harness.broker.end_of_turn()
    assert ended[:4] == [3, 6, 9, 10] and all("320" in each.frames()[0] for each in clients)
