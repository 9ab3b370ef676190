"""Clients that have a login, and ask for much work by few words: what issue by issue held the loop of a node once."""

from __future__ import annotations

from collections.abc import Iterator

from python_tests.suites.amqp_programs import wire as amqp
from python_tests.suites.attacks.attack import Listener, attack
from python_tests.suites.attacks.malformed import declare
from python_tests.suites.attacks.target import Target
from python_tests.suites.attacks.wire import Wire, message, method

PRIMARY = Listener.PRIMARY
STEP = 500
LONG = 300.0
"""Seconds for which an answer to much work is waited for"""


def pieces(count: int, step: int = STEP) -> Iterator[range]:
    """The numbers up to ``count``, in ranges of ``step``."""
    for first in range(0, count, step):
        yield range(first, min(first + step, count))


def clean(target: Target, *queues: str, exchange: str = "") -> None:
    """Delete what an attack has left."""
    wire = target.login()
    for queue in queues:
        wire.send(method(1, "queue.delete", queue=queue))
        wire.expect("queue.delete-ok", LONG)
    if exchange:
        wire.send(method(1, "exchange.delete", exchange=exchange))
        wire.expect("exchange.delete-ok", LONG)
    wire.close()


def queue_of(wire: Wire, queue: str, **arguments: bool) -> None:
    """Declare it, and wait until it is there."""
    wire.method(1, "queue.declare", queue=queue, **arguments)
    wire.expect("queue.declare-ok")


@attack(PRIMARY, "A topic binding of 127 `#`, and messages whose keys are 255 dots, for 50 messages",
        "test_a_pattern_of_many_hashes", in_slice=True)  # fmt: skip
def topic_of_hashes(target: Target) -> str:
    wire = target.login()
    queue_of(wire, "hashes")
    wire.method(1, "exchange.declare", exchange="topics", type="topic")
    wire.expect("exchange.declare-ok")
    wire.method(1, "queue.bind", queue="hashes", exchange="topics", key=".".join("#" * 127))
    wire.expect("queue.bind-ok")
    count = target.times(50)
    for _ in range(count):
        wire.send(message(1, "topics", "." * 255, b"x"))
    wire.method(1, "tx.select")
    wire.expect("tx.select-ok", LONG)
    wire.close()
    clean(target, "hashes", exchange="topics")
    return f"{count} messages routed"


@attack(PRIMARY, "A queue with 30,000 headers bindings is deleted", "test_a_queue_takes_its_bindings_in_one_step")
def deletion_with_bindings(target: Target) -> str:
    wire, count = target.login(), target.times(30_000)
    queue_of(wire, "bound")
    wire.method(1, "exchange.declare", exchange="heads", type="headers")
    wire.expect("exchange.declare-ok")
    for numbers in pieces(count):
        said = [
            method(1, "queue.bind", queue="bound", exchange="heads", nowait=True, arguments=[[f"h{n}", "I", n]])
            for n in numbers
        ]
        wire.send(b"".join(said), LONG)
    wire.method(1, "queue.bind", queue="bound", exchange="heads", key="last")
    wire.expect("queue.bind-ok", LONG)
    wire.close()
    clean(target, "bound", exchange="heads")
    return f"{count:,} bindings gone"


@attack(PRIMARY, "20,000 consumers of one queue disconnect", "test_a_consumer_is_found_without_a_look_at_the_others")
def consumers_disconnect(target: Target) -> str:
    wire, count = target.login(), target.times(20_000)
    queue_of(wire, "watched")
    for numbers in pieces(count):
        said = [method(1, "basic.consume", queue="watched", tag=f"c{n}", nowait=True) for n in numbers]
        wire.send(b"".join(said), LONG)
    wire.method(1, "basic.qos", count=1)
    wire.expect("basic.qos-ok", LONG)
    wire.reset()
    clean(target, "watched")
    return f"{count:,} consumers gone"


def unacknowledged(target: Target, queue: str, count: int) -> Wire:
    """A client that holds so many messages, with its queue."""
    wire = target.login(channels=(1, 2))
    queue_of(wire, queue)
    for numbers in pieces(count):
        wire.send(message(2, "", queue, b"x") * len(numbers), LONG)
    wire.method(2, "basic.qos", count=1)
    wire.expect("basic.qos-ok", LONG)
    wire.method(1, "basic.consume", queue=queue, tag="c")
    for _ in range(count):
        wire.expect("basic.deliver", LONG)
    return wire


@attack(PRIMARY, "`ack 1` and a rollback, 40 times, with 200,000 messages unacknowledged",
        "test_a_request_of_many_pieces_is_answered_in_order")  # fmt: skip
def rollback_over_unacknowledged(target: Target) -> str:
    count = target.times(200_000)
    wire = unacknowledged(target, "held", count)
    wire.method(1, "tx.select")
    wire.expect("tx.select-ok", LONG)
    for _ in range(40):
        wire.send(method(1, "basic.ack", delivery=1) + method(1, "tx.rollback"))
        wire.expect("tx.rollback-ok", LONG)
    wire.close()
    clean(target, "held")
    return f"40 rollbacks over {count:,}"


@attack(PRIMARY, "basic.recover of 200,000 unacknowledged messages",
        "test_a_request_of_many_pieces_is_answered_in_order")  # fmt: skip
def recover_of_unacknowledged(target: Target) -> str:
    count = target.times(200_000)
    wire = unacknowledged(target, "recovered", count)
    wire.method(1, "basic.recover", requeue=True)
    wire.expect("basic.recover-ok", LONG)
    wire.close()
    clean(target, "recovered")
    return f"{count:,} given back"


@attack(PRIMARY, "100,000 unacknowledged messages come back since their client's connection is reset")
def reset_with_unacknowledged(target: Target) -> str:
    count = target.times(100_000)
    unacknowledged(target, "dropped", count).reset()
    clean(target, "dropped")
    return f"{count:,} given back"


@attack(PRIMARY, "Arguments with an array of 128 KiB of voids, 40 times",
        "test_an_array_costs_the_same_for_each_value")  # fmt: skip
def array_of_voids(target: Target) -> str:
    said = declare(amqp.long(b"\x01aA" + amqp.long(b"V" * 130_900)))
    answers = set()
    for _ in range(target.times(40)):
        wire = target.login()
        wire.send(said)
        answers.add(wire.outcome(1.0))
        wire.close()
    return ", ".join(sorted(answers))


@attack(PRIMARY, "Consumer tags of 255 octets, 5,000 of them, each cancelled", in_slice=True)
def huge_consumer_tags(target: Target) -> str:
    wire, count = target.login(), target.times(5000)
    queue_of(wire, "tags", exclusive=True)
    for numbers in pieces(count, 100):
        tags = [f"{n:255}" for n in numbers]
        wire.send(b"".join(method(1, "basic.consume", queue="tags", tag=tag, nowait=True) for tag in tags), LONG)
        wire.send(b"".join(method(1, "basic.cancel", tag=tag, nowait=True) for tag in tags), LONG)
    wire.method(1, "basic.qos", count=1)
    wire.expect("basic.qos-ok", LONG)
    wire.close()
    return f"{count:,} consumers came and went"


@attack(PRIMARY, "A topic exchange with 20,000 patterns, bound and unbound")
def many_patterns(target: Target) -> str:
    wire, count = target.login(), target.times(20_000)
    queue_of(wire, "patterns")
    wire.method(1, "exchange.declare", exchange="many", type="topic")
    wire.expect("exchange.declare-ok")
    for numbers in pieces(count):
        keys = [f"*.{n}.#.*.{n % 7}" for n in numbers]
        wire.send(b"".join(method(1, "queue.bind", queue="patterns", exchange="many", key=key, nowait=True)
                           for key in keys), LONG)  # fmt: skip
    wire.send(message(1, "many", ".".join(["1"] * 120), b"x") * 200, LONG)
    wire.method(1, "exchange.delete", exchange="many")
    wire.expect("exchange.delete-ok", LONG)
    wire.close()
    clean(target, "patterns")
    return f"{count:,} bindings"


@attack(PRIMARY, "Exchanges bound to each other in circles, 60 of them, and 50 messages into them")
def circles_of_exchanges(target: Target) -> str:
    wire, count = target.login(), 60
    for n in range(count):
        wire.method(1, "exchange.declare", exchange=f"round-{n}", type="fanout", nowait=True)
    for n in range(count):
        for other in range(count):
            wire.method(1, "exchange.bind", destination=f"round-{other}", source=f"round-{n}", nowait=True)
    messages = target.times(50)
    wire.send(message(1, "round-0", "", b"x") * messages, LONG)
    wire.method(1, "tx.select")
    wire.expect("tx.select-ok", LONG)
    for n in range(count):
        wire.method(1, "exchange.delete", exchange=f"round-{n}", nowait=True)
    wire.method(1, "tx.select")
    wire.expect("tx.select-ok", LONG)
    wire.close()
    return f"{messages} messages through {count * count:,} bindings"
