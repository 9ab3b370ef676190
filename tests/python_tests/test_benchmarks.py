"""The benchmarks count what they send, and give no figure for a run in which anything is wrong."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from pamqp import commands, frame

from python_tests.benchmarks import dtx as dtx_benchmark
from python_tests.benchmarks import growth
from python_tests.benchmarks.consume import Taken
from python_tests.benchmarks.dimensions import DIMENSIONS, Pace, Point, open_transactions
from python_tests.benchmarks.load import LoadError, Result, Shape, batch_bytes
from python_tests.benchmarks.subject import Refused, Subject


def published(data: bytes) -> tuple[list[str], list[int]]:
    """Routing keys and body sizes of a batch."""
    keys, sizes = [], []
    while data:
        size, _, value = frame.unmarshal(data)
        data = data[size:]
        if isinstance(value, commands.Basic.Publish):
            keys.append(value.routing_key)
        elif hasattr(value, "body_size"):
            sizes.append(value.body_size)
        elif hasattr(value, "value"):
            sizes[-1] -= len(value)
    return keys, sizes


@pytest.mark.parametrize(("queues", "messages"), [(1, 10), (4, 10), (7, 10), (25, 10), (10, 10), (3, 1)])
def test_batches_go_round_the_queues_and_are_counted(queues: int, messages: int) -> None:
    shape = Shape(messages=messages, size=3, queues=[f"q{number}" for number in range(queues)])
    result, sent = Result(), Counter[str]()
    for batch in range(shape.period):
        keys, left = published(batch_bytes(shape, batch))
        assert keys == shape.queues_of(batch) and left == [0] * messages
        sent.update(keys)
        result.answered[batch] += 1
    assert result.messages(shape) == sent and len(set(sent.values())) == 1 and len(sent) == queues


def test_a_large_body_is_split_into_frames() -> None:
    assert published(batch_bytes(Shape(messages=2, size=1 << 20, queues=["q"]))) == (["q", "q"], [0, 0])


def shown(messages: int, digest: str = "d") -> dict[str, dict[str, object]]:
    return {"q": {"messages": messages, "digest": digest}}


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ([shown(6), shown(6)], "7 messages were acknowledged for q, and 6 are there"),
        ([shown(8), shown(8)], "and 8 are there"),
        ([shown(7), shown(7, "other")], "hold different messages"),
        ([{}, {}], "and None are there"),
    ],
    ids=["lost", "doubled", "nodes differ", "no queue"],
)
def test_no_figure_for_a_run_that_lost_or_doubled_anything(
    tmp_path: Path, nodes: list[dict[str, dict[str, object]]], reason: str
) -> None:
    subject = Subject(tmp_path / "cluster")
    subject.expected["q"] = 7
    with pytest.raises(Refused, match=reason):
        subject.compare(nodes)
    subject.compare([shown(7), shown(7)])


def test_no_figure_for_a_run_in_which_a_node_left(tmp_path: Path) -> None:
    subject = Subject(tmp_path / "cluster")
    log = tmp_path / "cluster" / "node-1" / "node.log"
    log.parent.mkdir(parents=True)
    log.write_text("state active\n")
    before = subject.nodes.departures()
    log.write_text("state active\ngeneration=1 node-2 is out of the ready set\n")
    with pytest.raises(Refused, match="left the ready set"):
        subject.check(before)


async def test_no_figure_for_a_drain_with_a_message_twice() -> None:
    for number, redelivered in ((0, False), (1, True), (2, False)):
        taken = Taken(2)
        taken.take(0, False)
        taken.take(number, redelivered)
        with pytest.raises(LoadError, match="twice, or never published"):
            await asyncio.wait_for(taken.done, 1)


def test_a_page_of_figures_and_of_reasons(tmp_path: Path) -> None:
    points = [Point("txha", 1, {"commits": 5.0}), Point("txha", 10, refused="a node left")]
    entry = {"machine": "a machine", "seconds": 1.0, "points": [vars(point) for point in points]}
    growth.write_results(tmp_path, "queues", entry)
    growth.write_results(tmp_path, "open", entry)
    growth.write_page(tmp_path)
    page = (tmp_path / growth.PAGE).read_text()
    assert "no figure: a node left" in page and "queues.svg" in page and "open.svg" in page
    assert page.index("## Queues") < page.index("## Open"), "in the order of the dimensions"
    assert "<svg" in (tmp_path / "queues.svg").read_text()


def test_open_transactions_are_measured_and_counted(tmp_path: Path) -> None:
    """A real cluster, for a moment: transactions stay open beside the load and are committed in the end."""
    (point,) = open_transactions(Pace(0.3, tmp_path), (5,))
    assert not point.refused and point.figures["commits"] > 0


def test_every_dimension_has_points_in_order() -> None:
    for dimension in DIMENSIONS.values():
        for points in (dimension.points, dimension.quick):
            assert len(points) > 1 and list(points) == sorted(set(points))


def test_every_way_of_the_dtx_benchmark_is_counted(tmp_path: Path) -> None:
    """The subject refuses a run whose messages are not all there."""
    found = dtx_benchmark.measure(0.2, 1, (2,), tmp_path)
    assert set(found) == set(dtx_benchmark.WAYS) and all(runs[2].commits > 0 for runs in found.values())
    text = dtx_benchmark.page(found, 0.2, 1)
    assert all(f"| 2 | {way} | " in text for way in dtx_benchmark.WAYS)
