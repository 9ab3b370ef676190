"""A step with parts: carried out as a whole or not at all, whatever it meets where it is applied."""

from __future__ import annotations

import json

import msgspec
import pytest

from txobserver.access import User, add_user_step, delete_user_step, found_users_step, put_user_step
from txobserver.audited import Origin, audited_step
from txobserver.batch import (
    MOST_BYTES,
    MOST_PARTS,
    MOST_VALUES,
    READ_PARTS,
    check_asked,
    load_step,
    number_step,
    numbers_of,
    parts_of,
    steps_of,
)
from txobserver.configuration import (
    BindingSpec,
    Configured,
    ExchangeSpec,
    UnknownStep,
    binding_step,
    check_step,
    delete_queue_step,
    exchange_step,
    queue_step,
)
from txobserver.definitions import Failed, Trial
from txobserver.events import Configure
from txobserver.ids import Position
from txobserver.ports.store import MemoryBase, Meta
from txobserver.refusal import Refusal
from txobserver.rules import PERMISSION, VHOST, Permission, Rule, Vhost, clear_rule_step, set_rule_step
from txobserver.state.contents import Contents
from txobserver.vhosts import full_name

SOME = Permission("a", "b", "c")
OPERATOR = Origin("ann", "10.0.0.1", "n1", 7)
E = full_name("v", "e")
Q = full_name("v", "q")
WHOLE = [
    put_user_step("u", "hash of u", ("management",)),
    set_rule_step(Rule(VHOST, "v", "v", "", Vhost("of v"))),
    set_rule_step(Rule(PERMISSION, "v", "u", "", SOME)),
    exchange_step(ExchangeSpec(E, "topic", False, False, {})),
    queue_step(Q, False, {"x-queue-type": "quorum"}),
    queue_step("r", False, {}),
    binding_step(BindingSpec(E, Q, True, "k", {})),
    binding_step(BindingSpec("amq.direct", "r", True, "k", {})),
]


class Stream:
    """Numbers steps as a primary does, and applies them."""

    def __init__(self, *steps: Configure) -> None:
        self.contents = Contents(MemoryBase(), Meta(applied=Position(1, 1)))
        for step in (found_users_step([], ""), *steps):
            assert self.apply(step).refusal is None

    def apply(self, step: Configure) -> Configured:
        check_step(step)
        for _ in range(numbers_of(step)):
            self._next(number_step())
        return self._next(step)

    def _next(self, step: Configure) -> Configured:
        last = self.contents.configuration.last_id
        return self.contents.configure(msgspec.structs.replace(step, config_id=last + 1))


def state(contents: Contents) -> object:
    """All that a step may change, but for its number and the history."""
    there, access = contents.configuration, contents.access
    return dict(there.queues), dict(there.exchanges), list(there.bindings), access.users, access.rules


def test_all_parts_are_carried_out_and_each_queue_has_a_number_of_its_own() -> None:
    stream = Stream(queue_step("before", False, {}))
    done = stream.apply(load_step(WHOLE))
    there, access = stream.contents.configuration, stream.contents.access
    assert done.refusal is None and [part.operation for part in done.parts] == [step.operation for step in WHOLE]
    assert {spec.name: spec.number for spec in there.queues.values()} == {"before": 2, Q: 3, "r": 4}
    assert there.queues[Q].arguments == {"x-queue-type": "quorum"} and there.last_id == 5
    assert list(there.exchanges) == [E] and len(there.bindings) == 2
    assert access.users["u"].hash == "hash of u" and access.rules[Rule(PERMISSION, "v", "u", "", SOME).place]
    assert stream.contents.queues.numbers() == {2, 3, 4}, "messages can come"
    assert stream.apply(queue_step("after", False, {})).refusal is None
    assert stream.contents.configuration.queues["after"].number == 6


BROKEN: list[tuple[str, list[Configure], Configure, int, Refusal]] = [
    ("no user", [], set_rule_step(Rule(PERMISSION, "/", "x", "", SOME)), 8, Refusal.GONE),
    ("no virtual host", [], set_rule_step(Rule(PERMISSION, "w", "u", "", SOME)), 8, Refusal.NO_VHOST),
    ("no virtual host of a queue", [], queue_step(full_name("w", "q"), False, {}), 8, Refusal.NO_VHOST),
    (
        "no virtual host of a source",
        [],
        binding_step(BindingSpec(full_name("w", "amq.topic"), "r", True, "", {})),
        8,
        Refusal.NO_VHOST,
    ),
    ("no source", [], binding_step(BindingSpec("absent", "r", True, "", {})), 8, Refusal.NO_SOURCE),
    ("no destination", [], binding_step(BindingSpec(E, "absent", True, "", {})), 8, Refusal.NO_DESTINATION),
    ("another queue", [queue_step("r", True, {})], queue_step("s", False, {}), 5, Refusal.EXISTS),
    (
        "other arguments",
        [queue_step("r", False, {"x-queue-type": "classic"})],
        queue_step("s", False, {}),
        5,
        Refusal.EXISTS,
    ),
    (
        "another exchange",
        [exchange_step(ExchangeSpec("f", "direct", False, False, {}))],
        exchange_step(ExchangeSpec("f", "topic", False, False, {})),
        8,
        Refusal.EXISTS,
    ),
    (
        "a virtual host that goes",
        [set_rule_step(Rule(VHOST, "v", "v", "", Vhost())), queue_step(Q, False, {}), clear_rule_step(VHOST, "v", "v")],
        queue_step("s", False, {}),
        1,
        Refusal.GOING,
    ),
]


@pytest.mark.parametrize(("what", "before", "last", "part", "refusal"), BROKEN, ids=[each[0] for each in BROKEN])
def test_one_part_that_cannot_be_leaves_no_trace_of_the_others(
    what: str, before: list[Configure], last: Configure, part: int, refusal: Refusal
) -> None:
    stream = Stream(*before)
    expected, queues = state(stream.contents), stream.contents.queues.numbers()
    step = load_step([*WHOLE, last])
    trial = Trial(stream.contents.configuration, stream.contents.access)
    trial.carry_out(parts_of(step))
    assert trial.failed == Failed(part, refusal)
    assert stream.apply(audited_step(step, OPERATOR, 10)) == Configured(refusal=refusal)
    assert state(stream.contents) == expected and stream.contents.queues.numbers() == queues
    change = stream.contents.access.changes[-1]
    assert (change.operation, change.after, change.refusal) == ("definitions.load", "", refusal)


def test_what_is_there_as_it_is_declared_stays_as_it_is() -> None:
    """It is used, and its messages stay: a file can be imported twice."""
    stream = Stream()
    stream.apply(load_step(WHOLE))
    stream.apply(Configure(0, "queue.use", Q, b""))
    expected = state(stream.contents)
    last = stream.contents.configuration.last_id
    assert stream.apply(load_step(WHOLE)).refusal is None
    assert state(stream.contents) == expected
    assert stream.contents.configuration.last_id == last + 3, "the numbers are lost"
    assert stream.contents.queues.numbers() == {2, 3}


def test_a_user_that_is_there_gets_the_password_and_tags_and_stays_who_it_is() -> None:
    stream = Stream(add_user_step("u", "other"))
    number = stream.contents.access.users["u"].number
    stream.apply(load_step(WHOLE))
    assert stream.contents.access.users["u"] == User("u", "hash of u", ("management",), number)


def test_the_history_says_whose_it_was_and_what_came_and_no_hash() -> None:
    stream = Stream()
    step = audited_step(load_step(WHOLE), OPERATOR, 10)
    assert stream.apply(step).refusal is None
    change = stream.contents.access.changes[-1]
    assert (change.tnx_id, change.user, change.address, change.before) == (4, "ann", "10.0.0.1", "")
    shown = json.loads(change.after)
    assert shown["queue.declare"] == ["q in vhost v", "r"] and shown["user.put"] == ["u"]
    assert "hash" not in change.after
    again = load_step([*WHOLE, put_user_step("u", "other", ())])
    assert stream.apply(audited_step(again, OPERATOR, 10)).refusal is None
    assert json.loads(stream.contents.access.changes[-1].before) == {"user.put": ["u"]}
    assert [part.config_id for part in parts_of(msgspec.structs.replace(step, config_id=9))][4:6] == [7, 8]


def test_the_digest_tells_what_came_of_it() -> None:
    """Nodes compare it: one that carried it out differs from one that did not."""
    carried_out, refused = Stream(), Stream()
    carried_out.apply(load_step(WHOLE[:3]))
    refused.contents.access.loaded(Configure(2, "definitions.load", "*", b""), {}, {}, Refusal.GONE, ("", ""))
    assert carried_out.contents.access.digest() != refused.contents.access.digest()


def test_a_step_without_parts_is_its_own() -> None:
    step = queue_step("q", False, {})
    assert steps_of(step) == [step] and numbers_of(step) == 0


REFUSED = {
    "takes away": [delete_user_step("u")],
    "deletes a queue": [delete_queue_step("q")],
    "parts within parts": [load_step([])],
    "another's": [audited_step(WHOLE[0], OPERATOR, 1)],
    "a part that cannot be": [set_rule_step(Rule(PERMISSION, "v", "u", "x", SOME))],
    "too many": [WHOLE[0]] * (READ_PARTS + 1),
}


@pytest.mark.parametrize("parts", REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_a_part_is_refused_before_it_is_written(parts: list[Configure]) -> None:
    with pytest.raises(UnknownStep, match="unknown arguments"):
        check_step(audited_step(load_step(parts), OPERATOR, 1))


def of_bytes(size: int) -> Configure:
    """A step whose one part makes its arguments so long."""
    empty = len(load_step([queue_step("q", False, {"a": "x" * (1 << 16)})]).arguments) - (1 << 16)
    return load_step([queue_step("q", False, {"a": "x" * (size - empty)})])


ASKED = {
    "steps": (load_step([WHOLE[0]] * MOST_PARTS), load_step([WHOLE[0]] * (MOST_PARTS + 1))),
    "bytes": (of_bytes(MOST_BYTES), of_bytes(MOST_BYTES + 1)),
    "arguments": tuple(
        load_step([queue_step("q", False, {"a": {str(n): 1 for n in range(count)}, "b": [1, 2]})] * 2)
        for count in (MOST_VALUES // 2 - 4, MOST_VALUES // 2 - 3)
    ),
}


@pytest.mark.parametrize("what", ASKED)
def test_what_takes_a_turn_too_long_is_not_asked_for(what: str) -> None:
    """``an_import_as_long_as_a_lease``: of 32 MiB it took the primary's loop longer than a lease can wait."""
    largest, larger = ASKED[what]
    check_asked(largest)
    with pytest.raises(ValueError, match=f"{what}.*at most: split it"):
        check_asked(larger)


@pytest.mark.parametrize("what", ASKED)
def test_a_larger_step_of_an_earlier_version_is_read(what: str) -> None:
    """It stands in a log: a node that did not take it could not start."""
    for step in ASKED[what]:
        check_step(step)
        check_step(audited_step(step, OPERATOR, 1))
    check_step(audited_step(load_step([WHOLE[0]] * READ_PARTS), OPERATOR, 1))
