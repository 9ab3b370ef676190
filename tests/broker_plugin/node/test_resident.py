"""Freed memory goes back to the system, and not more often than it helps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from broker_plugin.node.resident import FRUITLESS, GROWTH, ResidentTrim, let_go, resident_bytes, shared_mappings

MIB = 1 << 20


class Process:
    """One whose size the test says; a trim brings it down to ``left``."""

    def __init__(self) -> None:
        self.bytes = self.left = 100 * MIB
        self.trims = 0
        self.heap = ResidentTrim(lambda: self.bytes, self._trim)

    def _trim(self) -> None:
        self.trims += 1
        self.bytes = self.left

    def look(self, size: int, left: int) -> int:
        """How often it has been trimmed after a look at this size."""
        self.bytes, self.left = size, left
        self.heap.look()
        return self.trims


def test_a_process_that_has_not_grown_is_left_alone() -> None:
    process = Process()
    assert [process.look(100 * MIB + more, 0) for more in (0, 1, GROWTH - 1, -MIB)] == [0, 0, 0, 0]


def test_one_that_has_grown_is_trimmed_and_compared_with_its_smallest_size() -> None:
    process = Process()
    process.look(100 * MIB, 0)
    assert process.look(600 * MIB, 580 * MIB) == 1, "most of it is in use"
    assert process.look(580 * MIB, 110 * MIB) == 2, "that was freed meanwhile, and the process has not grown"
    assert process.look(110 * MIB, 0) == 2
    assert process.look(140 * MIB, 90 * MIB) == 3 and process.heap.least == 90 * MIB


def test_after_a_trim_that_gave_back_little_the_next_look_rests() -> None:
    process = Process()
    process.look(100 * MIB, 0)
    sizes = [process.look(600 * MIB, 600 * MIB - FRUITLESS + 1) for _ in range(4)]
    assert sizes == [1, 1, 2, 2]


def test_one_that_has_grown_before_the_first_look_is_trimmed() -> None:
    """A node that took much within the first 15 s was compared with that, and stayed so large for ever."""
    process = Process()
    process.heap.start()
    assert process.heap.least == 100 * MIB and process.look(600 * MIB, 110 * MIB) == 1
    process.heap.stop()


def test_where_nothing_can_be_trimmed_nothing_is() -> None:
    heap = ResidentTrim(lambda: 0)
    heap.start()
    assert not heap.look()
    heap.stop()


HOLES = """
from broker_plugin.node.resident import ResidentTrim, resident_bytes
heap = ResidentTrim()
heap.look()
before = resident_bytes()
held = [bytes(10_000) for _ in range(20_000)]
kept = held[::50]
full = resident_bytes()
del held
freed = resident_bytes()
heap.look()
print(full - before, freed - before, resident_bytes() - before)
"""


def test_memory_between_what_is_kept_goes_back() -> None:
    """200 MB in pieces, of which every fiftieth stays: without a trim the process stays as large as it was."""
    done = subprocess.run([sys.executable, "-c", HOLES], capture_output=True, text=True, check=True)
    full, freed, left = map(int, done.stdout.split())
    assert full > 180 * MIB and freed > 150 * MIB and left < 40 * MIB


def test_the_size_of_a_process_is_known() -> None:
    before = resident_bytes()
    data = bytes(50 * MIB).replace(b"\0", b"\1")
    assert before and resident_bytes() - before > 40 * MIB and data


MAPPED = """
import mmap, os, sys
from pathlib import Path
from broker_plugin.node.resident import ResidentTrim, let_go, resident_bytes, shared_mappings
name = Path(sys.argv[1])
with open(name, "r+b") as file:
    file.truncate(100 << 20)
    shared = mmap.mmap(file.fileno(), 0)
    private = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE)
before = resident_bytes()
for at in range(0, len(shared), 4096):
    shared[at] = at // 4096 % 251
private[5] = 77
full = resident_bytes()
heap = ResidentTrim(mapped=name)
heap.least = before
assert heap.look() and len(shared_mappings(name)) == 1 and shared_mappings(name)[0][1] == 100 << 20
left = resident_bytes()
assert all(shared[at] == at // 4096 % 251 for at in range(0, len(shared), 4096)) and private[5] == 77
heap.stop()
assert not heap.look()
print(full - before, left - before)
"""


def test_pages_of_the_queue_state_are_let_go_and_nothing_is_forgotten(tmp_path: Path) -> None:
    """What was written to the mapping and is in no file yet is there again; a private mapping is left alone."""
    command = [sys.executable, "-c", MAPPED, str(tmp_path / "data.mdb")]
    (tmp_path / "data.mdb").touch()
    full, left = map(int, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert full > 95 * MIB and left < 20 * MIB


def test_a_file_that_is_not_mapped_has_no_mappings(tmp_path: Path) -> None:
    assert shared_mappings(tmp_path / "none") == [] == shared_mappings(Path(__file__))
    let_go(tmp_path / "none")
