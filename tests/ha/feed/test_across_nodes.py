"""One reader, one cursor, any node: whole clusters in memory, with take-overs, cuts, copies and an accepted loss."""

from __future__ import annotations

from ha.feed.feed import BEGINNING, OnDisk, Parted, Passed, up_to
from tests.ha.schedules.test_record import behind, promote
from tests.support.memory_cluster import MemoryCluster, MemoryNode
from tests.support.steps import backups_of, declared, publish, survivors_agree
from txobserver.events import Event, Publish
from txobserver.ids import Position


class Reader:
    """Goes by its cursor, and remembers what it was given."""

    def __init__(self) -> None:
        self.after = BEGINNING
        self.seen: list[tuple[Position, Event]] = []
        self.from_disk = 0
        self.parted: Parted | None = None

    def read(self, node: MemoryNode, max_bytes: int = 1) -> None:
        """All that this node has for it."""
        feed = node.core.feed
        while True:
            found = feed.read(self.after, max_bytes)
            if isinstance(found, OnDisk):
                held = [each for each in node.disk.frames if each.first <= found.first <= each.last]
                found = Passed([up_to(held[0], found.last)], up_to(held[0], found.last).position)
                assert feed.parted(found.after) is None
                self.from_disk += 1
            if isinstance(found, Parted):
                self.parted = found
                return
            if not found.frames:
                return
            for frame in found.frames:
                for sequence, event in enumerate(frame.events(), frame.first):
                    if sequence > self.after.sequence:
                        self.seen.append((Position(frame.generation, sequence), event))
            self.after = found.after

    def bodies(self) -> list[str]:
        return [event.message.body.decode() for _, event in self.seen if isinstance(event, Publish)]


def logged(node: MemoryNode) -> list[tuple[Position, Event]]:
    """What the log of a node holds, up to what has passed."""
    return [
        (Position(frame.generation, sequence), event)
        for frame in node.disk.frames
        for sequence, event in enumerate(frame.events(), frame.first)
        if sequence <= node.core.replica.applied.sequence
    ]


def published(cluster: MemoryCluster, *bodies: str) -> None:
    for body in bodies:
        publish(cluster.primary, "q", body)
        cluster.turn()
    cluster.run(lambda: all(n.core.feed.commit == cluster.primary.core.replica.tail.sequence for n in nodes(cluster)))


def nodes(cluster: MemoryCluster) -> list[MemoryNode]:
    return list(cluster.nodes.values())


def test_one_cursor_goes_on_at_every_node_and_over_take_overs() -> None:
    cluster = declared("q", size=3)
    reader, body = Reader(), iter(f"m{number}" for number in range(100))
    for _ in range(2):
        for node in nodes(cluster):
            published(cluster, next(body), next(body))
            reader.read(node)
            assert reader.seen == logged(node)
        gone = cluster.primary.name
        cluster.kill(gone)
        cluster.run(lambda: any(node.state == "active" for node in nodes(cluster)))
        cluster.start(gone)
        cluster.settled()
    published(cluster, "last")
    reader.read(backups_of(cluster)[0], max_bytes=1 << 20)
    positions = [position for position, _ in reader.seen]
    assert [each.sequence for each in positions] == list(range(1, len(positions) + 1)), "each once, without a gap"
    assert {each.generation for each in positions} == {1, 2, 3} and reader.parted is None
    assert reader.bodies() == [f"m{number}" for number in range(12)] + ["last"]
    survivors_agree(cluster)


def test_a_reader_that_is_behind_reads_the_log_and_gets_the_same() -> None:
    cluster = declared("q", size=3, feed_bytes=1)
    published(cluster, *(f"m{number}" for number in range(20)))
    for node in nodes(cluster):
        reader = Reader()
        reader.read(node)
        assert reader.from_disk > 10 and reader.seen == logged(node)


def test_what_never_passed_is_given_by_nobody() -> None:
    """The primary writes it and is cut off; another one leads, and the log of the first is cut when it comes back."""
    cluster = declared("q", size=3)
    a = cluster.primary
    published(cluster, "before")
    readers = {node.name: Reader() for node in nodes(cluster)}
    cluster.partition(a.name)
    cluster.storeless.add(a.name)
    publish(a, "q", "never")
    cluster.run(lambda: a.disk.durable == a.core.replica.tail.sequence)
    readers[a.name].read(a)
    assert readers[a.name].bodies() == ["before"]
    cluster.run(lambda: any(node.state == "active" for node in nodes(cluster) if node is not a))
    cluster.heal()
    cluster.storeless.clear()
    cluster.settled()
    published(cluster, "after")
    for name, reader in readers.items():
        reader.read(cluster.nodes[name])
        assert reader.bodies() == ["before", "after"] and reader.seen == logged(cluster.nodes[name])
        assert reader.parted is None and reader.from_disk == 0, "all of it is in memory"


def test_who_was_given_what_is_lost_is_told_so() -> None:
    """c led alone, and is gone; an operator promotes b, which lacks what c had acknowledged."""
    cluster = declared("q", size=3)
    b = behind(cluster)
    cluster.run(lambda: cluster.nodes["c"].state == "active")
    c, reader = cluster.nodes["c"], Reader()
    publish(c, "q", "lost")
    cluster.run(lambda: c.core.feed.commit == c.core.replica.tail.sequence and c.host.bodies("q").count("lost") == 1)
    reader.read(c)
    before, seen = reader.after, list(reader.seen)
    cluster.kill("c")
    reader.read(b)
    assert reader.parted is None and reader.seen == seen, "b knows of less, and no operator has accepted a loss"
    cluster.run(lambda: promote(b) is None)
    cluster.run(lambda: b.state == "active")
    cluster.lose = lambda source, target, message: False
    reader.read(b)
    assert reader.parted == Parted(b.core.generation) and reader.after == before and reader.seen == seen
    cluster.start("a")
    c = cluster.start("c")
    survivors_agree(cluster)
    late = Reader()
    late.after = before
    late.read(c)
    assert late.parted is not None and late.seen == [], "also by the node that had it, once that was overwritten"


def test_who_watches_hears_of_what_passes_on_each_node() -> None:
    cluster = declared("q", size=3)
    heard: dict[str, list[int]] = {node.name: [] for node in nodes(cluster)}
    for node in nodes(cluster):
        node.core.feed.watch(lambda n=node: heard[n.name].append(n.core.feed.commit))  # type: ignore[misc]
    published(cluster, "m0", "m1")
    for name, commits in heard.items():
        assert commits and commits == sorted(set(commits)) and commits[-1] == cluster.nodes[name].core.feed.commit
