"""Take-overs where very much is configured: as much in a turn as it has room for, then clients come."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from broker_plugin.embedded.errors import AmqpError
from broker_plugin.embedded.queues.turn import STEPS
from tests.broker_plugin.embedded.harness import Harness
from txobserver.configuration import (
    BindingSpec,
    ExchangeSpec,
    binding_step,
    delete_exchange_step,
    delete_queue_step,
    exchange_step,
    queue_step,
    use_queue_step,
)
from txobserver.events import Configure

MANY = 3 * STEPS


def name(number: int) -> str:
    return f"q{number:04}"


def bound(number: int) -> BindingSpec:
    return BindingSpec("x", name(number), True, "key", {})


def configured(many: int = MANY) -> Harness:
    """An exchange, and so many queues that are bound to it; every hundredth is auto-delete, and had a consumer."""
    harness = Harness()
    asked(harness, exchange_step(ExchangeSpec("x", "direct", False, False, {})))
    for number in range(many):
        asked(harness, queue_step(name(number), number % 100 == 0, {}))
        asked(harness, binding_step(bound(number)))
        if number % 100 == 0:
            asked(harness, use_queue_step(name(number)))
    harness.settle()
    return harness


def asked(harness: Harness, step: Configure) -> None:
    harness.ledger.configure(step, lambda error: None)


def served(harness: Harness) -> dict[str, Any]:
    """All that the broker serves."""
    topology, numbered = harness.broker.topology, harness.broker.numbered
    return {
        "queues": {queue: topology.queues[queue].ready for queue in topology.queues},
        "numbers": {number: queue.name for number, queue in numbered.items()},
        "exchanges": set(topology.exchanges),
        "bindings": {(source, target) for source, targets in topology._from.items() for target in targets},
        "size": topology.size,
    }


def test_piece_by_piece_and_clients_come_then() -> None:
    """``take_over_of_many_queues``: 95,000 queues cost a new primary a turn of half a second, and on a machine that was
    busy its lease, and so the next one's."""
    harness = configured()
    harness.take_over()
    there = [len(harness.broker.numbered)]
    assert there[0] <= STEPS and harness.broker.loading
    while harness.broker.loading:
        with pytest.raises(AmqpError, match="connect again") as error:
            harness.connect()
        assert error.value.code == 320
        harness.turn()
        there.append(len(harness.broker.numbered))
    assert there[-1] == MANY and max(b - a for a, b in itertools.pairwise(there)) <= STEPS
    harness.settle()
    client = harness.client()
    client.publish("key", b"to all that are bound", exchange="x")
    harness.settle()
    assert [client.count(name(number)) for number in (1, MANY - 1)] == [1, 1]
    assert name(0) not in harness.broker.topology.queues, "its consumer has gone with the earlier primary"


def test_no_longer_primary_in_the_middle_of_it() -> None:
    """Nothing is made any more; the next time all of it is."""
    harness = configured()
    harness.take_over()
    harness.turn()
    assert harness.broker.loading
    harness.broker.on_inactive("the lease is lost")
    harness.turn()
    assert not harness.broker.numbered and not harness.broker.loading and not harness.broker.active
    harness.ledger.serve(harness.broker)
    harness.settle()
    assert len(harness.broker.numbered) == MANY - MANY // 100


@pytest.mark.parametrize("seed", range(8))
def test_steps_that_come_meanwhile_count(seed: int) -> None:
    """Whatever is declared, deleted, bound and unbound while it loads, at whichever end: what is served in the end is
    what a broker serves that begins with all of it."""
    harness, chance = configured(STEPS), random.Random(seed)
    harness.take_over()
    assert harness.broker.loading
    made = STEPS
    while harness.broker.loading:
        for _ in range(5):
            number = chance.randrange(made)
            asked(
                harness,
                chance.choice(
                    [
                        delete_queue_step(name(number)),
                        binding_step(bound(number), bind=False),
                        binding_step(BindingSpec("x", name(number), True, "other", {})),
                        queue_step(name(made), False, {}),
                    ]
                ),
            )
            made += 1
        if seed == 0:
            asked(harness, delete_exchange_step("x"))
        harness.ledger.commit()
        harness.turn()
    harness.settle()
    found = served(harness)
    harness.take_over()
    harness.settle()
    assert found == served(harness) and len(found["queues"]) > STEPS // 2


def test_no_queue_is_made_in_the_middle_of_a_transaction() -> None:
    """It would count a part of what comes, and hand it out."""
    harness = configured(2 * STEPS)
    harness.take_over()
    harness.broker.on_step_begins()
    there = len(harness.broker.numbered)
    for _ in range(3):
        harness.turn()
    assert len(harness.broker.numbered) == there and harness.broker.loading
    harness.broker.on_step_ends()
    harness.settle()
    assert not harness.broker.loading
