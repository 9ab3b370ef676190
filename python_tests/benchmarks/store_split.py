"""Why the log is a file and LMDB only follows: groups of 100 records a second, beside a busy Python thread.

    python -m python_tests.benchmarks.store_split [seconds]

Each way writes the same groups durably from a thread, while another thread computes as an event loop under load does.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import lmdb

from recovery.store.log import Log
from recovery.store.segment import SegmentInfo
from txobserver.events import Event, Message, Publish
from txobserver.frames import encode_frame
from txobserver.ids import Position

RECORDS, SIZE, ROUNDS = 100, 256, 3
Step = Callable[[int], None]


def by_log(directory: Path) -> Step:
    """One frame, one write, one fdatasync."""
    directory.mkdir()
    log = Log(directory, lambda first: SegmentInfo("c", "n", "i", first, 0), 1 << 30, Position(0, 0))
    list(log.recover(Position(0, 0)))
    body = b"x" * SIZE

    def step(number: int) -> None:
        first = number * RECORDS + 1
        events: list[Event] = [Publish(first + n, (1,), Message("", "q", b"", body)) for n in range(RECORDS)]
        log.append([encode_frame(1, first, events, 0)])

    return step


def by_lmdb(directory: Path, multi: bool) -> Step:
    """One synced LMDB transaction, record by record or with ``putmulti``."""
    env = lmdb.open(str(directory), map_size=8 << 30)
    body = b"x" * SIZE

    def step(number: int) -> None:
        items = [((number * RECORDS + n).to_bytes(8, "big"), body) for n in range(RECORDS)]
        with env.begin(write=True) as txn:
            if multi:
                txn.cursor().putmulti(items, append=True)
            else:
                for key, value in items:
                    txn.put(key, value)

    return step


def measure(step: Step, seconds: float, begin: int) -> tuple[float, int]:
    """Groups a second beside a busy thread, and the next number."""
    stop = threading.Event()

    def compute() -> None:
        while not stop.is_set():
            sum(range(1000))

    busy = threading.Thread(target=compute)
    busy.start()
    began, number = time.perf_counter(), begin
    while time.perf_counter() - began < seconds:
        step(number)
        number += 1
    rate = (number - begin) / (time.perf_counter() - began)
    stop.set()
    busy.join()
    return rate, number


def main() -> None:
    """Print a table: a row a way, a column an interval."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    with tempfile.TemporaryDirectory() as root:
        ways = {
            "log: one write and fdatasync": by_log(Path(root) / "log"),
            "LMDB: record by record": by_lmdb(Path(root) / "single", False),
            "LMDB: putmulti": by_lmdb(Path(root) / "multi", True),
        }
        numbers = dict.fromkeys(ways, 0)
        for interval in (0.005, 0.0005):
            sys.setswitchinterval(interval)
            rates: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(ROUNDS):
                for name, step in ways.items():
                    rate, numbers[name] = measure(step, seconds, numbers[name])
                    rates[name].append(rate)
            base = statistics.median(rates["LMDB: record by record"])
            for name, found in rates.items():
                median = statistics.median(found)
                ratio = median / base
                print(f"switch interval {interval * 1000:3.1f} ms  {name:30} {median:7.0f} groups/s  {ratio:4.1f}x")


if __name__ == "__main__":
    main()
