"""Many declarations and rules as one step: it is carried out as a whole, or nothing of it is (seed 000, *state*).

What an operator imports from a file of definitions becomes such a step. Each queue that it may declare needs a number
of its own, as a queue gets it that is declared alone: a step of ``NUMBER`` for each stands right before it. Numbers
that are not used are lost, and nothing else with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from txobserver.audited import AUDITED, plain_step, whose
from txobserver.events import DECLARE_QUEUE, Configure
from txobserver.vhosts import shown_name

LOAD: Final = "definitions.load"
"""The step itself."""
NUMBER: Final = "definitions.number"
"""Takes a number, and changes nothing."""
MOST_PARTS: Final = 5_000
"""Of one step that is asked for: it is carried out in one turn of the loop, in less than a quarter of a second."""
MOST_BYTES: Final = 4 << 20
"""Of all its parts, encoded; for the same reason"""
MOST_VALUES: Final = 20_000
"""Of all tables and lists in its parts, for the same reason: arguments of few bytes can be many"""
READ_PARTS: Final = 10_000
"""Of a step that stands in the stream: an earlier version took as many."""
READ_BYTES: Final = 32 << 20
"""Of all its parts, encoded; the same"""
EVERYTHING: Final = "*"
"""What stands where other steps have a name."""

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class Part(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A step within: without a number, and without terms, since it takes nothing away."""

    operation: str
    name: str
    arguments: bytes


def load_step(steps: Sequence[Configure]) -> Configure:
    """The step of which these are the parts, in the order in which they depend on each other."""
    return Configure(0, LOAD, EVERYTHING, _encode([Part(each.operation, each.name, each.arguments) for each in steps]))


def check_asked(step: Configure) -> None:
    """Whether a step of these parts can be asked for, by how much there is in it.

    Raises ValueError, with a sentence, also for what is no such step. One that stands in the stream can have more.
    """
    if len(step.arguments) > MOST_BYTES:
        raise ValueError(f"it comes to {len(step.arguments)} bytes; one import has {MOST_BYTES} at most: split it")
    parts = msgspec.msgpack.decode(step.arguments, type=list[Part])
    if len(parts) > MOST_PARTS:
        raise ValueError(f"it comes to {len(parts)} steps; one import has {MOST_PARTS} at most: split it")
    values = sum(values_in(msgspec.msgpack.decode(each.arguments)) for each in parts if each.arguments)
    if values > MOST_VALUES:
        raise ValueError(f"it has {values} arguments and other values; one import has {MOST_VALUES} at most: split it")


def values_in(fields: Any) -> int:
    """How many values there are in the tables and lists among these fields of a part, and in theirs."""
    found, left = 0, list(fields) if isinstance(fields, list) else []
    while left:
        each = left.pop()
        if isinstance(each, dict | list):
            found += len(each)
            left += each.values() if isinstance(each, dict) else each
    return found


def number_step() -> Configure:
    """The step that takes a number."""
    return Configure(0, NUMBER, EVERYTHING, b"")


def is_load(step: Configure) -> bool:
    """Whether it has parts, also where it says whose it is."""
    return (whose(step).operation if step.operation == AUDITED else step.operation) == LOAD


def parts_of(step: Configure) -> list[Configure]:
    """The steps within, the queues among them with their numbers, and the others with that of the whole.

    Raises ValueError.
    """
    parts = msgspec.msgpack.decode(plain_step(step).arguments, type=list[Part])
    number = step.config_id - sum(each.operation == DECLARE_QUEUE for each in parts)
    steps: list[Configure] = []
    for each in parts:
        queue = each.operation == DECLARE_QUEUE
        steps.append(Configure(number if queue else step.config_id, each.operation, each.name, each.arguments))
        number += queue
    return steps


def steps_of(step: Configure) -> list[Configure]:
    """The steps within, or the step alone."""
    return parts_of(step) if is_load(step) else [step]


def queues_declared_by(step: Configure) -> dict[int, str]:
    """Number and name of each queue that it declares, alone or within."""
    return {each.config_id: each.name for each in steps_of(step) if each.operation == DECLARE_QUEUE}


def shown_parts(parts: Sequence[Configure]) -> str:
    """What is said of parts in the history of changes: the names, by operation, as JSON; "" of none."""
    shown: dict[str, list[str]] = {}
    for part in parts:
        shown.setdefault(part.operation, []).append(shown_name(part.name))
    return msgspec.json.encode(shown).decode() if shown else ""


def numbers_of(step: Configure) -> int:
    """How many numbers it needs before its own; of one that cannot be read 0: it is refused where it is appended."""
    try:
        return sum(each.operation == DECLARE_QUEUE for each in parts_of(step)) if is_load(step) else 0
    except ValueError:
        return 0
