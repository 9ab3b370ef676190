"""The words that a node and its coordination process share."""

from __future__ import annotations

import math
import os

import pytest

from broker_plugin.coordination.shared_watchdog import SharedWatchdog


def test_each_side_reads_what_the_other_has_written_of_one_generation() -> None:
    node = SharedWatchdog()
    process = SharedWatchdog(os.dup(node.descriptor))
    assert process.turned_at(0) == process.turned_at(1) == node.renewed_at(1) == -math.inf
    node.turned(7, 1234567.25)
    process.renewed(7, 1234567.5)
    assert process.turned_at(7) == 1234567.25 and node.renewed_at(7) == 1234567.5
    for generation in (6, 8):
        assert process.turned_at(generation) == node.renewed_at(generation) == -math.inf
    node.turned(7, 1234568.0)
    assert process.turned_at(7) == 1234568.0
    node.rest()
    assert process.turned_at(7) == -math.inf and node.renewed_at(7) == 1234567.5
    node.turned((1 << 40) + 1, 3.0)
    assert process.turned_at((1 << 40) + 1) == 3.0 and process.turned_at(7) == -math.inf
    process.close()
    node.close()


@pytest.mark.parametrize("written", ["turned", "renewed"])
def test_a_generation_never_stands_beside_the_time_of_a_later_one(written: str) -> None:
    """The two words are not written in one step: between them the other side finds that there is none."""
    node = SharedWatchdog()
    write = getattr(node, written)
    read = node.turned_at if written == "turned" else node.renewed_at
    write(1, 10.0)
    words, seen = node._words, []

    class Seen:
        """The memory, looked at before and after each word that is written."""

        def __getitem__(self, word: int) -> int:
            return words[word]

        def __setitem__(self, word: int, value: int) -> None:
            words[word] = value
            node._words = words
            seen.append((read(1), read(2)))
            node._words = self  # type: ignore[assignment]

    node._words = Seen()  # type: ignore[assignment]
    write(2, 20.0)
    node._words = words
    assert seen == [(-math.inf, -math.inf), (-math.inf, -math.inf), (-math.inf, 20.0)]
    node.close()


def test_it_takes_two_descriptors_and_leaves_none() -> None:
    def opened() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = opened()
    node = SharedWatchdog()
    assert opened() == before + 2
    assert not os.get_inheritable(node.descriptor)
    process = SharedWatchdog(os.dup(node.descriptor))
    assert opened() == before + 3, "the one that a process is given is closed"
    process.close()
    node.close()
    assert opened() == before
