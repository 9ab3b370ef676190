"""A joiner is served at a pace that leaves the others their share, and gets there all the same."""

from __future__ import annotations

from itertools import pairwise

from ha.catchup.replicating_subscription import PAGE
from ha.catchup.throttle import LONGEST_REST, Throttle
from ha.messages.attaching import Progress
from ha.messages.copying import QueueContent
from ha.messages.stream import Entries
from tests.support.memory_cluster import MemoryCluster
from tests.support.memory_host import text
from tests.support.steps import backups_of, declared

SMALL_LAG = 1000


def test_it_rests_for_twice_as_long_as_it_worked() -> None:
    throttle = Throttle()
    throttle.begin(10.0)
    assert throttle.working
    throttle.end(10.1, 100, 5000)
    assert not throttle.working and throttle.resting(10.29) and not throttle.resting(10.31)
    throttle.begin(11.0)
    throttle.end(13.0, 100, 4900)
    # not longer than that
    assert throttle.resting(13.0 + LONGEST_REST - 0.01) and not throttle.resting(13.0 + LONGEST_REST)


def test_it_rests_only_after_progress() -> None:
    throttle = Throttle()
    throttle.begin(10.0)
    throttle.end(10.1, 100, 5000)
    for lag in (5000, 6000, 4951):
        throttle.begin(11.0)
        throttle.end(11.1, 100, lag)
        assert not throttle.resting(11.11), "others publish as fast as it catches up"
    throttle.begin(12.0)
    throttle.end(12.1, 100, 4950)
    assert throttle.resting(12.11)


def late(cluster: MemoryCluster, missed: int) -> str:
    """A backup that was away while so many messages were published, and is back."""
    primary, name = cluster.primary, backups_of(cluster)[0].name
    cluster.kill(name)
    cluster.run(lambda: len(cluster.coordination.record.ready) == 2)
    for number in range(missed):
        primary.report(lambda n=number: primary.host.publish("q", f"{n}"))  # type: ignore[misc]
        if number % 10 == 0:
            cluster.turn()
    cluster.start(name)
    return name


def test_a_joiner_is_sent_one_portion_at_a_time() -> None:
    cluster = declared("q", portion_bytes=2000)
    name = late(cluster, 300)
    on_the_way: list[int] = []

    def look(source: str, target: str, message: object) -> bool:
        session = cluster.primary.core.leading.backups.sessions.get(name)  # type: ignore[union-attr]
        if target == name and isinstance(message, Entries) and session is not None and not session.past_guard:
            on_the_way.append(session.lag_bytes)
        return False

    cluster.lose = look
    cluster.run(cluster.all_ready)
    assert on_the_way and max(on_the_way) < 4000, "a portion, and the frame that filled it"
    cluster.check_agreement()


def test_a_ready_member_that_comes_back_behind_is_not_paced() -> None:
    """The commits wait for it: every rest would be theirs."""
    cluster = declared("q", portion_bytes=2000, small_lag=3, link_down_grace=5.0, prepare_timeout=30.0)
    primary, name = cluster.primary, backups_of(cluster)[0].name
    on_the_way: list[int] = []

    def look(source: str, target: str, message: object) -> bool:
        if target == name and isinstance(message, Entries):
            on_the_way.append(cluster.primary.core.leading.backups.sessions[name].lag_bytes)  # type: ignore[union-attr]
        return False

    cluster.partition(name)
    for number in range(300):
        primary.report(lambda n=number: primary.host.publish("q", f"{n}"))  # type: ignore[misc]
        if number % 10 == 0:
            cluster.turn()
    assert len(cluster.coordination.record.ready) == 3
    cluster.lose = look
    cluster.heal()
    cluster.run(lambda: primary.host.answer("publish 299") == "ok")
    assert max(on_the_way) > 8000, "all that there is at once"
    assert len(cluster.coordination.record.ready) == 3 and cluster.all_ready()


def test_a_copy_rests_after_each_portion() -> None:
    """A new store is filled queue by queue: after each full portion twice as long as that took passes."""
    cluster = declared("q", portion_bytes=20_000)
    primary, name = cluster.primary, backups_of(cluster)[0].name
    cluster.kill(name)
    cluster.run(lambda: len(cluster.coordination.record.ready) == 2)
    for number in range(3 * PAGE):
        primary.report(lambda n=number: primary.host.publish("q", f"{n}"))  # type: ignore[misc]
    cluster.run(lambda: primary.host.answer(f"publish {3 * PAGE - 1}") == "ok")
    primary.core.log_first = primary.disk.frames[-1].last + 1
    sent: list[float] = []
    arrived: list[float] = []

    def look(source: str, target: str, message: object) -> bool:
        if target == name and isinstance(message, QueueContent):
            sent.append(cluster.now)
        elif source == name and isinstance(message, Progress) and len(arrived) < len(sent):
            arrived.append(cluster.now)
        return False

    cluster.lose = look
    cluster.start(name, wipe=True)
    cluster.run(cluster.all_ready)
    rests = [after - at for at, after in pairwise(sent)]
    took = [there - at for at, there in zip(sent, arrived, strict=True)]
    assert sum(rest >= 2.99 * each > 0 for rest, each in zip(rests, took, strict=False)) >= 7, "150 kB and more"
    cluster.check_agreement()


def test_a_joiner_gets_there_while_others_publish_all_the_time() -> None:
    cluster = declared("q", portion_bytes=2000)
    late(cluster, 300)
    primary = cluster.primary
    core = primary.core.leading.primary
    assert core is not None
    queue = primary.host.number("q")
    for _ in range(500):
        primary.report(lambda: core.ledger.publish([queue], text("more"), None))
        primary.report(lambda: core.ledger.publish([queue], text("more"), None))
        cluster.turn()
        if cluster.all_ready():
            break
    assert cluster.all_ready()
