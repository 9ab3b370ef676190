"""The same for exchanges and bindings: an exchange goes where its last binding does, and a binding is told if it is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from broker_plugin.embedded.operations.binding_operations import BindRequest
from tests.broker_plugin.embedded.harness import Client, Harness
from tests.broker_plugin.embedded.operations.test_declarations import bind, declare_exchange
from tests.broker_plugin.embedded.operations.test_judged_where_applied import NO_QUEUE, delete, refusals

NO_EXCHANGE = "NOT_FOUND - no exchange 'x' in vhost '/'"


def unbind(client: Client, source: str, queue: str) -> list[str]:
    answers: list[str] = []
    request = BindRequest(source, queue, True, "")
    client.harness.broker.operations.bindings.unbind(client.channel, request, partial(answers.append, "ok"))
    return answers


def delete_exchange(client: Client, name: str, if_unused: bool) -> list[str]:
    answers: list[str] = []
    client.harness.broker.operations.exchanges.delete(client.channel, name, if_unused, partial(answers.append, "ok"))
    return answers


def exchanges(harness: Harness) -> set[str]:
    return set(harness.content.configuration.exchanges)


# -- durable auto-delete exchanges


def test_auto_delete_exchange_is_gone_when_the_unbinding_is_answered(harness: Harness) -> None:
    """So what is declared behind that answer is another one, and stays."""
    client = harness.client()
    client.declare("q")
    declare_exchange(harness, client, "x", auto_delete=True)
    bind(harness, client, "x", "q")
    harness.settle()
    answers = unbind(client, "x", "q")
    harness.turn()
    harness.ledger.commit(1)
    assert answers == ["ok"] and exchanges(harness) == set() and "x" not in harness.broker.topology.exchanges
    declare_exchange(harness, client, "x", auto_delete=True)
    harness.take_over()
    harness.settle()
    assert exchanges(harness) == {"x"} and "x" in harness.broker.topology.exchanges


def test_nobody_is_told_of_a_binding_to_an_exchange_that_lapses(harness: Harness) -> None:
    """One client unbinds the last queue, another binds the next: one of them is first, for both of them."""
    client, other, declarer = harness.client(), harness.client(), harness.client()
    client.declare("q")
    client.declare("r")
    declare_exchange(harness, client, "x", auto_delete=True)
    bind(harness, client, "x", "q")
    harness.settle()
    gone = unbind(client, "x", "q")
    bound = bind(harness, other, "x", "r")
    declare_exchange(harness, declarer, "x", auto_delete=True)
    assert gone == ["ok"] and bound == [] and refusals(other) == [NO_EXCHANGE]
    assert exchanges(harness) == {"x"}, "declared behind the other, it stays"


def test_a_binding_made_before_the_last_one_goes_keeps_the_exchange(harness: Harness) -> None:
    client, other = harness.client(), harness.client()
    client.declare("q")
    client.declare("r")
    declare_exchange(harness, client, "x", auto_delete=True)
    bind(harness, client, "x", "q")
    harness.settle()
    bound = bind(harness, other, "x", "r")
    gone = unbind(client, "x", "q")
    harness.settle()
    assert gone == bound == ["ok"] and exchanges(harness) == {"x"}


def test_auto_delete_exchanges_lapse_upwards(harness: Harness) -> None:
    """With a queue goes what only led to it; what leads elsewhere too, also to what is not durable, stays."""
    client = harness.client()
    client.declare("q")
    client.declare("local", durable=False)
    for name in ("x", "y", "z"):
        declare_exchange(harness, client, name, auto_delete=True)
    request = BindRequest("y", "x", False, "")
    harness.broker.operations.bindings.bind(client.channel, request, lambda: None)
    for source, queue in (("x", "q"), ("z", "q"), ("z", "local")):
        bind(harness, client, source, queue)
        harness.settle()
    assert exchanges(harness) == {"x", "y", "z"}
    delete(client, "q")
    harness.settle()
    assert exchanges(harness) == {"z"} == set(harness.broker.topology.exchanges) & {"x", "y", "z"}
    delete(client, "local")
    harness.settle()
    assert exchanges(harness) == set() and client.errors == []


def test_the_queue_goes_while_its_exchange_learns_of_it(harness: Harness) -> None:
    """A binding to a queue that is not durable waits for the stream, and what would take the queue waits for it."""
    owner, client = harness.client(), harness.client()
    client.declare("local", durable=False)
    declare_exchange(harness, client, "x", auto_delete=True)
    bound = bind(harness, owner, "x", "local")
    counts = delete(client, "local")
    assert bound == counts == []
    harness.settle()
    assert bound == ["ok"] and counts == [0] and owner.errors == []
    assert exchanges(harness) == set() == set(harness.broker.topology.exchanges) & {"x"}


@pytest.mark.parametrize("exclusive", [False, True])
def test_a_socket_dropped_in_a_bind_takes_no_exchange_that_was_never_bound(harness: Harness, exclusive: bool) -> None:
    """The binding is made, as if it had been answered; only with its queue does it go, and the exchange with it."""
    owner, client = harness.client(), harness.client()
    owner.declare("local", durable=False, exclusive=exclusive)
    declare_exchange(harness, client, "x", auto_delete=True)
    bound = bind(harness, owner, "x", "local")
    owner.channel.session.close()
    harness.settle()
    assert bound == [] and exchanges(harness) == (set() if exclusive else {"x"})
    assert harness.broker.topology.bindings_from("x") == (0 if exclusive else 1)


def unbind_last(harness: Harness, client: Client, told: Callable[[], None]) -> None:
    request = BindRequest("x", "local", True, "")
    harness.broker.operations.bindings.unbind(client.channel, request, told)


def delete_last_queue(harness: Harness, client: Client, told: Callable[[], None]) -> None:
    harness.broker.operations.deletions.delete(client.channel, "local", False, False, lambda count: told())


def delete_last_exchange(harness: Harness, client: Client, told: Callable[[], None]) -> None:
    harness.broker.operations.exchanges.delete(client.channel, "y", False, told)


@pytest.mark.parametrize("take", [unbind_last, delete_last_queue, delete_last_exchange])
def test_a_publish_behind_the_end_of_the_last_binding_finds_no_exchange(
    harness: Harness, take: Callable[[Harness, Client, Callable[[], None]], None]
) -> None:
    """What takes the binding is answered when the auto-delete exchange has gone with it, and not before."""
    client = harness.client()
    client.declare("local", durable=False)
    declare_exchange(harness, client, "x", auto_delete=True)
    declare_exchange(harness, client, "y", durable=False)
    to_queue = take is not delete_last_exchange
    request = BindRequest("x", "local" if to_queue else "y", to_queue, "")
    harness.broker.operations.bindings.bind(client.channel, request, lambda: None)
    harness.settle()
    there: list[bool] = []
    take(harness, client, lambda: there.append("x" in harness.broker.topology.exchanges))
    assert there == []
    harness.settle()
    assert there == [False] and exchanges(harness) == set() and client.errors == []


def bind_exchange(harness: Harness, client: Client, source: str, destination: str) -> None:
    request = BindRequest(source, destination, False, "")
    harness.broker.operations.bindings.bind(client.channel, request, lambda: None)
    harness.settle()


@pytest.mark.parametrize("take", ["queue.delete", "unbind", "exchange.delete"])
def test_what_the_stream_takes_is_told_when_the_exchanges_above_have_gone(harness: Harness, take: str) -> None:
    """With the durable binding goes an exchange of this node's memory, and with that the last binding of another."""
    client = harness.client()
    client.declare("q")
    for name, durable in (("x", True), ("between", False), ("y", True)):
        declare_exchange(harness, client, name, durable=durable, auto_delete=True)
    bind(harness, client, "y", "q")
    harness.settle()
    bind_exchange(harness, client, "between", "y")
    bind_exchange(harness, client, "x", "between")
    there: list[bool] = []

    def told(*answer: int) -> None:
        there.append("x" in harness.broker.topology.exchanges)

    if take == "queue.delete":
        harness.broker.operations.deletions.delete(client.channel, "q", False, False, told)
    elif take == "unbind":
        harness.broker.operations.bindings.unbind(client.channel, BindRequest("y", "q", True, ""), told)
    else:
        harness.broker.operations.exchanges.delete(client.channel, "y", False, told)
    harness.settle()
    assert there == [False] and exchanges(harness) == set() and client.errors == []


def test_no_channel_that_has_closed_is_told_that_an_exchange_has_gone(harness: Harness) -> None:
    client = harness.client()
    client.declare("local", durable=False)
    declare_exchange(harness, client, "x", auto_delete=True)
    bind(harness, client, "x", "local")
    harness.settle()
    counts = delete(client, "local")
    client.channel.close()
    harness.settle()
    assert counts == [] and exchanges(harness) == set()


def test_no_answer_waits_for_an_exchange_that_goes_later(harness: Harness) -> None:
    """Deletions may follow one another without end: each waits for the exchanges that went with it or before it."""
    client, other = harness.client(), harness.client()
    for name in ("x", "y"):
        client.declare(f"to {name}", durable=False)
        declare_exchange(harness, client, name, auto_delete=True)
        bind(harness, client, name, f"to {name}")
        harness.settle()
    first = delete(client, "to x")
    harness.turn()
    second = delete(other, "to y")
    harness.turn()
    harness.ledger.commit(1)
    assert (first, second) == ([0], []) and exchanges(harness) <= {"y"}
    harness.settle()
    assert second == [0]


@pytest.mark.parametrize("step", ["queue.delete", "unbind", "lapse"])
def test_exchange_delete_if_unused_is_judged_behind_the_deletions_before_it(harness: Harness, step: str) -> None:
    """What a binding of an exchange that is not durable leads to is being deleted, or goes with what is."""
    client, other, deleter = harness.client(), harness.client(), harness.client()
    client.declare("q")
    declare_exchange(harness, client, "x", durable=False)
    declare_exchange(harness, client, "durable", auto_delete=True)
    if step == "queue.delete":
        bind(harness, client, "x", "q")
    else:
        bind(harness, client, "durable", "q")
        harness.settle()
        request = BindRequest("x", "durable", False, "")
        harness.broker.operations.bindings.bind(client.channel, request, lambda: None)
    harness.settle()
    if step == "unbind":
        unbind(other, "durable", "q")
    else:
        delete(other, "q")
    deleted = delete_exchange(deleter, "x", if_unused=True)
    harness.settle()
    assert deleted == ["ok"] and deleter.errors == [] and "x" not in harness.broker.topology.exchanges


def test_exchange_delete_if_unused_is_judged_behind_the_deletion_of_what_it_leads_to(harness: Harness) -> None:
    """Also where that is an exchange, whose deletion waits for the stream."""
    client, other, deleter = harness.client(), harness.client(), harness.client()
    declare_exchange(harness, client, "x", durable=False)
    declare_exchange(harness, client, "durable")
    bind_exchange(harness, client, "x", "durable")
    gone = delete_exchange(other, "durable", if_unused=False)
    deleted = delete_exchange(deleter, "x", if_unused=True)
    harness.settle()
    assert gone == deleted == ["ok"] and deleter.errors == []


def test_exchange_delete_if_unused_where_exchanges_lead_to_each_other(harness: Harness) -> None:
    client = harness.client()
    for name in ("x", "y"):
        declare_exchange(harness, client, name, durable=False)
    for source, destination in (("x", "y"), ("y", "x"), ("y", "y")):
        bind_exchange(harness, client, source, destination)
    assert delete_exchange(client, "x", if_unused=True) == []
    assert refusals(client) == ["PRECONDITION_FAILED - exchange 'x' in vhost '/' in use"]


def test_a_deletion_that_is_refused_keeps_an_exchange_in_use(harness: Harness) -> None:
    client, other, deleter = harness.client(), harness.client(), harness.client()
    client.declare("q")
    declare_exchange(harness, client, "x", durable=False)
    bind(harness, client, "x", "q")
    client.publish("q", b"1")
    counts = delete(other, "q", if_empty=True)
    deleted = delete_exchange(deleter, "x", if_unused=True)
    harness.settle()
    assert counts == deleted == [] and len(other.errors) == 1
    assert refusals(deleter) == ["PRECONDITION_FAILED - exchange 'x' in vhost '/' in use"]


def test_exchange_delete_if_unused_is_judged_behind_the_bindings_before_it(harness: Harness) -> None:
    client, binder, deleter = harness.client(), harness.client(), harness.client()
    client.declare("q")
    declare_exchange(harness, client, "x")
    bound = bind(harness, binder, "x", "q")
    deleted = delete_exchange(deleter, "x", if_unused=True)
    harness.settle()
    assert bound == ["ok"] and deleted == []
    assert refusals(deleter) == ["PRECONDITION_FAILED - exchange 'x' in vhost '/' in use"]
    assert exchanges(harness) == {"x"}


@pytest.mark.parametrize("queue", ["q", "local"])
def test_no_binding_comes_to_an_exchange_that_is_being_deleted(harness: Harness, queue: str) -> None:
    client, binder, deleter = harness.client(), harness.client(), harness.client()
    client.declare("q")
    client.declare("local", durable=False)
    declare_exchange(harness, client, "x")
    deleted = delete_exchange(deleter, "x", if_unused=True)
    bound = bind(harness, binder, "x", queue)
    harness.settle()
    assert deleted == ["ok"] and bound == [] and refusals(binder) == [NO_EXCHANGE]


# -- bindings


def test_bind_ok_for_a_binding_that_does_not_exist(harness: Harness) -> None:
    """The queue is deleted before the binding and declared anew behind it, and both pass together."""
    client, binder, publisher = harness.client(), harness.client(), harness.client()
    client.declare("q")
    counts = delete(client, "q")
    bound = bind(harness, binder, "amq.direct", "q")
    harness.turn()
    harness.ledger.commit(1)
    client.ask_declare("q")
    harness.settle()
    publisher.publish("", b"m", exchange="amq.direct", mandatory=True)
    harness.settle()
    assert counts == [0] and client.count("q") == (1 if bound else 0)
    assert (bound, refusals(binder)) in ((["ok"], []), ([], [NO_QUEUE]))


def test_what_the_stream_did_not_bind_is_told_so(harness: Harness) -> None:
    """Without any lock: a step behind another that took one of its ends."""
    client, binder = harness.client(), harness.client()
    client.declare("q")
    declare_exchange(harness, client, "x")
    harness.broker.locks.hold = lambda *names: None  # type: ignore[method-assign]
    harness.broker.locks.release = lambda *names: None  # type: ignore[method-assign]
    delete(client, "q")
    bound = bind(harness, binder, "amq.direct", "q")
    client.ask_declare("r")
    harness.turn()
    harness.ledger.commit(1)
    client.ask_declare("q")
    harness.settle()
    assert bound == [] and refusals(binder) == [NO_QUEUE] and harness.content.configuration.bindings == []


# -- a take-over


def test_auto_delete_exchange_goes_with_the_primary_of_its_last_binding(harness: Harness) -> None:
    client = harness.client()
    client.declare("local", durable=False)
    client.declare("q")
    for name in ("x", "y", "z"):
        declare_exchange(harness, client, name, auto_delete=True)
    for source, queue in (("x", "local"), ("y", "local"), ("y", "q")):
        bind(harness, client, source, queue)
        harness.settle()
    harness.take_over()
    harness.settle()
    assert exchanges(harness) == {"y", "z"} == set(harness.broker.topology.exchanges) & {"x", "y", "z"}
    unbind(harness.client(), "y", "q")
    harness.settle()
    assert exchanges(harness) == {"z"}


def test_a_take_over_while_an_exchange_is_to_go(harness: Harness) -> None:
    """No client gets an answer to what the former primary asked for, and no answer of the next one waits for it."""
    client = harness.client()
    client.declare("local", durable=False)
    declare_exchange(harness, client, "x", auto_delete=True)
    bind(harness, client, "x", "local")
    harness.settle()
    lost = delete(client, "local")
    harness.turn()
    harness.take_over()
    client = harness.client()
    client.ask_declare("again", durable=False)
    counts = delete(client, "again")
    harness.settle()
    assert lost == [] and counts == [0] and exchanges(harness) == set()
