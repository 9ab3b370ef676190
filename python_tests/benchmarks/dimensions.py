"""What can grow, one function a dimension: each yields its points as they are measured.

Every load is transactions of 10 durable messages of 256 bytes over 4 queues from 8 connections, but for what grows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from python_tests.benchmarks.consume import drain, publish_numbered
from python_tests.benchmarks.load import (
    Loader,
    LoadError,
    Result,
    Shape,
    batch_bytes,
    connected,
    run_load,
)
from python_tests.benchmarks.subject import Refused, Run, Subject, pause
from python_tests.harness.peers import RabbitMq, Txha, declare, purge, waiting

QUEUES = [f"q{number}" for number in range(4)]
SHAPE = Shape(queues=QUEUES)
CONNECTIONS = 8


@dataclass
class Point:
    """One point of one line: its figures, or why there are none."""

    line: str
    at: float
    figures: dict[str, float] = field(default_factory=dict)
    refused: str = ""


@dataclass(frozen=True)
class Pace:
    """How long one measurement takes, in seconds, and where the directories of clusters go."""

    seconds: float
    place: Path


Measure = Callable[[Pace, tuple[int, ...]], Iterator[Point]]


@dataclass(frozen=True)
class Plot:
    """One picture: a figure over what grows. ``flat``: what it should look like, in words."""

    name: str
    figure: str
    label: str
    flat: str = ""
    log_y: bool = False


@dataclass(frozen=True)
class Dimension:
    """Something that grows: at which points it is measured, and what is drawn."""

    title: str
    label: str
    points: tuple[int, ...]
    quick: tuple[int, ...]
    measure: Measure
    plots: tuple[Plot, ...]
    log_x: bool = True


@contextmanager
def _subject(pace: Pace, name: str, nodes: int = 3) -> Iterator[Subject]:
    with Subject(pace.place / name, nodes) as subject:
        subject.declare(QUEUES)
        yield subject


def _point(at: float, run: Callable[[], Run], line: str = "txha") -> Point:
    """A point with the figures of this run, or with the reason why it has none."""
    pause()
    try:
        return Point(line, at, asdict(run()))
    except Refused as refused:
        return Point(line, at, refused=str(refused))


def depth(pace: Pace, points: tuple[int, ...]) -> Iterator[Point]:
    """Messages that wait already."""
    with _subject(pace, "depth") as subject:
        for at in points:

            def run(at: int = at) -> Run:
                subject.fill(QUEUES, at)
                return subject.measure(CONNECTIONS, SHAPE, pace.seconds)

            yield _point(at, run)


def queues(pace: Pace, points: tuple[int, ...]) -> Iterator[Point]:
    """Queues that are declared; the load goes round all of them."""
    with Subject(pace.place / "queues") as subject:
        for at in points:
            names = [f"q{number}" for number in range(at)]

            def run(names: list[str] = names) -> Run:
                subject.declare([name for name in names if name not in subject.expected])
                return subject.measure(CONNECTIONS, replace(SHAPE, queues=names), pace.seconds)

            yield _point(at, run)


def _by_shape(name: str, shape: Callable[[int], Shape]) -> Measure:
    def measure(pace: Pace, points: tuple[int, ...]) -> Iterator[Point]:
        with _subject(pace, name) as subject:
            for at in points:
                yield _point(at, lambda at=at: subject.measure(CONNECTIONS, shape(at), pace.seconds))  # type: ignore[misc]

    return measure


def backups(pace: Pace, points: tuple[int, ...]) -> Iterator[Point]:
    """Nodes beside the primary; each time another cluster."""
    for at in points:
        with _subject(pace, f"backups-{at}", at + 1) as subject:
            yield _point(at, lambda s=subject: s.measure(CONNECTIONS, SHAPE, pace.seconds))  # type: ignore[misc]


def connections(pace: Pace, points: tuple[int, ...]) -> Iterator[Point]:
    """Clients that commit at the same time."""
    with _subject(pace, "connections") as subject:
        for at in points:
            yield _point(at, lambda at=at: subject.measure(at, SHAPE, pace.seconds))  # type: ignore[misc]


def open_transactions(pace: Pace, points: tuple[int, ...]) -> Iterator[Point]:
    """Transactions that have published and do not commit while the others do; in the end they commit, too."""
    with _subject(pace, "open") as subject:
        for at in points:
            yield _point(at, lambda at=at: _beside_open(subject, at, pace.seconds))  # type: ignore[misc]


def _beside_open(subject: Subject, count: int, seconds: float) -> Run:
    departures = subject.nodes.departures()

    async def load() -> tuple[Result, Result]:
        held, commit = Result(), batch_bytes(Shape(queues=QUEUES, messages=0))
        publishes = batch_bytes(SHAPE).removesuffix(commit)
        holders: list[Loader] = []
        for _ in range(count):
            holders.append(await connected(subject.port, SHAPE, held, [commit]))
            holders[-1].send(publishes)
        try:
            result = await run_load([subject.port], CONNECTIONS, SHAPE, seconds)
            for holder in holders:
                holder.begin()
                holder.stop()
            await asyncio.gather(*(holder.ended for holder in holders))
        finally:
            for holder in holders:
                holder.close()
        return result, held

    try:
        result, held = asyncio.run(load())
    except (LoadError, OSError) as error:
        raise Refused(f"the load was cut short: {error}") from None
    if len(held.latencies) != count:
        raise Refused(f"{count} transactions were open and {len(held.latencies)} were committed in the end")
    for each in (result, held):
        subject.expected += each.messages(SHAPE)
    anonymous = subject.nodes.anonymous_mib()
    subject.check(departures)
    return subject.run_of(result, SHAPE, anonymous)


def consumers(pace: Pace, points: tuple[int, ...]) -> Iterator[Point]:
    """Consumers that drain one queue, beside RabbitMQ. The queue holds what takes about the pace's seconds."""
    count = max(10_000, int(5_000 * pace.seconds))
    peers: dict[str, tuple[Txha | RabbitMq, str, bool]] = {}
    three = RabbitMq(pace.place / "rabbitmq", 3)
    peers["txha, 3 nodes"] = (Txha(pace.place / "consumers", 3), "drained", False)
    peers["RabbitMQ, 3 nodes, mirrored"] = (three, "ha.drained", False)
    peers["RabbitMQ, 3 nodes, quorum"] = (three, "quorum.drained", True)
    started: list[Txha | RabbitMq] = []
    try:
        for line, (peer, queue, quorum) in peers.items():
            if peer not in started:
                started.append(peer)
                peer.start()
            declare(peer.ports[0], [queue], quorum)
            for at in points:
                yield _drained(line, peer, queue, count, at)
    finally:
        for peer in started:
            peer.stop()


def _drained(line: str, peer: Txha | RabbitMq, queue: str, count: int, at: int) -> Point:
    port = peer.ports[0]
    try:
        purge(port, [queue])
        asyncio.run(publish_numbered(port, queue, count))
        rate = asyncio.run(drain(port, queue, count, at))
        left = waiting(port, [queue])
        if left:
            raise LoadError(f"every message was acknowledged, and {left} came back")
        if not peer.whole():
            raise LoadError("a node left during the run")
    except (LoadError, OSError) as error:
        return Point(line, at, refused=str(error))
    return Point(line, at, {"messages": rate})


COMMITS = "transactions/s"
FLAT = "Flat where it should be flat: "
DIMENSIONS = {
    "depth": Dimension(
        "Queue depth",
        "messages waiting",
        (0, 1_000, 10_000, 100_000, 1_000_000),
        (0, 1_000, 20_000),
        depth,
        (
            Plot("depth", "commits", COMMITS, FLAT + "no operation costs in proportion to a queue's depth."),
            Plot("memory", "anonymous_mib", "MiB anonymous, of the node that has most", "Bounded by configuration."),
        ),
    ),
    "queues": Dimension(
        "Queues",
        "queues",
        (1, 10, 100, 1_000, 10_000),
        (1, 100, 1_000),
        queues,
        (Plot("queues", "commits", COMMITS, FLAT + "a message costs the same however many queues there are."),),
    ),
    "messages": Dimension(
        "Messages per transaction",
        "messages in a transaction",
        (1, 10, 100, 1_000, 10_000),
        (1, 100, 10_000),
        _by_shape("messages", lambda at: replace(SHAPE, messages=at)),
        (
            Plot("messages", "messages", "messages/s", "Rises: more messages share the two rounds of a commit."),
            Plot("messages-commits", "commits", COMMITS, log_y=True),
        ),
    ),
    "size": Dimension(
        "Body size",
        "bytes",
        (16, 256, 4_096, 65_536, 1_048_576),
        (16, 4_096, 1_048_576),
        _by_shape("size", lambda at: replace(SHAPE, size=at)),
        (Plot("size", "mib", "MiB/s of bodies", "Rises until a disk or a processor is busy.", log_y=True),),
    ),
    "backups": Dimension(
        "Backups",
        "backups",
        (0, 1, 2, 3, 4),
        (0, 2),
        backups,
        (Plot("backups", "commits", COMMITS, "Falls: all nodes share this machine's processors and disk."),),
        log_x=False,
    ),
    "connections": Dimension(
        "Connections",
        "connections",
        (1, 8, 32, 100, 250, 500),
        (1, 32, 250),
        connections,
        (
            Plot("connections", "commits", COMMITS, "Rises, then flat: all connections that commit share the rounds."),
            Plot("connections-p99", "p99_ms", "p99 of a transaction, ms", log_y=True),
        ),
    ),
    "open": Dimension(
        "Open transactions",
        "transactions that stay open",
        (1, 10, 100, 1_000),
        (1, 100, 500),
        open_transactions,
        (Plot("open", "commits", COMMITS, FLAT + "a transaction that stays open costs the others nothing."),),
    ),
    "consumers": Dimension(
        "Consumers",
        "consumers of one queue, prefetch 100",
        (1, 8, 32),
        (1, 8),
        consumers,
        (
            Plot(
                "consumers",
                "messages",
                "messages/s taken",
                "Messages are delivered and acknowledged. They are numbered, and each must come exactly once.",
            ),
        ),
    ),
}
