"""The walker: compiled or plain, it finds the same; what is no frame of ours is an error."""

from __future__ import annotations

import importlib.util
import random
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.compiled import available, source_of
from recovery.pipeline.rows.sheet import walker
from tests.recovery.pipeline.events import EVENT, message
from tests.support.examples import examples
from txobserver.events import Event, Publish, Settle, TxPrepare
from txobserver.frames import HEADER_SIZE, TRAILER, encode_frame

NAME = "recovery.pipeline.rows.walker"


def plain() -> ModuleType:
    spec = importlib.util.spec_from_file_location("plain_walker", source_of(NAME))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PLAIN = plain()


def walked(by: Any, data: bytes, skip: int, count: int) -> tuple[bytes, bytes]:
    walk = by.Walk()
    walk.frame(data, HEADER_SIZE, len(data) - len(TRAILER), skip, count)
    return walk.rows.getvalue(), walk.messages.getvalue()


def test_this_process_runs_the_compiled_one_if_it_has_been_built() -> None:
    assert str(walker.__file__).endswith(".py") == (not available([NAME]))


@examples(200)
@given(st.lists(EVENT, min_size=1, max_size=6), st.data())
def test_compiled_and_plain_find_the_same(events: list[Event], data: st.DataObject) -> None:
    skip = data.draw(st.integers(0, len(events)))
    count = data.draw(st.integers(0, len(events) - skip))
    encoded = encode_frame(1, 1, events, 0).data
    assert walked(walker, encoded, skip, count) == walked(PLAIN, encoded, skip, count)


@pytest.mark.parametrize("by", [walker, PLAIN], ids=["compiled", "plain"])
def test_numbers_and_lengths_of_every_size(by: Any) -> None:
    sizes = [0, 31, 32, 255, 256, 65_535, 65_536]
    numbers = [0, 127, 128, 255, 256, 65_535, 65_536, (1 << 32) - 1, 1 << 32, (1 << 63) - 1]
    events: list[Event] = [Publish(number, (number,), message("x" * 9)) for number in numbers]
    events += [Settle(1, [(number, number)] * size, 1) for number in numbers[-3:] for size in sizes]
    events += [TxPrepare(1, 1, ["n" * size] * 20) for size in sizes]
    rows = memoryview(walked(by, encode_frame(1, 1, events, 0).data, 0, len(events))[0]).cast("q").tolist()
    found = [rows[at : at + len(walker.ROW)] for at in range(0, len(rows), len(walker.ROW))]
    assert [row[3] for row in found[: len(numbers)]] == [row[5] for row in found[: len(numbers)]] == numbers
    settled = [(row[4], row[5]) for row in found if row[1] == walker.SETTLE]
    none = (-1, -1)
    assert settled == [pair for number in numbers[-3:] for size in sizes for pair in [(number,) * 2] * size or [none]]


@pytest.mark.parametrize("by", [walker, PLAIN], ids=["compiled", "plain"])
def test_what_no_encoder_of_ours_has_written_is_an_error(by: Any) -> None:
    events: list[Event] = [Publish(1, (1, 2), message("a")), Settle(1, [(1, 2)], 1), TxPrepare(1, 2, ["n1"])]
    whole = encode_frame(1, 1, events, 0).data
    with pytest.raises(ValueError, match="3 events are fewer"):
        walked(by, whole, 1, 3)
    for end in range(HEADER_SIZE, len(whole) - 1):
        with pytest.raises((ValueError, IndexError)):
            walked(by, whole[:end], 0, 3)
    with pytest.raises(ValueError, match="63 bits"):
        by.number(b"\xcf" + b"\xff" * 8, 0)
    nested = whole[:HEADER_SIZE] + b"\x91" * 1_000_000
    with pytest.raises((ValueError, IndexError)):
        walked(by, nested, 0, 1)
    chance = random.Random(7)
    for _ in range(2000):
        damaged = bytearray(whole)
        damaged[chance.randrange(HEADER_SIZE, len(whole))] = chance.randrange(256)
        try:
            walked(by, bytes(damaged), 0, 3)
        except (ValueError, IndexError):
            continue
