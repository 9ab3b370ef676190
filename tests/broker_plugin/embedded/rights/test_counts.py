"""How many connections, channels and queues there may be, of users and of virtual hosts."""

from __future__ import annotations

import pytest

from broker_plugin.embedded.errors import AmqpError
from tests.broker_plugin.embedded.harness import Client
from tests.broker_plugin.embedded.rights.ruled import (
    Ruled,
    nothing,
)
from txobserver.access import add_user_step
from txobserver.rules import (
    MAX_CHANNELS,
    MAX_CONNECTIONS,
    MAX_QUEUES,
    PERMISSION,
    USER_LIMIT,
    VHOST,
    VHOST_LIMIT,
    Permission,
    Rule,
    Vhost,
    clear_rule_step,
    set_rule_step,
)


def test_a_user_has_so_many_connections_and_channels_at_a_time(ruled: Ruled) -> None:
    ruled.allow(".*", ".*", ".*")
    ruled.limit(USER_LIMIT, MAX_CONNECTIONS, 2)
    ruled.limit(USER_LIMIT, MAX_CHANNELS, 3)
    first, second = ruled.user(), ruled.user()
    text = r"^connection refused for user 'u': user connection limit \(2\) is reached$"
    with pytest.raises(AmqpError, match=text) as raised:
        ruled.connect("u")
    assert raised.value.code == 530
    session = second.channel.session
    third = session.open_channel(Client(ruled))  # type: ignore[attr-defined]
    text = r"^number of channels opened for user 'u' has reached the maximum allowed user limit of \(3\)$"
    with pytest.raises(AmqpError, match=text) as raised:
        session.open_channel(Client(ruled))  # type: ignore[attr-defined]
    assert raised.value.code == 530 and raised.value.hard
    third.close()
    third.close()
    ruled.settle()
    session.open_channel(Client(ruled))  # type: ignore[attr-defined]
    first.channel.session.close()  # type: ignore[attr-defined]
    ruled.settle()
    ruled.connect("u")
    ruled.do(clear_rule_step(USER_LIMIT, "", "u", MAX_CONNECTIONS))
    ruled.limit(USER_LIMIT, MAX_CHANNELS, -1)
    for _ in range(5):
        ruled.user()


def test_a_limit_of_none_lets_no_connection_in_and_others_as_before(ruled: Ruled) -> None:
    ruled.allow(".*", ".*", ".*")
    ruled.limit(USER_LIMIT, MAX_CONNECTIONS, 0)
    with pytest.raises(AmqpError):
        ruled.connect("u")
    ruled.connect()


def test_a_virtual_host_has_so_many_connections_of_all_users(ruled: Ruled) -> None:
    ruled.allow(".*", ".*", ".*")
    ruled.do(add_user_step("v", "h"), set_rule_step(Rule(PERMISSION, "/", "v", "", Permission("", "", ""))))
    ruled.limit(VHOST_LIMIT, MAX_CONNECTIONS, 3)
    first = ruled.user()
    ruled.connect("v")
    text = r"^access to vhost '/' refused for user 'v': connection limit \(3\) is reached$"
    with pytest.raises(AmqpError, match=text) as raised:
        ruled.connect("v")
    assert raised.value.code == 530
    first.channel.session.close()  # type: ignore[attr-defined]
    ruled.settle()
    ruled.connect("v")


def test_a_virtual_host_has_so_many_queues_with_those_that_are_on_their_way(ruled: Ruled) -> None:
    ruled.allow(".*", ".*", ".*")
    ruled.limit(VHOST_LIMIT, MAX_QUEUES, 3)
    client, late = ruled.user(), ruled.user()
    client.ask_declare("a")
    client.ask_declare("b")
    late.ask_declare("c")
    ruled.settle()
    text = "cannot declare queue 'c': queue limit in vhost '/' (3) is reached"
    assert [(error.code, error.text) for error in late.errors] == [(406, text)] and not client.errors
    client.declare("a")
    ruled.broker.operations.deletions.delete(client.channel, "a", False, False, nothing)
    ruled.settle()
    local = ruled.user()
    local.declare("c", False)
    local.ask_declare("d", False)
    assert [error.code for error in local.errors] == [406]


def test_counts_begin_anew_with_a_new_primary(ruled: Ruled) -> None:
    ruled.allow(".*", ".*", ".*")
    ruled.limit(USER_LIMIT, MAX_CONNECTIONS, 1)
    ruled.limit(VHOST_LIMIT, MAX_QUEUES, 3)
    before = ruled.user()
    before.ask_declare("lost")
    session = before.channel.session
    ruled.take_over()
    client = ruled.user()
    session.close()  # type: ignore[attr-defined]
    ruled.settle()
    with pytest.raises(AmqpError):
        ruled.connect("u")
    client.declare("a")
    client.declare("b")


def test_a_limit_of_none_closes_a_virtual_host(ruled: Ruled) -> None:
    ruled.allow(".*", ".*", ".*")
    ruled.limit(VHOST_LIMIT, MAX_CONNECTIONS, 0)
    with pytest.raises(AmqpError, match=r"connection limit \(0\) is reached"):
        ruled.connect("u")


def test_the_connections_and_channels_of_a_user_are_counted_in_all_virtual_hosts_together(ruled: Ruled) -> None:
    ruled.allow(".*", ".*", ".*")
    ruled.do(set_rule_step(Rule(VHOST, "v", "v", "", Vhost())))
    ruled.do(set_rule_step(Rule(PERMISSION, "v", "u", "", Permission(".*", ".*", ".*"))))
    ruled.limit(USER_LIMIT, MAX_CONNECTIONS, 2)
    ruled.limit(USER_LIMIT, MAX_CHANNELS, 2)
    here, there = ruled.connect("u"), ruled.connect("u", "v")
    with pytest.raises(AmqpError, match="user connection limit"):
        ruled.connect("u", "v")
    for connection in (here, there):
        ruled.client(connection)
    with pytest.raises(AmqpError, match="maximum allowed user limit"):
        ruled.client(there)


def test_nothing_is_kept_of_who_has_gone(ruled: Ruled) -> None:
    ruled.allow(".*", ".*", ".*")
    clients = [ruled.user() for _ in range(3)]
    for client in clients:
        client.channel.session.close()  # type: ignore[attr-defined]
    ruled.root.channel.session.close()  # type: ignore[attr-defined]
    ruled.settle()
    book = ruled.broker.rights
    assert (book._of, book._counts, dict(book._connections)) == ({}, {}, {})


def test_a_queue_that_has_come_is_counted_once(ruled: Ruled) -> None:
    """Its declaration is applied, and is answered behind that of a deletion for which another declaration waits."""
    ruled.allow(".*", ".*", ".*")
    ruled.limit(VHOST_LIMIT, MAX_QUEUES, 2)
    first, second, third = ruled.user(), ruled.user(), ruled.user()
    ruled.broker.operations.deletions.delete(first.channel, "q", False, False, nothing)
    second.ask_declare("q2")
    third.ask_declare("q")
    ruled.settle()
    assert not third.errors and sorted(ruled.broker.topology.queues) == ["q", "q2"]


def test_connections_elsewhere_count_also_when_those_here_have_gone(ruled: Ruled) -> None:
    """What is counted of a user is forgotten with the last connection of all, not with the last to one virtual host."""
    ruled.allow(".*", ".*", ".*")
    ruled.do(set_rule_step(Rule(VHOST, "v", "v", "", Vhost())))
    ruled.do(set_rule_step(Rule(PERMISSION, "v", "u", "", Permission(".*", ".*", ".*"))))
    ruled.limit(USER_LIMIT, MAX_CONNECTIONS, 1)
    ruled.connect("u").session.close()  # type: ignore[attr-defined]
    ruled.connect("u", "v")
    with pytest.raises(AmqpError, match="user connection limit"):
        ruled.connect("u")
    ruled.limit(USER_LIMIT, MAX_CONNECTIONS, 2)
    ruled.connect("u").session.close()  # type: ignore[attr-defined]
    ruled.connect("u")
    with pytest.raises(AmqpError, match="user connection limit"):
        ruled.connect("u")
