"""Virtual hosts as pika sees them: each has its own names, and one that is deleted takes everything along."""

from __future__ import annotations

from typing import Any

import pika
import pika.exceptions
import pytest

from tests.broker_plugin.amqp.conftest import Served
from txobserver.access import User, found_users_step
from txobserver.events import Configure
from txobserver.refusal import Refusal
from txobserver.rules import (
    MAX_QUEUES,
    PERMISSION,
    POLICY,
    VHOST,
    VHOST_LIMIT,
    Limit,
    Permission,
    Policy,
    Rule,
    Vhost,
    clear_rule_step,
    set_rule_step,
)
from txobserver.vhosts import full_name

ALL = Permission(".*", ".*", ".*")


class Hosts:
    """A server whose cluster keeps users: ``guest``, who may do everything, and the virtual hosts ``v`` and ``w``."""

    def __init__(self, served: Served) -> None:
        self.served = served
        served.broker.rights.access = lambda: served.ledger.contents.access
        self.do(found_users_step([User("guest", "guest")], ""))
        self.add("v")
        self.add("w")

    def add(self, name: str) -> None:
        self.do(set_rule_step(Rule(VHOST, name, name, "", Vhost())))
        self.do(set_rule_step(Rule(PERMISSION, name, "guest", "", ALL)))

    def do(self, step: Configure) -> None:
        answers: list[str | None] = []
        self.served.call(lambda: self.served.ledger.configure(step, answers.append))
        self.served.wait_for(lambda: answers == [None])

    def connect(self, vhost: str) -> pika.BlockingConnection:
        return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self.served.port, vhost))

    def channel(self, vhost: str) -> Any:
        return self.connect(vhost).channel()


@pytest.fixture
def hosts(served: Served) -> Hosts:
    return Hosts(served)


def texts(channel: Any, name: str) -> list[bytes]:
    """What is in a queue, taken out of it."""
    return [body for _, _, body in iter(lambda: channel.basic_get(name, True), (None, None, None))]


def test_the_same_names_are_others_in_each_virtual_host(hosts: Hosts) -> None:
    channels = {vhost: hosts.channel(vhost) for vhost in ("/", "v", "w")}
    for vhost, channel in channels.items():
        assert channel.queue_declare("q", durable=True).method.queue == "q"
        channel.queue_declare("mine", exclusive=True)
        channel.exchange_declare("e", "topic", durable=True)
        channel.queue_bind("q", "e", "a.*")
        channel.queue_bind("q", "amq.fanout")
        channel.basic_publish("", "q", vhost.encode())
        channel.basic_publish("e", "a.b", b"by e in " + vhost.encode())
        channel.basic_publish("amq.fanout", "", b"by all in " + vhost.encode())
    for vhost, channel in channels.items():
        said = vhost.encode()
        assert texts(channel, "q") == [said, b"by e in " + said, b"by all in " + said]
    channels["v"].queue_delete("q")
    assert channels["w"].queue_declare("q", passive=True).method.message_count == 0
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="no queue 'q' in vhost 'v'"):
        channels["v"].queue_declare("q", passive=True)


def test_deliveries_and_returns_say_names_as_the_client_knows_them(hosts: Hosts) -> None:
    channel = hosts.channel("v")
    name = channel.queue_declare("", exclusive=True).method.queue
    assert name.startswith("amq.gen-")
    channel.exchange_declare("e", "direct")
    channel.queue_bind(name, "e")  # by the name of the queue that was declared last
    channel.queue_bind("", "e", "k")
    channel.basic_publish("e", "k", b"x")
    method, _, body = channel.basic_get(name, True)
    assert (method.exchange, method.routing_key, body) == ("e", "k", b"x")
    seen: list[tuple[str, str]] = []
    tag = channel.basic_consume(name, lambda _, m, p, b: seen.append((m.exchange, m.routing_key)), True)
    channel.basic_publish("", name, b"y")
    while not seen:
        channel.connection.process_data_events(1)
    assert seen == [("", name)]
    channel.basic_cancel(tag)
    returned: list[str] = []
    channel.add_on_return_callback(lambda _, m, p, b: returned.append(m.exchange))
    channel.basic_publish("e", "nowhere", b"z", mandatory=True)
    while not returned:
        channel.connection.process_data_events(1)
    assert returned == ["e"]


def test_an_alternate_exchange_is_one_of_the_same_virtual_host(hosts: Hosts) -> None:
    for vhost in ("/", "v"):
        channel = hosts.channel(vhost)
        channel.exchange_declare("other", "fanout", durable=True)
        channel.queue_declare("q", durable=True)
        channel.queue_bind("q", "other")
        channel.exchange_declare("e", "direct", durable=True, arguments={"alternate-exchange": "other"})
        channel.basic_publish("e", "nowhere", vhost.encode())
    assert texts(hosts.channel("v"), "q") == [b"v"] and texts(hosts.channel("/"), "q") == [b"/"]


@pytest.mark.parametrize("vhost", ["/", "v"])
@pytest.mark.parametrize(
    ("ask", "text"),
    [
        (lambda c: c.queue_declare("amq.x"), "ACCESS_REFUSED - queue name 'amq.x' contains reserved prefix 'amq.*'"),
        (lambda c: c.exchange_declare("amq.x"), "exchange name 'amq.x' contains reserved prefix 'amq.*'"),
        (lambda c: c.exchange_delete("amq.topic"), "deletion of system exchange 'amq.topic' in vhost '{}' not allowed"),
        (lambda c: c.exchange_declare(""), "operation not permitted on the default exchange"),
        (lambda c: c.queue_bind("q", ""), "operation not permitted on the default exchange"),
        (lambda c: c.exchange_bind("", "amq.topic"), "operation not permitted on the default exchange"),
        (lambda c: c.queue_bind("q", "absent"), "no exchange 'absent' in vhost '{}'"),
        (lambda c: c.queue_declare("q", durable=False), "inequivalent arg 'durable' for queue 'q' in vhost '{}'"),
        (lambda c: c.queue_purge("absent"), "no queue 'absent' in vhost '{}'"),
    ],
)
def test_refusals_say_where(vhost: str, ask: Any, text: str, hosts: Hosts) -> None:
    channel = hosts.channel(vhost)
    channel.queue_declare("q", durable=True)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        ask(channel)
    assert text.format(vhost) in closed.value.reply_text and "\0" not in closed.value.reply_text


def test_a_publish_to_what_is_not_there_says_where(hosts: Hosts) -> None:
    channel = hosts.channel("v")
    channel.basic_publish("absent", "k", b"x")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        channel.queue_declare("q", passive=True)
    assert closed.value.reply_text == "NOT_FOUND - no exchange 'absent' in vhost 'v'"


def test_no_name_reaches_into_another_virtual_host(hosts: Hosts) -> None:
    """A name may hold any octets, also those by which the table of all names tells virtual hosts apart."""
    inside = hosts.channel("v")
    inside.queue_declare("q", durable=True)
    inside.exchange_declare("e", "fanout", durable=True)
    inside.queue_bind("q", "e")
    outside = hosts.channel("/")
    for vhost in ("/", "w"):
        channel = outside if vhost == "/" else hosts.channel(vhost)
        channel.basic_publish("", full_name("v", "q"), b"in by a key")
        for name in (full_name("v", "q"), full_name("v", "e")):
            with pytest.raises(pika.exceptions.ChannelClosedByBroker):
                hosts.channel(vhost).queue_declare(name, passive=True)
        other = hosts.channel(vhost)
        other.basic_publish(full_name("v", "e"), "", b"in by an exchange")
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="NOT_FOUND"):
            other.queue_declare("q", passive=True)
    outside.queue_declare(full_name("v", "q"), durable=True)
    outside.basic_publish("", full_name("v", "q"), b"own")
    assert texts(outside, full_name("v", "q")) == [b"own"]
    assert texts(inside, "q") == []


def test_what_is_not_there_is_not_found(hosts: Hosts) -> None:
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match="vhost x not found"):
        hosts.connect("x")


def test_a_permission_counts_in_its_own_virtual_host(hosts: Hosts) -> None:
    hosts.do(set_rule_step(Rule(PERMISSION, "v", "guest", "", Permission("^q$", "^q$", "^q$"))))
    hosts.do(clear_rule_step(PERMISSION, "w", "guest"))
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match="access to vhost 'w' refused for user 'guest'"):
        hosts.connect("w")
    hosts.channel("/").queue_declare("other")
    channel = hosts.channel("v")
    channel.queue_declare("q", durable=True)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        channel.queue_declare("other")
    text = "ACCESS_REFUSED - configure access to queue 'other' in vhost 'v' refused for user 'guest'"
    assert closed.value.reply_text == text
    channel = hosts.channel("v")
    channel.basic_publish("", "q", b"x")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        channel.queue_declare("q", passive=True)
    text = "ACCESS_REFUSED - write access to exchange 'amq.default' in vhost 'v' refused for user 'guest'"
    assert closed.value.reply_text == text


def test_queues_are_counted_for_each(hosts: Hosts) -> None:
    hosts.do(set_rule_step(Rule(VHOST_LIMIT, "v", "v", MAX_QUEUES, Limit(1))))
    elsewhere, channel = hosts.channel("/"), hosts.channel("v")
    for name in "abc":
        elsewhere.queue_declare(name)
    channel.queue_declare("a")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        channel.queue_declare("b")
    text = "PRECONDITION_FAILED - cannot declare queue 'b': queue limit in vhost 'v' (1) is reached"
    assert closed.value.reply_text == text


def fill(hosts: Hosts, vhost: str) -> pika.BlockingConnection:
    """A connection that has declared something of everything."""
    connection = hosts.connect(vhost)
    channel = connection.channel()
    for number in range(60):
        channel.queue_declare(f"q{number}", durable=True)
        channel.exchange_declare(f"e{number}", "fanout", durable=True)
        channel.exchange_bind("amq.fanout", f"e{number}")
        channel.queue_bind(f"q{number}", "amq.topic", "#")
    channel.exchange_bind("amq.direct", "amq.topic", "k")
    channel.queue_declare("local")
    channel.queue_declare("mine", exclusive=True)
    channel.queue_declare("short", durable=True, auto_delete=True)
    channel.exchange_declare("passing", "direct", auto_delete=True)
    channel.queue_bind("local", "passing", "k")
    channel.basic_publish("amq.topic", "k", b"x")
    channel.basic_consume("short", lambda *delivered: None)
    channel.basic_get("q1")
    return connection


def declared(hosts: Hosts, vhost: str) -> list[str]:
    configuration, topology = hosts.served.ledger.contents.configuration, hosts.served.broker.topology
    of_bindings = [binding.source for binding in configuration.bindings]
    names = [*configuration.queues, *configuration.exchanges, *of_bindings, *topology.queues, *topology.exchanges]
    return [name for name in names if name.startswith(f"\0{vhost}\0")]


def test_a_virtual_host_that_is_deleted_takes_everything_along_and_comes_again_empty(hosts: Hosts) -> None:
    connection, stays = fill(hosts, "v"), fill(hosts, "w")
    before = len(declared(hosts, "w"))
    hosts.do(clear_rule_step(VHOST, "v", "v"))
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        while True:
            connection.process_data_events(1)
    assert (closed.value.reply_code, closed.value.reply_text) == (320, "CONNECTION_FORCED - vhost 'v' is deleted")
    rights = hosts.served.broker.rights
    hosts.served.wait_for(lambda: rights.vhosts() == ["w"])
    assert declared(hosts, "v") == [] and len(declared(hosts, "w")) == before
    assert stays.channel().queue_declare("q2", passive=True).method.message_count == 1
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match="vhost v not found"):
        hosts.connect("v")
    hosts.add("v")
    again = hosts.channel("v")
    again.basic_publish("amq.direct", "k", b"x")
    again.queue_declare("q1", durable=True)
    assert texts(again, "q1") == []
    again.queue_bind("q1", "amq.topic", "k")
    again.basic_publish("amq.direct", "k", b"x")
    again.basic_publish("amq.topic", "k", b"y")
    assert texts(again, "q1") == [b"y"]


def test_no_one_connects_to_a_virtual_host_that_is_being_deleted(hosts: Hosts) -> None:
    connection = fill(hosts, "v")
    answers: list[str | None] = []
    step = clear_rule_step(VHOST, "v", "v")
    add = set_rule_step(Rule(VHOST, "v", "v", "", Vhost()))

    def begin() -> None:
        hosts.served.ledger.configure(step, answers.append)
        hosts.served.ledger.configure(add, answers.append)

    hosts.served.call(begin)
    hosts.served.wait_for(lambda: answers == [None, Refusal.GOING])
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match="vhost v not found"):
        hosts.connect("v")
    del connection


# -- policies


def policy(hosts: Hosts, name: str, pattern: str, alternate: str, priority: int = 0, vhost: str = "/") -> None:
    hosts.do(set_rule_step(Rule(POLICY, vhost, name, "", Policy(pattern, priority, {"alternate-exchange": alternate}))))


def catchers(channel: Any, *names: str) -> None:
    """Fanout exchanges, each with a queue of its name."""
    for name in names:
        channel.exchange_declare(name, "fanout", durable=True)
        channel.queue_declare(name, durable=True)
        channel.queue_bind(name, name)


def test_a_policy_holds_of_what_is_declared_and_of_what_will_be_and_its_changes_at_once(hosts: Hosts) -> None:
    """``policy applied at declare only``: also on a channel whose routes are remembered."""
    channel = hosts.channel("/")
    catchers(channel, "a", "b")
    channel.exchange_declare("e1", "direct", durable=True)
    channel.exchange_declare("h", "headers", durable=True)
    expected: list[bytes] = []

    def publish(body: bytes, comes: bool) -> None:
        for exchange in ("e1", "h", "amq.direct"):
            channel.basic_publish(exchange, "k", body)
            expected.extend([body] * comes)

    publish(b"before", False)
    policy(hosts, "p", "", "a")
    publish(b"with it", True)
    channel.exchange_declare("e2", "direct", durable=True)
    channel.basic_publish("e2", "k", b"later")
    assert texts(channel, "a") == [*expected, b"later"]
    expected.clear()
    policy(hosts, "p", "^e", "b")
    channel.basic_publish("amq.direct", "k", b"fits no more")
    channel.basic_publish("e1", "k", b"to the other")
    assert (texts(channel, "a"), texts(channel, "b")) == ([], [b"to the other"])
    hosts.do(clear_rule_step(POLICY, "/", "p"))
    publish(b"after", False)
    assert (texts(channel, "a"), texts(channel, "b")) == ([], [])


def test_the_policy_with_the_highest_priority_holds_and_the_exchange_s_own_argument_before_it(hosts: Hosts) -> None:
    channel = hosts.channel("/")
    catchers(channel, "a", "b", "c", "own")
    channel.exchange_declare("e", "direct", durable=True)
    channel.exchange_declare("f", "direct", durable=True, arguments={"alternate-exchange": "own"})
    policy(hosts, "z", "^e$", "a", 1)
    policy(hosts, "y", ".*", "b", 2)
    policy(hosts, "x", "^e$", "c", -7)
    channel.basic_publish("e", "k", b"1")
    channel.basic_publish("f", "k", b"2")
    policy(hosts, "y", ".*", "b", 0)
    channel.basic_publish("e", "k", b"3")
    policy(hosts, "w", "^e$", "c", 1)
    channel.basic_publish("e", "k", b"4")
    assert [texts(channel, name) for name in ("a", "b", "c", "own")] == [[b"3"], [b"1"], [b"4"], [b"2"]]


def test_a_policy_counts_in_its_own_virtual_host(hosts: Hosts) -> None:
    channels = {vhost: hosts.channel(vhost) for vhost in ("/", "v")}
    for channel in channels.values():
        catchers(channel, "a")
        channel.exchange_declare("e", "direct", durable=True)
    policy(hosts, "p", "^e$", "a", vhost="v")
    for channel in channels.values():
        channel.basic_publish("e", "k", b"x")
    assert (texts(channels["/"], "a"), texts(channels["v"], "a")) == ([], [b"x"])
    hosts.do(clear_rule_step(VHOST, "v", "v"))
    hosts.served.wait_for(lambda: hosts.served.broker.rights.vhosts() == ["w"])
    hosts.add("v")
    again = hosts.channel("v")
    catchers(again, "a")
    again.exchange_declare("e", "direct", durable=True)
    again.basic_publish("e", "k", b"y")
    assert texts(again, "a") == []


def test_a_policy_whose_exchange_is_not_there_or_is_the_exchange_itself(hosts: Hosts) -> None:
    channel = hosts.channel("/")
    channel.exchange_declare("e", "direct", durable=True)
    for alternate in ("absent", "e", ""):
        policy(hosts, "p", "^e$", alternate)
        channel.basic_publish("e", "k", b"x")
    assert channel.queue_declare("", exclusive=True).method.message_count == 0
