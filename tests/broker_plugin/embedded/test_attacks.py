"""What one client can make a turn of the loop do, in counted steps: never in times."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from broker_plugin.embedded import broker
from broker_plugin.embedded.errors import AmqpError
from broker_plugin.embedded.field_table import read_table
from broker_plugin.embedded.operations.binding_operations import BindRequest
from broker_plugin.embedded.operations.exchange_operations import ExchangeDeclare
from broker_plugin.embedded.operations.queue_arguments import QueueDeclare
from broker_plugin.embedded.queues.turn import STEPS, Turn
from broker_plugin.embedded.topology.routers import Destination, HeadersRouter, Target
from broker_plugin.embedded.topology.topic import TopicTrie
from tests.broker_plugin.embedded.harness import Client, Harness, properties
from tests.support.operations import lines_of

pytestmark = pytest.mark.plain

def lines(call: Callable[[], object]) -> int:
    return lines_of(call)


def exchange(client: Client, kind: str, durable: bool = True) -> None:
    operations = client.harness.broker.operations.exchanges
    operations.declare(client.channel, ExchangeDeclare("e", kind, durable), lambda: None)
    client.harness.settle()


def bind(client: Client, count: int, queue: str = "q", key: Callable[[int], str] = str) -> None:
    for number in range(count):
        request = BindRequest("e", queue, True, key(number), {"a": number})
        client.harness.broker.operations.bindings.bind(client.channel, request, lambda: None)
    client.harness.settle()


# -- routing


def test_a_pattern_of_many_hashes() -> None:
    """``a_pattern_of_many_hashes``: 127 of them and a key of 255 dots took seconds for each message."""
    trie: TopicTrie[str] = TopicTrie()
    trie.add(".".join("#" * 30), "q")
    assert lines(lambda: trie.match("." * 60)) < 60 * 30
    trie.add(".".join("#" * 127), "r")
    assert set(trie.match("." * 255)) == {"q", "r"}
    assert trie.visited <= 2 * 256


def test_patterns_that_a_key_matches_in_many_ways() -> None:
    """Between the hashes stand words that the key repeats: each node is entered once, whatever leads there."""
    trie: TopicTrie[int] = TopicTrie()
    for number in range(20):
        trie.add(".".join(["#", "a"] * number + ["#"]), number)
    assert set(trie.match(".".join("a" * 60))) == set(range(20))
    assert trie.visited <= 60 * 2 * 20 + 2 * 20


def test_a_message_is_compared_with_the_headers_bindings_that_ask_for_its_headers() -> None:
    harness = Harness()
    client = harness.client()
    exchange(client, "headers")
    client.declare("q")
    bind(client, 300)
    router: Any = harness.broker.topology.exchanges["e"].router
    client.channel.publish("e", "", False, properties({"b": 1}), b"nowhere")
    assert router.tried == 0
    client.channel.publish("e", "", False, properties({"a": 7}), b"there")
    assert router.tried == 1
    harness.settle()
    assert client.drain("q") == [b"there"]


def test_a_binding_that_asks_for_many_headers_costs_as_much_as_one_that_asks_for_few() -> None:
    """``headers_all``: a message was compared with 300 bindings of 5,000 headers for a second, which cost the lease."""
    costs = []
    for count in (1, 21):
        router = HeadersRouter()
        for number in range(count):
            arguments = {**{f"k{each}": each for each in range(400)}, "last": number}
            router.add("", arguments, Target(Destination(True, str(number))))
        headers = {**{f"k{each}": each for each in range(400)}, "last": -1}
        costs.append(lines(lambda r=router, h=headers: list(r.match("", h))))  # type: ignore[misc]
        assert router.tried >= count - 1 and router.compared == router.tried * 401
        asked = [each for pattern in router._bindings.values() for each in pattern.whole]
        assert len(set(map(id, asked))) == 400 + count, "texts that are equal would be compared letter by letter"
    assert costs[1] - costs[0] < 20 * 20
    for target, key, _ in list(router._bindings):
        arguments = {**{f"k{each}": each for each in range(400)}, "last": int(target.name)}
        router._bindings[target, key, id(arguments)] = router._bindings.pop((target, key, _))
        router.remove(key, arguments, target)
    assert not router._hints and not router._uses and not router._by_header


def test_bindings_of_many_arguments_are_swept_few_at_a_time() -> None:
    harness = Harness()
    client = harness.client()
    exchange(client, "headers")
    client.declare("q")
    many = {f"k{each}": each for each in range(400)}
    for number in range(10):
        request = BindRequest("e", "q", True, str(number), many)
        harness.broker.operations.bindings.bind(client.channel, request, lambda: None)
    harness.settle()
    topology = harness.broker.topology
    topology.remove_queue("q")
    assert topology.sweep(100) == 2 * 51 and topology.sweep(10_000) == 8 * 51


def test_comparisons_with_many_headers_are_steps_of_the_turn() -> None:
    harness = Harness()
    client = harness.client()
    exchange(client, "headers")
    client.declare("q")
    wanted = {f"k{each}": each for each in range(2560)}
    request = BindRequest("e", "q", True, "", {**wanted, "last": 1})
    harness.broker.operations.bindings.bind(client.channel, request, lambda: None)
    harness.settle()
    before = harness.broker.turn.spent
    client.channel.publish("e", "", False, properties({**wanted, "last": 2}), b"nowhere")
    assert harness.broker.turn.spent - before >= 20


def test_a_message_to_many_queues_is_many_steps_of_the_turn() -> None:
    harness = Harness()
    client = harness.client()
    exchange(client, "fanout", False)
    for number in range(80):
        client.declare(f"q{number}", durable=False)
        bind(client, 1, f"q{number}")
    client.channel.publish("e", "", False, b"\0\0", b"the route is looked for")
    before = harness.broker.turn.spent
    client.channel.publish("e", "", False, b"\0\0", b"everywhere")
    assert harness.broker.turn.spent - before == 10


def test_an_exchange_that_is_deleted_is_taken_apart_in_turns() -> None:
    """``exchange_delete_bindings``: its 30,000 patterns went in one turn of 0.14 s."""
    harness = Harness()
    client = harness.client()
    exchange(client, "topic")
    client.declare("q")
    bind(client, 40, key=lambda number: f"a.{number}.#")
    topology = harness.broker.topology
    router: Any = topology.exchanges["e"].router
    topology.remove_exchange("e")
    assert topology.sweep(15) == 15 and len(router.match("a.1.b", {})) + len(router.match("a.39.b", {})) > 0
    assert topology.sweep(100) == 25 and topology.sweep(1) == 0


# -- what is declared


def test_what_is_declared_is_bounded_by_its_bytes() -> None:
    """``huge_bindings_args``: 3,000 bindings with arguments of 100 kB made every node a gigabyte larger, for ever."""
    harness = Harness()
    client = harness.client()
    topology = harness.broker.topology
    exchange(client, "direct")
    client.declare("q")
    before, topology.most = topology.size, topology.size + 5000
    operations = harness.broker.operations
    answers: list[str] = []

    def refused(call: Callable[[], object]) -> None:
        with pytest.raises(AmqpError, match=r"more than [0-9]+ bytes of memory with this one") as caught:
            call()
        assert caught.value.code == 406

    long = {"x-long": "x" * 1200}
    for durable in (True, False):
        exchange_request = ExchangeDeclare("f", "fanout", durable, arguments=long)
        refused(partial(operations.exchanges._declare, client.channel, exchange_request, answers.clear))
        queue_request = QueueDeclare("r", durable, False, False, long)
        refused(partial(operations.queues._declare, client.channel, queue_request, lambda state: None))
    refused(lambda: operations.bindings._bind(client.channel, BindRequest("e", "q", True, "k", long), answers.clear))
    request = BindRequest("e", "q", True, "k", {"x": "x" * 900})
    operations.bindings.bind(client.channel, request, lambda: answers.append("bound"))
    harness.settle()
    assert answers == ["bound"] and before + 3600 < topology.size <= topology.most
    operations.bindings.bind(client.channel, request, lambda: answers.append("is there"))
    operations.bindings.unbind(client.channel, request, lambda: answers.append("unbound"))
    harness.settle()
    assert answers == ["bound", "is there", "unbound"] and topology.size == before
    client.declare("q2")
    harness.settle()
    topology.remove_queue("q2")
    topology.remove_exchange("e")
    topology.remove_queue("q")
    assert topology.size == 0


def test_routes_to_many_queues_are_not_all_remembered() -> None:
    """A key for each message, and each leads to every queue: 10,000 routes of 10,000 queues are 800 MB."""
    harness = Harness()
    client = harness.client()
    exchange(client, "fanout")
    for number in range(30):
        client.declare(f"q{number}")
        bind(client, 1, f"q{number}")
    topology = harness.broker.topology
    with patch("broker_plugin.embedded.topology.topology.ROUTED_KEPT", 100):
        for number in range(50):
            topology.route("e", str(number), b"\0\0")
            assert sum(len(route.durable) for route in topology.routes.values()) <= 100
    assert len(topology.routes) > 1


@pytest.mark.parametrize("kind", ["headers", "direct", "topic", "fanout"])
def test_a_binding_less_costs_the_same_however_many_there_are(kind: str) -> None:
    costs = []
    for count in (20, 400):
        client = Harness().client()
        exchange(client, kind)
        client.declare("q")
        bind(client, count)
        request = BindRequest("e", "q", True, str(count - 1), {"a": count - 1})

        def unbind(client: Client = client, request: BindRequest = request) -> None:
            client.harness.broker.operations.bindings.unbind(client.channel, request, lambda: None)
            client.harness.ledger.flush()
            client.harness.ledger.commit()

        costs.append(lines(unbind))
    assert costs[0] == costs[1]


@pytest.mark.parametrize("kind", ["headers", "direct", "topic", "fanout"])
def test_a_queue_takes_its_bindings_in_one_step(kind: str) -> None:
    """``a_queue_with_thirty_thousand_bindings``: its deletion took 26 s. Routers are swept later, in turns."""
    costs = []
    for count in (20, 400):
        harness = Harness()
        client = harness.client()
        exchange(client, kind)
        client.declare("q")
        bind(client, count)
        topology = harness.broker.topology
        costs.append(lines(lambda t=topology: t.remove_queue("q")))  # type: ignore[misc]
        assert topology.bindings_from("e") == 0
        assert topology.sweep(15) == 15 and topology.sweep(count) == count - 15 and topology.sweep(1) == 0
        assert not list(topology.exchanges["e"].router.match("7", {"a": 7}))
    assert costs[0] == costs[1]


@pytest.mark.parametrize("goes", ["queue", "exchange"])
def test_a_turn_is_asked_for_when_there_is_something_to_sweep(goes: str) -> None:
    """``deletion_in_a_quiet_broker``: what routers held of it stayed until a client asked for something else."""
    harness = Harness()
    client = harness.client()
    exchange(client, "headers")
    client.declare("q")
    bind(client, 40)
    harness.turn()
    topology, asked = harness.broker.topology, harness.broker.turn._work
    assert not asked, "nothing is asked for before"
    if goes == "queue":
        topology.remove_queue("q")
    else:
        topology.remove_exchange("e")
    assert len(harness.broker.turn._work) == 1


def test_routers_are_swept_to_the_end_though_nothing_else_happens() -> None:
    """Some in each turn, the first of which asks for all others: else every match met what is left."""
    harness = Harness()
    client = harness.client()
    exchange(client, "headers")
    client.declare("q")
    bind(client, 40)
    with patch.object(broker, "SWEPT", 10):
        harness.broker.operations.deletions.delete(client.channel, "q", False, False, lambda count: None)
        harness.settle()
        harness.turn()
        harness.settle()
    assert harness.broker.topology.bindings_from("e") == 0 == harness.broker.topology.sweep(1)


@pytest.mark.parametrize("kind", ["headers", "direct", "topic", "fanout"])
def test_a_queue_of_the_name_of_one_that_is_being_swept_out(kind: str) -> None:
    """What routers still hold of the former one leads no message to the new one, and takes none of its bindings."""
    harness = Harness()
    client = harness.client()
    exchange(client, kind)
    client.declare("q")
    bind(client, 40, key=lambda number: "k")
    topology = harness.broker.topology
    with patch.object(broker, "SWEPT", 0):
        harness.broker.operations.deletions.delete(client.channel, "q", False, False, lambda count: None)
        harness.settle()
        client.declare("q")
        client.channel.publish("e", "k", False, properties({"a": 7}), b"too early")
        bind(client, 2, key=lambda number: "k")
        client.channel.publish("e", "k", False, properties({"a": 1}), b"in time")
        harness.settle()
        assert client.drain("q") == [b"in time"]
    assert topology.sweep(100) == 40 and topology.bindings_from("e") == 2
    topology.routes.clear()
    client.channel.publish("e", "k", False, properties({"a": 1}), b"still")
    harness.settle()
    assert client.drain("q") == [b"still"]


# -- consumers


def test_a_limit_that_is_set_again_and_again_looks_at_the_consumers_once() -> None:
    client = Harness().client()
    client.declare("q")
    for number in range(200):
        client.channel.consume("q", f"c{number}", False, False, {})
    client.harness.settle()
    assert lines(lambda: client.channel.qos(2, True)) < 50
    client.harness.settle()


# -- the turn itself


def test_a_turn_ends_when_it_has_taken_its_steps_and_leaves_nothing_out() -> None:
    due: list[int] = []
    work = Turn(lambda: due.append(1))
    done: list[int] = []

    def costs(number: int) -> None:
        done.append(number)
        work.spent += STEPS // 2

    for number in range(5):
        work.later(lambda n=number: costs(n))  # type: ignore[misc]
    work.run()
    assert done == [0, 1] and len(due) == 2
    work.later(lambda: costs(5))
    work.run()
    work.run()
    assert done == [0, 1, 2, 3, 4, 5]


def test_work_that_waits_from_the_turn_before_comes_first() -> None:
    work = Turn(lambda: None)
    done: list[str] = []

    def first() -> None:
        work.spent += STEPS
        work.later(lambda: done.append("asked meanwhile"))

    work.later(first)
    work.later(lambda: done.append("asked before"))
    work.run()
    work.run()
    assert done == ["asked before", "asked meanwhile"]


# -- tables


@pytest.mark.parametrize("value", [b"V", b"t\1", b"b\1", b"A\0\0\0\0", b"S\0\0\0\1s", b"I\0\0\0\1"])
def test_an_array_costs_the_same_for_each_value(value: bytes) -> None:
    """``an_array_of_voids``: for each value what is left of it was copied, 128 KiB of them took most of a second."""

    def table(count: int) -> bytes:
        array = b"\1aA" + (len(value) * count).to_bytes(4, "big") + value * count
        return len(array).to_bytes(4, "big") + array

    one, two, three = (lines(lambda n=n: read_table(table(n))) for n in (100, 200, 300))  # type: ignore[misc]
    assert two - one == three - two
