"""``make bench``: txha beside RabbitMQ in one run on one machine, in turn, several rounds; medians and ratios.

    python -m python_tests.benchmarks.compare [--seconds 5] [--rounds 3] [--out docs/benchmarks]

A round whose messages are not all there afterwards, each once, or in which a txha node left the ready set, gives no
figure: the run fails.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import statistics
import sys
import tempfile
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path

from python_tests.benchmarks.load import CONFIRM, TX, LoadError, Shape, run_load
from python_tests.benchmarks.report import write_report
from python_tests.harness.cluster import end_on_sigterm
from python_tests.harness.peers import RabbitMq, Txha, declare, purge, waiting

CONNECTIONS = (1, 8, 32)
QUEUES = 4


@dataclass(frozen=True)
class Way:
    """One thing to measure: how a peer is used."""

    name: str
    peer: str
    mode: str
    prefix: str
    quorum: bool = False

    @property
    def queues(self) -> list[str]:
        """The queues of this way."""
        return [f"{self.prefix}.{number}" for number in range(QUEUES)]


WAYS = (
    Way("txha, 3 nodes, tx", "txha 3", TX, "t"),
    Way("RabbitMQ, 3 nodes, mirrored, tx", "rabbitmq 3", TX, "ha.q"),
    Way("RabbitMQ, 3 nodes, quorum, confirms", "rabbitmq 3", CONFIRM, "qc", True),
    Way("RabbitMQ, 3 nodes, quorum, tx", "rabbitmq 3", TX, "qt", True),
    Way("RabbitMQ, 1 node, tx", "rabbitmq 1", TX, "q"),
    Way("txha, 1 node, tx", "txha 1", TX, "t"),
)


@dataclass
class Figure:
    """One way at one number of connections: medians over the rounds."""

    way: str
    connections: int
    batches: float
    messages: float
    p50_ms: float
    p99_ms: float
    cpu_per_1000: float
    resident_mib: float


def measure(way: Way, peer: Txha | RabbitMq, connections: int, seconds: float) -> Figure:
    """One round. Raises LoadError if a message is missing or there twice, or if a node left."""
    ports = peer.ports
    purge(ports[0], way.queues)
    shape = Shape(way.mode, queues=way.queues)
    before = peer.usage()
    result = asyncio.run(run_load(ports, connections, shape, seconds))
    after = peer.usage()
    sent, found = len(result.latencies) * shape.messages, waiting(ports[0], way.queues)
    if found != sent:
        raise LoadError(f"{way.name}: {sent} messages were acknowledged and {found} are there")
    if not peer.whole():
        raise LoadError(f"{way.name}: a node left during the run")
    messages = sent / result.seconds
    return Figure(
        way.name,
        connections,
        messages / shape.messages,
        messages,
        result.quantile(0.5) * 1000,
        result.quantile(0.99) * 1000,
        (after.cpu - before.cpu) / max(sent, 1) * 1000,
        after.resident / 2**20,
    )


def median_of(figures: list[Figure]) -> Figure:
    """Field by field."""
    first = figures[0]
    numbers = {
        name: statistics.median(getattr(figure, name) for figure in figures)
        for name in ("batches", "messages", "p50_ms", "p99_ms", "cpu_per_1000", "resident_mib")
    }
    return Figure(first.way, first.connections, **numbers)


def run_all(seconds: float, rounds: int, root: Path) -> list[Figure]:
    """Every way in turn, round by round. Peers that are not at work stand idle beside it."""
    peers: dict[str, Txha | RabbitMq] = {
        "txha 3": Txha(root / "txha3", 3),
        "txha 1": Txha(root / "txha1", 1),
        "rabbitmq 3": RabbitMq(root / "rabbitmq3", 3),
        "rabbitmq 1": RabbitMq(root / "rabbitmq1", 1),
    }
    figures: dict[tuple[str, int], list[Figure]] = defaultdict(list)
    started: list[Txha | RabbitMq] = []
    try:
        for name, peer in peers.items():
            print(f"starting {name}", flush=True)
            started.append(peer)
            peer.start()
        for way in WAYS:
            declare(peers[way.peer].ports[0], way.queues, way.quorum)
        for number in range(rounds):
            for connections in CONNECTIONS:
                for way in WAYS:
                    figure = measure(way, peers[way.peer], connections, seconds)
                    figures[way.name, connections].append(figure)
                    told = f"{figure.batches:7.0f} batches/s  p50 {figure.p50_ms:6.1f} ms  p99 {figure.p99_ms:6.1f} ms"
                    print(f"round {number + 1}  {connections:2} connections  {way.name:37} {told}", flush=True)
    finally:
        for peer in started:
            peer.stop()
    return [median_of(found) for found in figures.values()]


def machine() -> str:
    """One line on what this ran on."""
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.machine(),
    )
    cores = Path("/proc/cpuinfo").read_text().count("processor\t")
    return f"{model}, {cores} cores, Linux {platform.release()}, Python {platform.python_version()}"


def main() -> int:
    """Run, write, and print where."""
    end_on_sigterm()
    parser = argparse.ArgumentParser(description="Measure txha beside RabbitMQ, in one run.")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one measurement")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured; medians are reported")
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks"), help="where the report goes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="txha-bench-") as root:
        try:
            figures = run_all(options.seconds, options.rounds, Path(root))
        except (LoadError, RuntimeError) as error:
            print(f"no figures: {error}", file=sys.stderr)
            return 1
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "results.json").write_text(
        json.dumps({"machine": machine(), "figures": [asdict(figure) for figure in figures]}, indent=1) + "\n"
    )
    write_report(options.out)
    print(f"written to {options.out}/README.md")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
