"""What a client holds, against a plain dict."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_plugin.embedded.queues import unacked
from broker_plugin.embedded.queues.unacked import RUN, Unacked

pytestmark = pytest.mark.plain

STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "add", "pop", "take", "back"]), st.integers(0, 40), st.integers(1, 12)),
    max_size=60,
)


@given(STEPS, st.sampled_from([0, 1, 2, 9]))
def test_like_a_dict(steps: list[tuple[str, int, int]], bits: int) -> None:
    with patch.object(unacked, "BITS", bits):
        ours: Unacked[str] = Unacked()
        model: dict[int, str] = {}
        gone: dict[int, str] = {}
        last = 0
        for what, tag, count in steps:
            if what == "add":
                for _ in range(count):
                    last += 1
                    ours.add(last, f"m{last}")
                    model[last] = f"m{last}"
            elif what == "pop":
                held = model.pop(tag, None)
                assert ours.pop(tag) == held
                gone |= {} if held is None else {tag: held}
            elif what == "take":
                wanted = [each for each in sorted(model.items()) if each[0] <= tag][:count]
                assert ours.take(tag, count) == wanted
                gone |= dict(wanted)
                for each, _ in wanted:
                    del model[each]
            else:
                back = list(gone.items())[-count:]
                ours.put_back(back)
                for each, held in back:
                    model[each] = held
                    del gone[each]
            assert len(ours) == len(model) and list(ours) == sorted(model)
            assert ours.items() == sorted(model.items()) and all(each in ours for each in model)
            assert not any(each in ours for each in gone) and "1" not in ours


@pytest.mark.parametrize("tags", [[1], [1, 2], [2, 1]])
def test_what_comes_when_nothing_is_held_is_held(tags: list[int]) -> None:
    """A client that acknowledges each message by itself has none in its hands when the next one comes."""
    ours: Unacked[str] = Unacked()
    for tag in sorted(tags):
        ours.add(tag, "gone")
    for tag in tags:
        assert ours.pop(tag) == "gone"
    ours.add(3, "held")
    assert 3 in ours and list(ours) == [3] and ours.take(3, 1) == [(3, "held")] and not ours


def test_the_first_is_found_however_many_have_gone() -> None:
    ours: Unacked[int] = Unacked()
    for tag in range(1, 20 * RUN):
        ours.add(tag, tag)
    before = ours.steps
    for tag in range(1, 20 * RUN):
        assert ours.take(tag, 1) == [(tag, tag)]
    assert ours.steps - before < 3 * 20 * RUN
