"""Where the processors' time goes under load: per message, for each process and for the threads of the nodes.

python -m python_tests.benchmarks.cpu [--connections 32] [--seconds 5]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from python_tests.benchmarks.load import Shape
from python_tests.benchmarks.subject import Subject

QUEUES = [f"t.{number}" for number in range(4)]
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Spent:
    """Seconds of processor time: in user mode, in the kernel, and in the event loop's thread."""

    user: float
    system: float
    loop: float

    def since(self, before: Spent) -> Spent:
        """What came on top."""
        return Spent(self.user - before.user, self.system - before.system, self.loop - before.loop)


def _times(stat: Path) -> tuple[float, float]:
    fields = stat.read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) / TICKS, int(fields[12]) / TICKS


def spent_by(pid: int) -> Spent:
    """What a process has spent so far. Its first thread runs the event loop."""
    user, system = _times(Path(f"/proc/{pid}/stat"))
    return Spent(user, system, sum(_times(Path(f"/proc/{pid}/task/{pid}/stat"))))


def row(name: str, spent: Spent, messages: int) -> str:
    """Microseconds per message."""
    loop, user, system = (each * 1e6 / messages for each in (spent.loop, spent.user, spent.system))
    return f"{name:22}{user + system:8.1f}{user:8.1f}{system:8.1f}{loop:8.1f}{user + system - loop:8.1f}"


def measure(connections: int, seconds: float) -> None:
    """Print the table. Raises Refused for a run that lost a message or a node."""
    shape = Shape(queues=QUEUES)
    with tempfile.TemporaryDirectory(prefix="txha-cpu-") as root, Subject(Path(root) / "cluster") as subject:
        subject.declare(QUEUES)
        subject.measure(connections, shape, 1.0)
        pids = {name: subject.cluster.pid(name) for name in (subject.primary, *subject.cluster.backups())}
        there, own = subject.expected.total(), time.process_time()
        before = {name: spent_by(pid) for name, pid in pids.items()}
        run = subject.measure(connections, shape, seconds)
        client, messages = time.process_time() - own, subject.expected.total() - there
        after = {name: spent_by(pid) for name, pid in pids.items()}
        core = subject.cluster.status()[0]["core"]
    print(f"{run.messages:.0f} messages/s over {connections} connections, core {core}; microseconds of CPU for each:")
    print(f"{'':22}{'all':>8}{'user':>8}{'kernel':>8}{'loop':>8}{'others':>8}")
    for name in pids:
        role = "primary" if name == subject.primary else "backup"
        print(row(f"{name} ({role})", after[name].since(before[name]), messages))
    print(row("clients", Spent(client, 0.0, client), messages))


def main() -> None:
    """Measure once."""
    parser = argparse.ArgumentParser(description="Measure processor time per message, by process and thread.")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    measure(options.connections, options.seconds)


if __name__ == "__main__":
    main()
