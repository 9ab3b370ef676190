"""What clients declared, step by step: what each step leaves, and what is no next step."""

from __future__ import annotations

import pytest

from txobserver.configuration import (
    BIND,
    BindingSpec,
    Configuration,
    Configured,
    ExchangeSpec,
    Refusal,
    binding_step,
    delete_exchange_step,
    delete_queue_step,
    exchange_step,
    leave_exchange_step,
    queue_step,
    use_exchange_step,
    use_queue_step,
)
from txobserver.events import Configure, Terms


def exchange(name: str) -> ExchangeSpec:
    return ExchangeSpec(name, "topic", False, False, {})


def binding(source: str, destination: str, key: str = "", to_queue: bool = True) -> BindingSpec:
    return BindingSpec(source, destination, to_queue, key, {})


def applied(configuration: Configuration, *steps: Configure) -> list[int | None]:
    found = []
    for step in steps:
        step.config_id = configuration.last_id + 1
        found.append(configuration.apply(step).deleted)
        assert configuration.last_id == step.config_id
    return found


def made() -> Configuration:
    found = Configuration()
    applied(found, queue_step("q", False, {}), queue_step("r", True, {"a": 1}), exchange_step(exchange("e")))
    applied(found, exchange_step(exchange("f")))
    return found


@pytest.mark.parametrize("number", [0, 4, 6, -5])
def test_a_gap_in_the_ids_is_refused(number: int) -> None:
    configuration, step = made(), queue_step("new", False, {})
    before = configuration.copy()
    step.config_id = number
    with pytest.raises(ValueError, match="came after 4"):
        configuration.apply(step)
    assert configuration == before


def test_a_step_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown"):
        made().apply(Configure(5, "dance", "q", b""))


def test_a_queue_keeps_its_number_for_as_long_as_it_lives() -> None:
    ours = made()
    assert (ours.queue_number("q"), ours.queue_number("r"), ours.queue_number("x")) == (1, 2, None)
    assert applied(ours, queue_step("q", True, {"b": 2})) == [None]
    assert ours.queue_number("q") == 1 and not ours.queues["q"].auto_delete and ours.queues["q"].arguments == {}
    assert ours.queues["r"].auto_delete and ours.queues["r"].arguments == {"a": 1}
    assert applied(ours, delete_queue_step("q"), delete_queue_step("q")) == [1, None]
    applied(ours, queue_step("q", False, {}))
    assert ours.queue_number("q") == 8 and ours.numbers() == {2, 8}


def test_bindings_go_with_their_ends_and_no_others() -> None:
    ours = made()
    all_of_them = [
        binding("e", "q"),
        binding("e", "q", "key"),
        binding("e", "r"),
        binding("f", "q"),
        binding("e", "f", to_queue=False),
        binding("amq.topic", "r"),
    ]
    applied(ours, *(binding_step(each) for each in all_of_them))
    applied(ours, binding_step(all_of_them[0]))
    assert ours.bindings == all_of_them
    first = ours.copy()
    applied(first, delete_queue_step("q"))
    assert first.bindings == [all_of_them[2], *all_of_them[4:]]
    second = ours.copy()
    applied(second, delete_exchange_step("f"))
    assert second.bindings == [*all_of_them[:3], all_of_them[5]] and "f" not in second.exchanges
    third = ours.copy()
    applied(third, binding_step(all_of_them[1], bind=False), binding_step(all_of_them[1], bind=False))
    assert third.bindings == [all_of_them[0], *all_of_them[2:]]
    applied(third, binding_step(all_of_them[1]))
    assert third.bindings == [all_of_them[0], *all_of_them[2:], all_of_them[1]]
    assert ours.bindings == all_of_them, "copies are independent"


@pytest.mark.parametrize(
    "spec",
    [
        binding("x", "q"),
        binding("e", "x"),
        binding("e", "x", to_queue=False),
        binding("x", "e", to_queue=False),
        binding("e", "q", to_queue=False),
        binding("q", "r"),
    ],
)
def test_a_binding_without_both_ends_is_none(spec: BindingSpec) -> None:
    ours = made()
    applied(ours, binding_step(spec))
    assert ours.bindings == []


def test_an_exchange_is_what_it_was_first_declared_as() -> None:
    ours = made()
    applied(ours, exchange_step(ExchangeSpec("e", "fanout", True, True, {"x": 1})))
    assert ours.exchanges["e"] == exchange("e")


def stepped(configuration: Configuration, step: Configure, holds: bool = False) -> Configured:
    step.config_id = configuration.last_id + 1
    return configuration.apply(step, lambda queue, spared: holds)


def fading(*names: str) -> Configuration:
    """Auto-delete exchanges, and two queues."""
    found = Configuration()
    applied(found, queue_step("q", False, {}), queue_step("r", True, {}))
    applied(found, *(exchange_step(ExchangeSpec(name, "topic", True, False, {})) for name in names))
    return found


def test_a_deletion_with_a_condition_is_a_step_whatever_comes_of_it() -> None:
    ours = made()
    assert stepped(ours, delete_queue_step("q", Terms(empty=True)), holds=True).refusal is Refusal.NOT_EMPTY
    assert "q" in ours.queues and ours.last_id == 5
    assert stepped(ours, delete_queue_step("q"), holds=True) == Configured(deleted=1)
    assert stepped(ours, delete_queue_step("q", Terms(empty=True)), holds=True) == Configured(), "it has gone already"
    applied(ours, binding_step(binding("e", "r")))
    assert stepped(ours, delete_exchange_step("e", unused=True)).refusal is Refusal.IN_USE and "e" in ours.exchanges
    assert stepped(ours, delete_exchange_step("f", unused=True)) == Configured() and "f" not in ours.exchanges
    assert stepped(ours, delete_exchange_step("e")) == Configured() and not ours.bindings


def test_auto_delete_exchanges_lapse_in_the_step_that_takes_their_last_binding() -> None:
    ours = fading("x", "y", "z")
    applied(ours, binding_step(binding("x", "q")), binding_step(binding("y", "x", "", False)))
    applied(ours, binding_step(binding("z", "q")), binding_step(binding("z", "r")))
    before = ours.copy()
    assert stepped(ours, delete_queue_step("q")) == Configured(1, ("x", "y"))
    assert list(ours.exchanges) == ["z"] and len(ours.bindings) == 1
    assert stepped(ours, binding_step(binding("z", "r"), bind=False)) == Configured(lapsed=("z",))
    assert ours.exchanges == {} and ours.bindings == [] and list(before.exchanges) == ["x", "y", "z"]
    assert stepped(before, delete_exchange_step("x")) == Configured(lapsed=("y",)) and list(before.exchanges) == ["z"]


def test_no_exchange_lapses_by_a_step_of_an_earlier_version() -> None:
    """It has no terms, and a step that deletes the exchange stands somewhere behind it, or does not."""
    ours = fading("x")
    applied(ours, binding_step(binding("x", "q")))
    step = binding_step(binding("x", "q"), bind=False)
    step.terms = None
    assert stepped(ours, step) == Configured() and "x" in ours.exchanges and ours.bindings == []
    assert stepped(ours, Configure(0, "exchange.delete", "x", b"")) == Configured() and ours.exchanges == {}


def test_what_is_used_does_not_lapse() -> None:
    ours = fading("x")
    before = ours.copy()
    applied(ours, binding_step(binding("x", "q")))
    assert stepped(ours, use_exchange_step("x")) == stepped(ours, use_queue_step("r")) == Configured()
    assert ours.exchanges["x"].used and ours.queues["r"].used and not before.exchanges["x"].used
    assert stepped(ours, binding_step(binding("x", "q"), bind=False)) == Configured()
    assert stepped(ours, delete_exchange_step("x", unused=True)).refusal is Refusal.IN_USE
    assert stepped(ours, leave_exchange_step("x")) == Configured(lapsed=("x",))
    for step in (use_exchange_step("x"), leave_exchange_step("x"), use_queue_step("gone")):
        assert stepped(ours, step).refusal is Refusal.GONE


@pytest.mark.parametrize(
    ("spec", "refusal"),
    [
        (binding("gone", "q"), Refusal.NO_SOURCE),
        (binding("x", "gone"), Refusal.NO_DESTINATION),
        (binding("x", "gone", "", False), Refusal.NO_DESTINATION),
        (binding("amq.topic", "x", "", False), None),
        (binding("x", "q"), None),
    ],
)
def test_a_binding_without_an_end_is_refused(spec: BindingSpec, refusal: Refusal | None) -> None:
    ours = fading("x")
    step = binding_step(spec)
    assert step.operation == BIND and stepped(ours, step).refusal is refusal
    assert len(ours.bindings) == (refusal is None)
