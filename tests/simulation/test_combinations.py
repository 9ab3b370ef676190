"""Each combination reaches the moment that it waits for, and the product as it is holds through that."""

from __future__ import annotations

import pytest

from tests.simulation.faults import COMBINATIONS, COMBINED_FROM, LOSSES, Fault, draw_schedule
from tests.simulation.run import Run
from tests.simulation.world import World

MOMENTS = {
    "snapshot_not_durable": ("loses the disk", "resynchronising", "fault "),
    "joiner_while_commits_wait": ("SIGKILL", "is out of the ready set", "attached", "SIGCONT"),
    "older_record_of_another_generation": ("is put in its place", "this store has seen generation", "writes the"),
    "forced_while_another_is_promoted": ("disk of", "forces", "nothing is forced"),
    "primary_oversleeps": ("SIGSTOP", "record ", "SIGCONT", "stepping down: the lease could not be renewed"),
    "stopped_for_a_deadline": ("SIGSTOP", "SIGCONT", "SIGSTOP", "SIGCONT"),
    "renewal_told_late": ("late", "off from the coordination store", "stepping down", "state active"),
    "copy_in_memory_alone": ("loses the disk", "at the end of its copy", "in the memory of", "power cut"),
    "slow_joiner": ("a slow one", "resynchronises queue by queue", "is ready"),
    "clock_jumps_at_a_cut": ("off from the coordination store", "jumps", "state active"),
    "damaged_while_serving": ("are damaged", "the store failed", "has mended", "starts"),
    "copied_again_and_again": ("loses the disk", "is ready", "loses the disk", "is ready"),
    "leaves_to_nobody": ("loses all disks", "is full", "store failed", "is ready"),
    "a_vote_fails_at_the_end": ("is full", "cancelled by", "power cut"),
}
"""Of each: what its transcript says, in this order"""
FIRST = {"snapshot_not_durable": 2, "copy_in_memory_alone": 2}
"""Of those to which their moment comes late: the seed in which it does"""


@pytest.mark.slice
@pytest.mark.parametrize("kind", COMBINATIONS)
def test_the_moment_comes(kind: str) -> None:
    for seed in range(FIRST.get(kind, 0), 60):
        result = Run(seed, [Fault(0.1, kind, 1.1, 0)], transcript=True).run()
        assert not result.broken
        if _comes(result.transcript, MOMENTS[kind]):
            return
    raise AssertionError(f"{kind} never comes to {MOMENTS[kind]}")


def _comes(transcript: list[str], moments: tuple[str, ...]) -> bool:
    lines = iter(transcript[_began(transcript) :])
    return all(any(moment in line for line in lines) for moment in moments)


def _began(transcript: list[str]) -> int:
    return next((at for at, line in enumerate(transcript) if " fault " in line), len(transcript))


def test_seeds_from_a_billion_on_have_one_each() -> None:
    for seed in range(COMBINED_FROM, COMBINED_FROM + 100):
        kinds = [fault.kind for fault in draw_schedule(World(seed), 1.2)]
        assert sum(kind in COMBINATIONS for kind in kinds) == 1 and not LOSSES.keys() & kinds
